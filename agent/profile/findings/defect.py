"""A finding: a known defect of a kernel, its figure, its source line and the pass that found it.

`EXPLAINS` lists the defects that can explain where the timeline shows time. It is knowledge, not evidence: a spill and
long dots in one kernel do not prove that one causes the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.kernel_profile import PassName


class Defect(StrEnum):
    """The known defects of kernels; each move names those that it fixes."""

    SPILL = "spill"
    SERIALIZED = "serialized dots"  # ptxas lets no wgmma run beside another
    SYNCHRONOUS = "dots without wgmma"  # though the device has it
    FEW_STAGES = "too few stages"  # copies do not run ahead of the dots
    UNCOALESCED = "uncoalesced access"
    NARROW = "narrow access"
    LITTLE = "little for a thread"  # the tile gives it less than one instruction can move
    CONVERTING = "converted operands"  # in the loop with the dots
    CONVERSION = "layout conversion"  # through shared memory, in a loop
    BANK_CONFLICTS = "bank conflicts"
    ATOMICS = "atomics"
    INDEXING = "index arithmetic"
    OCCUPANCY = "low occupancy"
    IN_FLIGHT = "few loads in flight"  # of a kernel that does little but load
    SMALL_GRID = "small grid"  # SMs that get no block at all
    TAIL = "tail wave"
    COPY_WAIT = "exposed copies"  # time in waits for copies from device memory
    DOT_WAIT = "exposed dots"  # time in waits for wgmma that nothing else fills
    ARITHMETIC = "arithmetic between dots"  # a softmax or another body that the dots wait for
    EPILOGUE = "epilogue"  # stores and what is behind the main loop
    IMBALANCE = "imbalance"  # blocks, or roles, that wait for the slowest
    TRAFFIC = "more traffic than needed"  # through device memory, of all kernels of a case together
    MISSES = "cache misses"  # of the L2, while device memory is busy


@dataclass(frozen=True)
class Finding(Record):
    """One defect."""

    defect: Defect
    figure: float  # what was counted of it
    unit: str
    line: int  # of the source; 0 for one of the whole kernel
    told: str  # a sentence with the figure in it
    found_by: PassName = PassName.STATIC
    share: float | None = None  # of the kernel's time that it takes, 0 to 1; None where its pass has no times


EXPLAINS: Mapping[Defect, tuple[Defect, ...]] = {  # where time goes -> causes, the usually costliest first
    Defect.COPY_WAIT: (
        Defect.SPILL,  # it goes through the same cache
        Defect.FEW_STAGES,
        Defect.UNCOALESCED,
        Defect.NARROW,
        Defect.LITTLE,
        Defect.CONVERSION,
        Defect.BANK_CONFLICTS,
        Defect.OCCUPANCY,
        Defect.IN_FLIGHT,
        Defect.MISSES,
    ),
    Defect.DOT_WAIT: (Defect.SPILL, Defect.SERIALIZED, Defect.SYNCHRONOUS),
    Defect.ARITHMETIC: (Defect.SPILL, Defect.CONVERTING, Defect.CONVERSION, Defect.BANK_CONFLICTS, Defect.INDEXING),
    Defect.EPILOGUE: (Defect.SPILL, Defect.UNCOALESCED, Defect.NARROW, Defect.ATOMICS),
}
