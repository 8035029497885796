"""Advice on how to fix a defect, for a model or a person. Quoted are names of embedded moves.

It is general knowledge about GPUs, not evidence: nothing was measured on the kernel at hand, so it holds no number.
"""

from collections.abc import Mapping

from pgo_agent.agent.profile.findings import Defect

NEAR_THE_ROOF = "The roof is near: what is left is worth little, whatever comes first below."

ADVICE: Mapping[Defect, str] = {
    Defect.SPILL: "Let a thread hold less: more warps, a smaller tile, or fewer values that live through the loop.",
    Defect.SERIALIZED: (
        "Let the accumulator stay in registers from one dot to the next: 'test before the loop', "
        "'persistent grid', more warps or a smaller tile."
    ),
    Defect.FEW_STAGES: "Let copies run ahead of the dots: more stages, or 'load through tensor descriptors'.",
    Defect.UNCOALESCED: (
        "Let neighbouring lanes read neighbouring elements: another order of the tile's dimensions, "
        "or 'load through tensor descriptors'."
    ),
    Defect.NARROW: (
        "Let a thread move more at a time: aligned bases and strides that the compiler can prove, "
        "or 'align rows, load through tensor descriptors'."
    ),
    Defect.CONVERSION: "Keep one layout through the loop: transpose outside of it, or transpose the other operand.",
    Defect.BANK_CONFLICTS: (
        "Change how the tile lies in shared memory: a swizzled or padded layout, another tile shape, "
        "or 'load through tensor descriptors'."
    ),
    Defect.OCCUPANCY: "Let an SM hold more warps: a smaller tile, less shared memory, or 'ptxas: fewer registers'.",
    Defect.TAIL: "Fill the last wave: 'persistent grid', or tiles of another size.",
    Defect.COPY_WAIT: (
        "Let copies run further ahead: more stages, 'load through tensor descriptors', or 'specialize warps'."
    ),
    Defect.DOT_WAIT: "Give warps work while dots run: 'specialize warps', or a larger tile.",
    Defect.ARITHMETIC: (
        "Run arithmetic beside the dots, or make it cheaper: exponentials in base 2 with log2(e) in the scale, masks "
        "only where a block needs one."
    ),
    Defect.EPILOGUE: "Store while the next tile is computed: 'persistent grid'.",
    Defect.IMBALANCE: "Hand out work evenly: the longest blocks first, or 'persistent grid'.",
    Defect.MISSES: "Let blocks that run at a time share tiles: another order of the blocks.",
}
