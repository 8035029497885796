"""What is wrong with a reply, in one short printable line, and how far one is read."""

from pgo_agent.agent import text as printable

LONGEST = 1_000_000  # characters of a reply
TOO_DEEP = "the code is nested too deeply"


class BadReply(ValueError):
    """What is wrong with a reply, in one short line."""


class Nothing(BadReply):
    """It proposes nothing at all: there is nothing to mend in it."""


def short(text: str, most: int | None = 100) -> str:
    return printable.line(text, most)
