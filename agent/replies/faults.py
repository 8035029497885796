"""What is wrong with a reply, in one short printable line, and how far one is read."""

LONGEST = 1_000_000  # characters of a reply
TOO_DEEP = "the code is nested too deeply"


class BadReply(ValueError):
    """What is wrong with a reply, in one short line."""


class Nothing(BadReply):
    """It proposes nothing at all: there is nothing to mend in it."""


def short(text: str, most: int = 100) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 3] + "..."
