"""What models are told of candidates, less what they must not see: names of held-out cases, and bounds of errors.

Whoever puts the record into a prompt sends its words through here. Relies on the wording of the judge's reasons
(`sandbox/judge/numerics.py`, `sandbox/gate/verdict.py`). It hides nothing in source: `kernel_part.py` does.
"""

import re
from collections.abc import Collection

_COUNTED = re.compile(r",? ?\b\d+( of \d+)? held-out cases?")  # as coverage is told
_BOUND = re.compile(r" above [\d.e+-]+")  # as `sandbox/judge/numerics.py` words it


def reason(said: str, stage: str | None, held_out: Collection[str]) -> str:
    """Why a candidate got its verdict. Of a failure on a held-out case no more than that is told."""
    known = () if stage == "interpreter" else held_out  # it names none, and small cases may be called the same
    said = _COUNTED.sub("", said)
    if re.search("held.?out", said, re.I) or mentions(said, known):
        return "fails on a case that is not shown"
    return _BOUND.sub("", said)


def mentions(text: str, names: Collection[str]) -> bool:
    """Whether one of the names stands in a text as a word."""
    return not set(re.findall(r"[\w.-]+", text)).isdisjoint(names)


def visible(text: str) -> str:
    """The text with nothing in it that a terminal would obey: such characters are written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def line(text: str, most: int | None = 400) -> str:
    """The text as one printable line of at most so many characters; None: of all that it has."""
    one = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return one if most is None or len(one) <= most else one[: most - 3] + "..."
