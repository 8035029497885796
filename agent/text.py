"""Makes hostile text safe: as one line, or as text that a terminal may print.

What models may see of a verdict's reason is in `sandbox/gate/reason.py`, of source in `kernel_part.py`.
"""


def visible(text: str) -> str:
    """Return the text without control characters: they are written as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def line(text: str, most: int | None = 400) -> str:
    """Return the text as one printable line of at most `most` characters; None: no limit."""
    printable = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return printable if most is None or len(printable) <= most else printable[: most - 3] + "..."


def quoted(text: str) -> str:
    """Return one line of somebody's words between double quotes, which then stand nowhere in it."""
    return '"' + text.replace('"', "'") + '"'
