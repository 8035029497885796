"""What the interpreter lacks or computes otherwise than compiled code: it is reported, and never a kernel's fault.

`Lacking` ends a run that cannot go on; `otherwise` notes what was computed, but not as on a GPU.
"""


class Lacking(NotImplementedError):
    """The interpreter cannot run this, whatever a GPU does with it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not supported in interpreter mode")  # Triton's own words


class KernelFault(Exception):
    """The interpreter found a kernel at fault: the verdict ("wrong" or "deadlock") and one line."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


_otherwise: set[str] = set()


def otherwise(what: str) -> None:
    """Note something that compiled code computes otherwise."""
    _otherwise.add(what)


def noted() -> list[str]:
    """Return the notes since the last call, sorted, and clear them."""
    notes = sorted(_otherwise)
    _otherwise.clear()
    return notes
