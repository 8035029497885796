"""What a TTGIR text itself says of cost: loops, conversions between layouts, how wide its memory accesses can be.

Relies on `ttgir.reader`. Of an address it knows what the compiler proved and wrote into the layout of the pointers: a
thread's elements that lie side by side. What it did not prove may still lie side by side at run time.
"""

import math
import re
from dataclasses import dataclass

from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.tree import Module, Op
from pgo_agent.sandbox.ttgir.types import Shaped

LOOPS = ("scf.for", "scf.while")
SECTOR_BYTES = 32  # that device memory is moved in (CUDA best practices guide, "Coalesced Access to Global Memory")
WIDEST_BYTES = 16  # of one thread's access, before Blackwell
_POINTEE = re.compile(r"!tt\.ptr<(\w+)")
_LIST = re.compile(r"(\w+) = \[([0-9, ]*)\]")
_ARGUMENT = re.compile(r"%(\w+): (!tt\.ptr<\w+>|i32|i64)( \{[^}]*\})?")
_POINTER_OPS = ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "ttg.async_copy_global_to_local")


@dataclass(frozen=True)
class Span:
    """The lines of a loop, from its first to its closing brace."""

    first: int
    last: int

    def __contains__(self, line: int) -> bool:
        return self.first <= line <= self.last


@dataclass(frozen=True)
class Conversion:
    """One ttg.convert_layout."""

    line: int
    bytes: int  # of the whole tensor, for a block


@dataclass(frozen=True)
class Memory:
    """One access of device memory, of a block."""

    line: int
    op: str
    bytes: int  # of the whole tile
    element_bytes: int
    bulk: bool  # a TMA copy: the hardware makes the addresses
    thread_run: int | None  # bytes side by side that the compiler proved for a thread; None for other layouts
    warp_run: int | None  # bytes side by side of a warp, where lanes follow one another there; None: they do not


def spans(module: Module) -> tuple[Span, ...]:
    """Return all loops, in the order of the text."""
    loops = (op for op in module.walk() if op.name in LOOPS)
    return tuple(Span(op.line, op.line + str(op).strip().count("\n")) for op in loops)


def around(line: int, loops: tuple[Span, ...]) -> int:
    """Return the first line of the innermost loop around a line; 0 outside of any."""
    inside = [s for s in loops if line in s]
    return min(inside, key=lambda s: s.last - s.first).first if inside else 0


def conversions(module: Module) -> tuple[Conversion, ...]:
    """Return all conversions between layouts, in the order of the text."""
    ops = (op for op in module.walk() if op.name == "ttg.convert_layout")
    tensors = ((op.line, types.shaped(op.result_types[0])) for op in ops if op.result_types)
    return tuple(Conversion(line, tensor.bytes) for line, tensor in tensors if tensor)


def accesses(module: Module) -> tuple[Memory, ...]:
    """Return all loads, stores, atomics and copies from or to device memory, in the order of the text."""
    return tuple(m for op in module.walk() if (m := _memory(op, module)))


def requested_registers(module: Module) -> tuple[int, ...]:
    """Return the registers of a thread that the roles of specialized warps ask for, but for the default role."""
    texts = (op.attributes.get("requestedRegisters", "") for op in module.walk() if op.name == "ttg.warp_specialize")
    return tuple(int(n) for text in texts for n in re.findall(r"\d+", text.partition(":")[2]))


def unproven(module: Module) -> tuple[str, ...]:
    """Return the kernel's pointers and integers of which the compiler does not know that 16 divides them."""
    head = str(module.kernel.parts[0])
    return tuple(name for name, _, attributes in _ARGUMENT.findall(head) if "tt.divisibility" not in attributes)


def _memory(op: Op, module: Module) -> Memory | None:
    if "async_tma" in op.name and "wait" not in op.name:
        tile = next((s for t in op.operand_types if (s := _memdesc(t)) and s.element != "i64"), None)
        size = types.bits(tile.element) // 8 if tile else 0
        return Memory(op.line, op.name, tile.bytes if tile else 0, size, True, None, None)
    pointers = types.shaped(op.operand_types[0]) if op.name in _POINTER_OPS and op.operand_types else None
    pointee = _POINTEE.search(pointers.element) if pointers else None
    if pointers is None or pointee is None:
        return None
    size = max(types.bits(pointee[1]) // 8, 1)
    thread, warp = _runs(pointers, module.aliases.get(pointers.encoding[0], pointers.encoding[0]))
    runs = (None if run is None else run * size for run in (thread, warp))
    return Memory(op.line, op.name, math.prod(pointers.shape) * size, size, False, *runs)


def _memdesc(text: str) -> Shaped | None:
    return types.shaped(text if "memdesc" in text or "tensor" in text else f"!ttg.memdesc{text}")


def _runs(pointers: Shaped, layout: str) -> tuple[int | None, int | None]:
    """Elements side by side of a thread, and of a warp's lanes, along the fastest dimension of a blocked layout.

    A warp whose lanes all take one element, as of a scalar for each row, has no such lanes: that is one request.
    """
    if not layout.startswith("#ttg.blocked"):
        return None, None
    lists = {name: [int(n) for n in text.split(",")] for name, text in _LIST.findall(layout)}
    try:
        fastest = lists["order"][0]
        thread = min(lists["sizePerThread"][fastest], pointers.shape[fastest])
        reach = [a * b for a, b in zip(lists["sizePerThread"], lists["threadsPerWarp"], strict=True)]
        if math.prod(map(min, reach, pointers.shape)) == 1:
            return thread, None
        return thread, min(thread * lists["threadsPerWarp"][fastest], pointers.shape[fastest])
    except (KeyError, IndexError, ValueError):
        return None, None
