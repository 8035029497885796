"""Advice on how to fix a defect, for a model or a person. Quoted are names of embedded moves.

It is general knowledge about GPUs, not evidence: nothing was measured on the kernel at hand, so it quotes none of it.
Ways that only a kernel with dots has are not told to others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.profile.findings import Defect

NEAR_THE_ROOF = "The roof is near: what is left is worth little, whatever comes first below."

NEEDS_DOTS = ("load through tensor descriptors", "specialize warps", "test before the loop", "more stages")


@dataclass(frozen=True)
class Advice:
    """What to do against a defect, and ways to do it, of which some are for kernels with dots alone."""

    aim: str
    ways: tuple[str, ...] = ()
    without_dots: tuple[str, ...] = ()  # for kernels that can take none of the ways

    def __str__(self) -> str:
        return self.text(dots=True)

    def text(self, dots: bool) -> str:
        """Return a sentence with the ways that a kernel with or without dots can take."""
        ways = [w for w in self.ways if dots or not any(n in w for n in NEEDS_DOTS)] or self.without_dots
        listed = f"{', '.join(ways[:-1])}, or {ways[-1]}" if len(ways) > 1 else "".join(ways)
        return f"{self.aim}: {listed}." if listed else f"{self.aim}."


_TMA, _ALIGN = "'load through tensor descriptors'", "'align rows, load through tensor descriptors'"
_SPECIALIZE, _PERSISTENT, _LARGER = "'specialize warps'", "'persistent grid'", "a larger tile"

ADVICE: Mapping[Defect, Advice] = {
    Defect.SPILL: Advice(
        "Let a thread hold less", ("more warps", "a smaller tile", "fewer values that live through the loop")
    ),
    Defect.SERIALIZED: Advice(
        "Let the accumulator stay in registers from one dot to the next",
        ("'test before the loop'", _PERSISTENT, "more warps", "a smaller tile"),
    ),
    Defect.SYNCHRONOUS: Advice(
        "Let four warps share each dot", (f"{_LARGER} of 64 rows or more", "more warps", "operands in a type of wgmma")
    ),
    Defect.FEW_STAGES: Advice("Let copies run ahead of the dots", ("more stages", _TMA)),
    Defect.UNCOALESCED: Advice(
        "Let neighbouring lanes read neighbouring elements", ("another order of the tile's dimensions", _TMA)
    ),
    Defect.NARROW: Advice(
        "Let a thread move more at a time", ("aligned bases and strides that the compiler can prove", _ALIGN)
    ),
    Defect.LITTLE: Advice("Give a thread more of each tile", (_LARGER, "fewer warps", "more rows for a program")),
    Defect.CONVERTING: Advice(
        "Convert less often", ("operands that go into the dot as they are stored", "a conversion before the loop")
    ),
    Defect.CONVERSION: Advice(
        "Keep one layout through the loop", ("transpose outside of it", "transpose the other operand")
    ),
    Defect.BANK_CONFLICTS: Advice(
        "Change how the tile lies in shared memory", ("a swizzled or padded layout", "another tile shape", _TMA)
    ),
    Defect.ATOMICS: Advice(
        "Add up within a program first", (_LARGER, "a second kernel that adds what the first stored")
    ),
    Defect.INDEXING: Advice(
        "Compute indices once", ("before the loop", "sizes that the compiler knows", "masks only at the end", _TMA)
    ),
    Defect.OCCUPANCY: Advice(
        "Let an SM hold more warps", ("a smaller tile", "less shared memory", "'ptxas: fewer registers'")
    ),
    Defect.IN_FLIGHT: Advice(
        "Have more loads under way",
        ("loads of the next rows before the present ones are used", _LARGER, "more programs"),
    ),
    Defect.SMALL_GRID: Advice("Give every SM a block", ("a smaller tile", "the reduced dimension split among blocks")),
    Defect.TAIL: Advice("Fill the last wave", (_PERSISTENT, "tiles of another size")),
    Defect.COPY_WAIT: Advice(
        "Let copies run further ahead", ("more stages", _TMA, _SPECIALIZE), ("more bytes in flight for each thread",)
    ),
    Defect.DOT_WAIT: Advice("Give warps work while dots run", (_SPECIALIZE, _LARGER)),
    Defect.ARITHMETIC: Advice(
        "Run arithmetic beside the dots, or make it cheaper: exponentials in base 2 with log2(e) in the scale, "
        "masks only where a block needs one"
    ),
    Defect.EPILOGUE: Advice("Store while the next tile is computed", (_PERSISTENT,)),
    Defect.IMBALANCE: Advice("Hand out work evenly", ("the longest blocks first", _PERSISTENT)),
    Defect.TRAFFIC: Advice(
        "Move each byte once",
        (
            "kernels that share data in one",
            "a row that stays in registers between its passes",
            "smaller types between kernels",
        ),
    ),
    Defect.MISSES: Advice("Let blocks that run at a time share tiles", ("another order of the blocks",)),
}
