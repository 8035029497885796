"""What an exception says in words: of Triton's compiler, what is wrong, and at which line of the candidate.

Triton raises one exception for each call on the way out. The outer ones quote the calls and say nothing of what is
wrong; the innermost may stand in a function of its library. Relies on its exceptions having `src` (the function's
text) and `error_message` (None where all is in `__cause__`).
"""

import re
import traceback
from collections.abc import Iterator
from typing import Any

MOST = 4000  # characters
_ADDRESS = re.compile(r"( object)? at 0x[0-9a-f]+(?=>)")  # differs from run to run


def describe(error: BaseException, source: str, printed: str = "") -> str:
    """Return the text of the exception. `source`: the candidate's file; places are those of its functions. `printed`:
    what the compiler wrote of it.
    """
    text = _ADDRESS.sub("", _message(error, source))
    return (f"{text}: {printed}" if printed and printed not in text else text)[:MOST]


def _message(error: BaseException, source: str) -> str:
    chain = list(_chain(error))
    of_candidate = [e for e in chain if getattr(e, "src", None) and e.src in source]
    if not of_candidate:
        return str(error) or type(error).__name__
    place, _, code = _shown(of_candidate[-1]).partition(":\n")
    calls = dict.fromkeys(
        _shown(e).splitlines()[0].rstrip(":") for e in reversed(of_candidate[:-1])
    )  # one raises two at times
    called = "".join(f", called {call}" for call in calls)
    return f"{place}{called}:\n{code}\n{_what(chain[-1])}"


def _chain(error: BaseException) -> Iterator[Any]:
    """Yield the exception and those behind it, as long as they are of Triton's compiler."""
    while hasattr(error, "error_message"):
        yield error
        if error.__cause__ is None:
            return
        error = error.__cause__


def _shown(error: Any) -> str:
    """Return where it was, and the code there: `at 3:4:`, lines, and one with a caret."""
    text = str(error)
    ending = f"\n{error.error_message}" if error.error_message else ""
    return text.removesuffix(ending)


def _what(error: Any) -> str:
    return str(error.error_message or "") or (_bare(error.__cause__) if error.__cause__ else type(error).__name__)


def _bare(error: BaseException) -> str:
    """Return an exception of no words by the statement that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{type(error).__name__} at `{last[0].line}`" if last and not str(error) else repr(error)
