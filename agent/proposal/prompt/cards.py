"""Selects the few cards of knowledge for a prompt: those that answer the defects of the profile, in its order.

`prompts/cards/NAME.j2` is a card. Without a defect the kernel itself decides: a loop with dots gets the cards on the
usual limits of such loops, any other kernel those on device memory and layouts. It reads no record.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pgo_agent.agent.profile.findings import Defect

MOST = 3
HOPPER = 90
CARDS: Mapping[Defect, tuple[str, ...]] = {
    Defect.SPILL: ("registers",),
    Defect.SERIALIZED: ("wgmma_waits", "registers"),
    Defect.SYNCHRONOUS: ("wgmma_waits",),
    Defect.LITTLE: ("layouts", "memory_bound"),
    Defect.CONVERTING: ("layouts",),
    Defect.ATOMICS: ("epilogue",),
    Defect.INDEXING: ("tma",),
    Defect.IN_FLIGHT: ("memory_bound", "layouts"),
    Defect.SMALL_GRID: ("persistent", "memory_bound"),
    Defect.FEW_STAGES: ("tma", "epilogue"),
    Defect.UNCOALESCED: ("layouts", "tma"),
    Defect.NARROW: ("layouts", "tma"),
    Defect.CONVERSION: ("layouts",),
    Defect.BANK_CONFLICTS: ("layouts", "tma"),
    Defect.OCCUPANCY: ("registers", "memory_bound"),
    Defect.TAIL: ("persistent",),
    Defect.COPY_WAIT: ("warp_specialization", "tma"),
    Defect.DOT_WAIT: ("wgmma_waits", "warp_specialization"),
    Defect.ARITHMETIC: ("softmax", "wgmma_waits"),
    Defect.EPILOGUE: ("epilogue", "persistent"),
    Defect.IMBALANCE: ("persistent", "warp_specialization"),
    Defect.TRAFFIC: ("persistent", "memory_bound"),
    Defect.MISSES: ("persistent",),
}
GLUON = frozenset({Defect.SERIALIZED, Defect.COPY_WAIT, Defect.DOT_WAIT, Defect.ARITHMETIC, Defect.IMBALANCE})
_WITHOUT_DOTS = "memory_bound"
_EXPONENTIAL = re.compile(r"\bexp2?\b")  # not constexpr
_ONLY_HOPPER = {"tma", "warp_specialization", "wgmma_waits"}


def chosen(defects: Sequence[Defect], statics: Iterable[Mapping[str, Any]], source: str, arch: int) -> tuple[str, ...]:
    """Return names of cards. `defects`: the costliest first; `statics`: static profiles of builds; `source`: the
    kernel."""
    exponential, dots = bool(_EXPONENTIAL.search(source)), _dots(statics)
    turns = (CARDS[d][turn : turn + 1] for turn in (0, 1) for d in defects)  # the first of each defect, then the second
    wanted = [name for turn in turns for name in turn] or list(_usual(dots, exponential))
    fit = [n for n in dict.fromkeys(wanted) if arch == HOPPER or n not in _ONLY_HOPPER]
    return tuple(n for n in fit if (n != "softmax" or exponential) and not (dots and n == _WITHOUT_DOTS))[:MOST]


def asks_for_gluon(by_case: Iterable[Sequence[Defect]], statics: Iterable[Mapping[str, Any]], arch: int) -> bool:
    """Whether the costliest defect of some case cannot be fixed by launch parameters or Triton source: waits of copies
    and dots, or no known defect."""
    cases = list(by_case) or [()]
    return arch == HOPPER and _dots(statics) and any(not defects or GLUON & set(defects[:MOST]) for defects in cases)


def _usual(dots: bool, exponential: bool) -> Iterator[str]:
    yield from ("wgmma_waits", "warp_specialization") if dots else (_WITHOUT_DOTS, "layouts")
    if exponential and dots:
        yield "softmax"


def _dots(statics: Iterable[Mapping[str, Any]]) -> bool:
    return any(s.get("dots") for s in statics)
