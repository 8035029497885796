"""What a kernel does with the memory of its arguments, by its TTGIR."""

from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.dataflow import Flow
from pgo_agent.sandbox.ttgir.tokens import Unreadable


@dataclass(frozen=True)
class Uses:
    """Names of arguments."""

    stored: tuple[str, ...] | None  # that it may write through; None: the text has other pointers than that
    loaded: tuple[str, ...]  # that it surely reads through
    maybe_loaded: tuple[str, ...]  # that it may read through
    unordered: bool  # it adds floats to memory in any order


def of(ttgir: str, pointers: Sequence[str]) -> Uses | None:
    """Return what a text says; None where it cannot be read. `pointers`: arguments that are pointers or descriptors, in
    order."""
    try:
        values = Flow(reader.parse(ttgir))
    except Unreadable:
        return None
    unordered = any("fadd" in t.op.words for t in values.touches() if t.reads and t.writes)
    if values.pointers != len(pointers):
        return Uses(None, (), (), unordered)
    read = frozenset[int]().union(*(t.roots for t in values.touches() if t.reads))
    return Uses(
        tuple(pointers[i] for i in values.stored),
        tuple(pointers[i] for i in values.loaded),
        tuple(pointers[i] for i in values.reached(read)),
        unordered,
    )
