"""What of one launch follows the rows of its group. Relies on nothing."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Turned:
    """What of one launch follows the rows."""

    prefix: str  # of the index; empty: of a template, which has none
    parameter: str  # "xnumel", "M"
    numel: int  # as Inductor wrote it
    whole: bool  # no mask: what a launch gets must be divided by its blocks
    axes: Mapping[str, tuple[int, int, int]]  # parameter -> axis, its size, and elements below it that are rows, too
    extent: int  # rows, in the smallest steps of any tensor
    grid: str = ""  # of a template, whose launch says it: on the rows

    @property
    def constant(self) -> str:
        """The parameter by which Triton is told the length: `XNUMEL`."""
        return self.parameter.upper()
