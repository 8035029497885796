"""What the interpreter lacks or models otherwise than the compiled code: it is said, and never a kernel's fault.

`Lacking` ends an interpretation that cannot go on; `otherwise` notes what was computed, but not as a GPU would.
"""


class Lacking(NotImplementedError):
    """The interpreter cannot run this, whatever a GPU does with it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not supported in interpreter mode")  # Triton's own words


class KernelFault(Exception):
    """What the interpreter saw a kernel do wrong: its verdict ("wrong" or "deadlock") and one line."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


_otherwise: set[str] = set()


def otherwise(what: str) -> None:
    """Notes something that was interpreted otherwise than the compiled code does it."""
    _otherwise.add(what)


def noted() -> list[str]:
    """What was noted since the last call, sorted."""
    notes = sorted(_otherwise)
    _otherwise.clear()
    return notes
