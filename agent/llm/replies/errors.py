"""The faults of a reply, each as one short printable line, and the limit of its length."""

from pgo_agent.agent import text as printable

LONGEST = 1_000_000  # characters of a reply
TOO_DEEP = "the code is nested too deeply"


class BadReply(ValueError):
    """A reply, or a part of one, cannot be used; the message is one short line."""


class Nothing(BadReply):
    """It proposes nothing at all, so there is nothing to repair."""


def short(text: str, most: int | None = 100) -> str:
    return printable.line(text, most)
