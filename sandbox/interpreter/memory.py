"""Loads, stores and atomics of Triton's interpreter: only inside of tensors, with undefined values in masked-off lanes.

Every address is looked up among the launcher's storages and inputs; an address outside is a fault, reported with the
distance to the nearest. Lanes that a load masks off without `other` hold NaN and large numbers, or ones on request, so
that two runs can be compared. Pointers may come from anywhere. Relies on Triton 3.6 to 3.9, whose interpreter loses an
`other` of zero where the pointer is a scalar (it asks for the truth of its value): `_note_other` keeps it.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
from pgo_agent.sandbox.interpreter import arithmetic, floats
from pgo_agent.sandbox.interpreter.blocks import Blocks
from pgo_agent.sandbox.interpreter.unsupported import KernelFault, Lacking
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Array = Any  # numpy array
LARGE = 3.0e4  # finite in every type that is wider than fp8
_RMW = ir.ATOMIC_OP
_OPS: dict[Any, Any] = {
    _RMW.ADD: np.add, _RMW.FADD: np.add, _RMW.AND: np.bitwise_and, _RMW.OR: np.bitwise_or, _RMW.XOR: np.bitwise_xor,
    _RMW.MAX: np.maximum, _RMW.UMAX: np.maximum, _RMW.MIN: np.minimum, _RMW.UMIN: np.minimum,
    _RMW.XCHG: lambda _old, new: new,
}  # fmt: skip


class Memory:
    """The storages that a kernel may access, with checks of its accesses."""

    def __init__(self, blocks: Blocks, file: str) -> None:
        self.blocks, self.file = blocks, file
        self._storages: dict[int, tuple[int, Any]] = {}  # address -> bytes, owner
        self._names: dict[int, str] = {}
        self._starts: list[int] | None = None
        self.begin()

    def begin(self, ones: bool = False) -> None:
        """Reset the state before a launcher is called. `ones`: masked-off lanes hold ones."""
        self.ones, self.undefined = ones, 0
        self._zero_given = False  # whether the load that is being built has an `other`
        self._random = np.random.default_rng(7)

    def forget(self) -> None:
        """Forget all storages."""
        self._storages, self._names, self._starts = {}, {}, None

    def know(self, storage: Any, name: str = "") -> None:
        """Note a storage that kernels may access."""
        if not storage.nbytes():
            return
        if self._storages.get(storage.data_ptr(), (0, None))[0] < storage.nbytes():
            self._storages[storage.data_ptr()] = storage.nbytes(), storage
            self._starts = None
        if name:
            self._names[storage.data_ptr()] = name

    def reach(self, pointers: Array, mask: Array, size: int, verb: str) -> None:
        """Raise KernelFault when an access of `size` bytes lies outside of every storage."""
        used = pointers.reshape(-1) if mask.all() else pointers[mask]
        if not used.size or self._inside(int(used.min()), int(used.max()) + size):
            return
        starts = np.array(self._starts, dtype=np.uint64)
        ends = np.array([s + self._storages[s][0] for s in self._starts or ()], dtype=np.uint64)
        at = np.searchsorted(starts, used, side="right").astype(np.int64) - 1
        outside = (at < 0) | (used + np.uint64(size) > ends[np.maximum(at, 0)] if len(ends) else True)
        if outside.any():
            raise KernelFault("wrong", f"{verb} {self._place(int(used[np.argmax(outside)]), size)}")

    def _inside(self, low: int, high: int) -> bool:
        """Whether the bytes from `low` to `high` are in one storage."""
        if self._starts is None:
            self._starts = sorted(self._storages)
        at = bisect_right(self._starts, low) - 1
        return at >= 0 and high <= self._starts[at] + self._storages[self._starts[at]][0]

    def _place(self, address: int, size: int) -> str:
        """Describe an access by the nearest storage."""
        if not self._storages:
            return "an address that no tensor has"

        def away(start: int) -> int:
            return start - address if address < start else address + size - start - self._storages[start][0]

        start = min(self._storages, key=lambda s: (away(s), s not in self._names))
        name = self._names.get(start, "a tensor of the launcher's")
        return f"{away(start)} bytes {'before' if address < start else 'past the end of'} {name}"

    def other(self, shape: tuple[int, ...], mask: Array, kind: Any) -> Any:
        """Return the values of lanes that are masked off without `other`."""
        dtype = interpreter._get_np_dtype(kind)
        if mask.all() or self.ones:
            plain = np.ones(shape, dtype=dtype)
            narrow = hasattr(kind, "is_floating") and floats.narrow(kind)
            return TensorHandle(floats.bits(np.ones(shape, np.float32), kind) if narrow else plain, kind)
        self.undefined = self.undefined or self._line()
        if hasattr(kind, "is_floating") and kind.is_floating():
            some = self._random.choice(np.array([np.nan, LARGE, -LARGE], dtype=np.float32), shape)
            data = floats.bits(some, kind) if floats.narrow(kind) else some.astype(dtype)
            return TensorHandle(data, kind)
        raw = self._random.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
        return TensorHandle(raw % 2 == 1 if dtype == np.bool_ else raw.view(dtype)[..., 0], kind)

    def _line(self) -> int:
        frame: Any = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0

    def install(self) -> None:
        """Replace the builder's methods. Call it before a candidate is imported."""
        memory = self

        def load(_builder: Any, ptrs: Any, mask: Any, other: Any, *_how: Any, **_more: Any) -> Any:
            kind, mask = ptrs.get_element_ty(), _mask(ptrs, mask)
            dtype = interpreter._get_np_dtype(kind)
            memory.reach(ptrs.data, mask, dtype.itemsize, "reads")
            if other is None:
                other = _zeros(ptrs, kind) if memory._zero_given else memory.other(ptrs.data.shape, mask, kind)
            values = native.load(ptrs.data, mask, np.broadcast_to(other.data, ptrs.data.shape), dtype)
            memory.blocks.read("load", ptrs.data, values)
            return TensorHandle(values, kind)

        def store(_builder: Any, ptrs: Any, value: Any, mask: Any, *_how: Any, **_more: Any) -> None:
            mask = _mask(ptrs, mask)
            memory.reach(ptrs.data, mask, value.data.dtype.itemsize, "writes")
            memory.blocks.changed()
            native.store(ptrs.data, value.data, mask)

        def rmw(_builder: Any, op: Any, ptr: Any, value: Any, mask: Any, *_how: Any) -> Any:
            return memory.updated(op, ptr, value, _mask(ptr, mask))

        def cas(_builder: Any, ptr: Any, compare: Any, value: Any, *_how: Any) -> Any:
            memory.reach(ptr.data, np.ones(ptr.data.shape, dtype=bool), value.data.dtype.itemsize, "updates")
            sem = native.MEM_SEMANTIC.ACQUIRE_RELEASE
            old = native.atomic_cas(ptr.data, compare.data, value.data, sem)
            hit = (old == compare.data) & (old != value.data)
            memory.blocks.changed() if hit.any() else memory.blocks.read("cas", ptr.data, old)
            return TensorHandle(old, compare.dtype.scalar)

        def reduce(_builder: Any, kind: Any, desc: Any, value: Any, indices: Any) -> None:
            if kind.name not in ("ADD", "MIN", "MAX", "AND", "OR", "XOR"):
                raise Lacking(f"a descriptor's atomic {kind.name.lower()}")
            ptrs, mask = desc.materialize_pointers(indices)
            memory.updated(getattr(_RMW, kind.name), ptrs, value, _mask(ptrs, mask))

        self._note_other()
        InterpreterBuilder.create_masked_load = load
        InterpreterBuilder.create_masked_store = store
        InterpreterBuilder.create_atomic_rmw = rmw
        InterpreterBuilder.create_atomic_cas = cas
        InterpreterBuilder.create_descriptor_reduce = reduce

    def _note_other(self) -> None:
        """Note of each load that is being built whether it has an `other`."""
        memory, build = self, TritonSemantic.load

        def load(semantic: Any, ptr: Any, mask: Any, other: Any, *how: Any) -> Any:
            memory._zero_given = other is not None
            try:
                return build(semantic, ptr, mask, other, *how)
            finally:
                memory._zero_given = False

        TritonSemantic.load = load

    def updated(self, op: Any, ptr: Any, value: Any, mask: Array) -> Any:
        """Execute an atomic lane by lane; return the old values, 0 for masked-off lanes."""
        kind, dtype = value.dtype.scalar, value.data.dtype
        self.reach(ptr.data, mask, dtype.itemsize, "updates")
        old, changed = np.zeros_like(value.data), False
        for lanes in _distinct(ptr.data, mask):
            before = native.load(ptr.data, lanes, old, dtype)
            new = _OPS[op](floats.numbers(before, kind), floats.numbers(value.data, kind))
            new = arithmetic.handle(new, kind).data.astype(dtype, copy=False)
            native.store(ptr.data, new, lanes)
            old = before
            changed = changed or bool((new != before)[lanes].any())
        self.blocks.changed() if changed else self.blocks.read("rmw", ptr.data, old)
        return TensorHandle(old, kind)


def _distinct(pointers: Array, mask: Array) -> Iterator[Array]:
    """Give masks of lanes with different addresses: lanes of one address take turns."""
    left = mask.copy()
    while left.any():
        places = np.flatnonzero(left)
        _, first = np.unique(pointers.reshape(-1)[places], return_index=True)
        turn = np.zeros(left.size, dtype=bool)
        turn[places[first]] = True
        yield turn.reshape(left.shape)
        left &= ~turn.reshape(left.shape)


def _zeros(ptrs: Any, kind: Any) -> Any:
    return TensorHandle(np.zeros(ptrs.data.shape, dtype=interpreter._get_np_dtype(kind)), kind)


def _mask(ptrs: Any, mask: Any) -> Array:
    """Return a mask as an array: Triton's interpreter has arrays for descriptors, else handles."""
    return np.broadcast_to(np.asarray(mask if isinstance(mask, np.ndarray) else mask.data), ptrs.data.shape)
