"""Text that is hostile, as one line or as what a terminal may print.

What models may know of a verdict's reason is `sandbox/gate/reason.py`'s, of source `kernel_part.py`'s.
"""


def visible(text: str) -> str:
    """The text with nothing in it that a terminal would obey: such characters are written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def line(text: str, most: int | None = 400) -> str:
    """The text as one printable line of at most so many characters; None: of all that it has."""
    one = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return one if most is None or len(one) <= most else one[: most - 3] + "..."
