"""Search/replace blocks: finds the place of each in the kernel part and applies them.

An edit whose place is not unique is an error; its message fits into the next prompt.
"""

import re
from collections.abc import Sequence

from pgo_agent.agent.llm.replies.errors import BadReply, short
from pgo_agent.agent.llm.replies.fences import fence_of

MOST_EDITS = 100
_SEARCH = re.compile(r"[ \t]*<{5,}[ \t]*(SEARCH|ORIGINAL)\b.*", re.I)
_DIVIDER = re.compile(r"[ \t]*={5,}[ \t]*")
_REPLACE = re.compile(r"[ \t]*>{5,}[ \t]*((REPLACE|UPDATED)\b.*)?", re.I)

Edit = tuple[list[str], list[str]]  # lines to find, lines to put there


def begins(line: str) -> bool:
    """Whether a line begins an edit."""
    return _SEARCH.fullmatch(line) is not None


def ends(line: str) -> bool:
    return _REPLACE.fullmatch(line) is not None


def read(text: str) -> list[Edit]:
    """Return the edits of a text, in order. Raises BadReply for an incomplete one."""
    edits: list[Edit] = []
    edit: Edit | None = None
    at = 0  # which half of the edit is being read
    for line in text.split("\n"):
        if begins(line):
            if edit is not None:
                raise BadReply(f"edit {len(edits) + 1} has no >>>>>>> REPLACE line")
            edit, at = ([], []), 0
        elif edit is None:
            continue
        elif _DIVIDER.fullmatch(line):
            if at:
                raise BadReply(f"edit {len(edits) + 1} has two ======= lines")
            at = 1
        elif ends(line):
            if not at:
                raise BadReply(f"edit {len(edits) + 1} has no ======= line")
            edits.append((_bare(edit[0]), _bare(edit[1])))
            edit = None
        else:
            edit[at].append(line)
    if edit is not None:
        raise BadReply(f"edit {len(edits) + 1} has no >>>>>>> REPLACE line: the reply is cut off")
    return edits


def _bare(lines: list[str]) -> list[str]:
    """The lines without a fence around them."""
    full = [i for i, line in enumerate(lines) if line.strip()]
    fenced = len(full) > 1 and fence_of(lines[full[0]])[0] and fence_of(lines[full[-1]])[0]
    return lines[full[0] + 1 : full[-1]] if fenced else lines


def apply_edits(part: str, edits: Sequence[Edit]) -> str:
    """Return the kernel part with all edits. Raises BadReply for one whose place is not unique."""
    if len(edits) > MOST_EDITS:
        raise BadReply(f"more than {MOST_EDITS} edits")
    lines = part.split("\n")
    for n, (search, replace) in enumerate(edits, 1):
        if not any(line.strip() for line in search):
            raise BadReply(f"edit {n} has nothing to search for")
        at, shift, search, replace = _place(lines, n, search, replace)
        lines[at : at + len(search)] = [_shifted(line, shift) for line in replace]
    return "\n".join(lines)


def _place(lines: list[str], n: int, search: list[str], replace: list[str]) -> tuple[int, int, list[str], list[str]]:
    """The line of an edit, how far it shifts to the right, and its texts. Raises BadReply if the place is not
    unique."""
    hits = _hits(lines, search)
    if not hits:  # blank lines around the text are no part of it
        search, replace = _trimmed(search), _trimmed(replace)
        hits = _hits(lines, search)
    exact = [h for h in hits if h[1] == 0] or hits
    if not exact:
        raise BadReply(
            f"the SEARCH text of edit {n} is not found: {short(_trimmed(search)[0])} (whole lines are compared)"
        )
    if len(exact) > 1:
        where = " and ".join(str(i + 1) for i, _ in exact[:2])
        raise BadReply(f"the SEARCH text of edit {n} is found {len(exact)} times (lines {where}): give more lines")
    return *exact[0], search, replace


def _hits(lines: list[str], search: list[str]) -> list[tuple[int, int]]:
    """Each place of the lines, trailing blanks aside, and how far they stand to the right of the search text."""
    have, wanted = [line.strip() for line in lines], [line.strip() for line in search]
    hits = []
    for i in range(len(have) - len(wanted) + 1):
        if have[i] == wanted[0] and have[i : i + len(wanted)] == wanted:
            shifts = {_indent(a) - _indent(b) for a, b in zip(lines[i:], search, strict=False) if b.strip()}
            if len(shifts) == 1:
                hits.append((i, shifts.pop()))
    return hits


def _trimmed(lines: list[str]) -> list[str]:
    full = [i for i, line in enumerate(lines) if line.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def _indent(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def _shifted(line: str, shift: int) -> str:
    if shift == 0 or not line.strip():
        return line
    return " " * max(_indent(line) + shift, 0) + line.lstrip()
