"""Reads a unified diff as edits: the lines of each hunk before and after. Line numbers and file names are ignored."""

import re

from pgo_agent.agent.llm.replies.errors import BadReply
from pgo_agent.agent.llm.replies.search_replace import Edit

_HUNK = re.compile(r"^@@(?:[ -].*)?$", re.M)
_BETWEEN = ("--- ", "+++ ", "diff ", "index ", "\\")


def is_diff(text: str) -> bool:
    return _HUNK.search(text) is not None


def read(text: str) -> list[Edit]:
    """Return the edits of a diff. Raises BadReply for a hunk without context lines."""
    edits: list[Edit] = []
    for n, hunk in enumerate(_HUNK.split(text)[1:], 1):
        body = [line for line in hunk.strip("\n").split("\n") if not line.startswith(_BETWEEN)]
        before = [line[1:] for line in body if not line.startswith("+")]
        after = [line[1:] for line in body if not line.startswith("-")]
        if not any(line.strip() for line in before):
            raise BadReply(f"hunk {n} of the diff has no lines around what it adds: give edits instead")
        edits.append((before, after))
    if not edits:
        raise BadReply("the diff has no hunk that begins with @@: give edits instead")
    return edits
