"""What a kernel does with the memory of its arguments, by its TTGIR."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.dataflow import ANYTHING, Flow
from pgo_agent.sandbox.ttgir.tokens import Unreadable

_FLOATS = re.compile(r"f(16|32|64)\b")


@dataclass(frozen=True)
class Uses:
    """Names of arguments."""

    stored: tuple[str, ...] | None  # that it may write through; None: the text has other pointers than that
    loaded: tuple[str, ...]  # that it surely reads through
    maybe_loaded: tuple[str, ...]  # that it may read through
    behind: bool  # whether it stores at addresses that were numbers: of tensors that another tensor holds, say
    unordered: bool  # its blocks add floats to memory in any order, by atomics or under a lock


def of(ttgir: str, pointers: Sequence[str]) -> Uses | None:
    """Return what a text says; None where it cannot be read. `pointers`: arguments that are pointers or descriptors, in
    order."""
    values = _flow(ttgir)
    return None if values is None else _uses(values, pointers)


def by_position(ttgir: str) -> Uses | None:
    """Return what `of` returns where the arguments' names are not known: pointers are called 0, 1, ... in order."""
    values = _flow(ttgir)
    return None if values is None else _uses(values, [str(i) for i in range(values.pointers)])


def _flow(ttgir: str) -> Flow | None:
    try:
        return Flow(reader.parse(ttgir))
    except Unreadable:
        return None


def _uses(values: Flow, pointers: Sequence[str]) -> Uses:
    unordered = any("fadd" in t.op.words for t in values.touches() if t.reads and t.writes) or _locked(values)
    if values.pointers != len(pointers):
        return Uses(None, (), (), False, unordered)
    stores = [t for t in values.touches() if t.writes]
    stored = frozenset[int]().union(*(t.roots - {ANYTHING} if t.numbered else t.roots for t in stores))
    read = frozenset[int]().union(*(t.roots for t in values.touches() if t.reads))
    return Uses(
        tuple(pointers[i] for i in values.reached(stored)),
        tuple(pointers[i] for i in values.loaded),
        tuple(pointers[i] for i in values.reached(read)),
        any(t.numbered for t in stores),
        unordered,
    )


def _locked(values: Flow) -> bool:
    """Whether floats are read and written back, next to one another, in a kernel that takes locks: whoever gets the
    lock first adds first."""
    touches = list(values.touches())
    if not any(t.op.name == "tt.atomic_cas" for t in touches):
        return False
    read = [t for t in touches if t.op.name == "tt.load" and any(_FLOATS.search(r) for r in t.op.result_types)]
    written = {(r, values.paths[id(t.op)]) for t in touches if t.op.name == "tt.store" for r in t.roots}
    return any((r, values.paths[id(t.op)]) in written for t in read for r in t.roots)
