"""What Triton's compiler says on standard error: when a pass fails, its exception does not say what is wrong.

MLIR prints a line for each error, as `"k.py":57:4: error: 'ttg.local_load' op ...`, and raises `RuntimeError: error
encountered during parsing`. Relies on file descriptor 2 being the process's own; what is caught is passed on to it.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ = 1 << 16  # bytes of what was printed
FEW, LONGEST = 2, 240  # errors that are quoted, for others follow from the first; characters of each
_ERROR = re.compile(r"^(?P<at>|.*?: )error: (?P<what>\S.*)$", re.MULTILINE)
_LINE = re.compile(r":(\d+):\d+\)?: $")


@contextmanager
def caught() -> Iterator[Callable[[], str]]:
    """Catch standard error; yield a function that returns the first errors so far, on one line; empty without any."""
    with tempfile.TemporaryFile() as file:
        real = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: errors(os.pread(file.fileno(), READ, 0).decode(errors="replace"))
        finally:
            os.dup2(real, 2)
            file.seek(0)
            while part := file.read(READ):
                os.write(real, part)
            os.close(real)


def errors(text: str) -> str:
    """Return the first errors of a compiler's output, with their lines of the file."""
    first_errors = dict.fromkeys((m["what"].strip()[:LONGEST], _line(m["at"])) for m in _ERROR.finditer(text))
    return "; ".join([message + line for message, line in first_errors][:FEW])


def _line(at: str) -> str:
    match = _LINE.search(at)
    return f" (line {match[1]} of the file)" if match and match[1] != "0" else ""
