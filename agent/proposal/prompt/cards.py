"""Which cards of knowledge a prompt carries: those that answer what the profile found, in its order, and few.

`prompts/cards/NAME.j2` is a card. Where no defect stands out and nothing was timed, what the kernel is made of decides:
of a loop with dots, what such loops are usually held back by; of others, how memory is read. It reads no record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pgo_agent.agent.profile.findings import Defect

MOST = 3
HOPPER = 90
CARDS: Mapping[Defect, tuple[str, ...]] = {
    Defect.SPILL: ("registers",),
    Defect.SERIALIZED: ("wgmma_waits", "registers"),
    Defect.FEW_STAGES: ("tma", "epilogue"),
    Defect.UNCOALESCED: ("layouts", "tma"),
    Defect.NARROW: ("layouts", "tma"),
    Defect.CONVERSION: ("layouts",),
    Defect.BANK_CONFLICTS: ("layouts", "tma"),
    Defect.OCCUPANCY: ("registers",),
    Defect.TAIL: ("persistent",),
    Defect.COPY_WAIT: ("warp_specialization", "tma"),
    Defect.DOT_WAIT: ("wgmma_waits", "warp_specialization"),
    Defect.ARITHMETIC: ("softmax", "wgmma_waits"),
    Defect.EPILOGUE: ("epilogue", "persistent"),
    Defect.IMBALANCE: ("persistent", "warp_specialization"),
    Defect.MISSES: ("persistent",),
}
GLUON = frozenset({Defect.SERIALIZED, Defect.COPY_WAIT, Defect.DOT_WAIT, Defect.ARITHMETIC, Defect.IMBALANCE})
_ONLY_HOPPER = {"tma", "warp_specialization", "wgmma_waits"}


def chosen(defects: Sequence[Defect], statics: Iterable[Mapping[str, Any]], source: str, arch: int) -> tuple[str, ...]:
    """Names of cards. `defects`: what costs most first; `statics`: profiles of builds; `source`: the kernel."""
    exponential = "exp" in source
    turns = (CARDS[d][turn : turn + 1] for turn in (0, 1) for d in defects)  # the first of each defect, then the second
    wanted = [name for turn in turns for name in turn] or list(_usual(_dots(statics), exponential))
    fit = [n for n in dict.fromkeys(wanted) if arch == HOPPER or n not in _ONLY_HOPPER]
    return tuple(n for n in fit if n != "softmax" or exponential)[:MOST]


def asks_for_gluon(by_case: Iterable[Sequence[Defect]], statics: Iterable[Mapping[str, Any]], arch: int) -> bool:
    """Whether what costs most in some case is out of the reach of launch parameters and source: how copies and dots
    wait, or nothing that has a name."""
    cases = list(by_case) or [()]
    return arch == HOPPER and _dots(statics) and any(not found or GLUON & set(found[:MOST]) for found in cases)


def _usual(dots: bool, exponential: bool) -> Iterator[str]:
    yield from ("wgmma_waits", "warp_specialization") if dots else ("layouts",)
    if exponential and dots:
        yield "softmax"


def _dots(statics: Iterable[Mapping[str, Any]]) -> bool:
    return any(s.get("dots") for s in statics)
