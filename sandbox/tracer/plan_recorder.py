"""Records what a launcher does on fake tensors as a plan of plain values: storages, torch ops, kernel launches.

A tensor is written down as (storage, type, size, stride, offset), taken at the moment of use, so views keep their
aliasing. The forms are those of `sandbox/bundle/schema.py`; what does not fit them is refused with the line.
"""

from collections.abc import Iterable
from typing import Any

import torch
import triton.language as tl
from pgo_agent.sandbox.bundle.schema import MOST_STEPS
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.tracer import custom_ops
from pgo_agent.sandbox.tracer.fake_addresses import Addresses
from pgo_agent.sandbox.tracer.fake_cuda_api import Refusals
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_aten = torch.ops.aten
_VALUES = {_aten._local_scalar_dense.default, _aten.nonzero.default, _aten.is_nonzero.default}
_ALLOCATIONS = {
    "aten.empty.memory_format",
    "aten.empty_strided.default",
    "aten.empty_like.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
}
_LITERAL_LIMIT = 65536  # numbers that a torch.tensor([...]) may carry into a plan


def _tensors(tree: Any) -> list[Any]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _address_of(a: Any) -> Any:
    """Return the address that an argument of a launch says, as Triton asks for it; None where it says none."""
    asked = getattr(a, "data_ptr", None)
    return asked() if callable(asked) else None


class Recorder(TorchDispatchMode):
    """Enter it around a launcher call; `storages`, `steps` and the encoders hold the plan."""

    def __init__(self, refusals: Refusals, addresses: Addresses) -> None:
        super().__init__()
        self.refusals, self.addresses = refusals, addresses
        self.reset()

    def reset(self) -> None:
        self.storages: list[JsonObject] = []
        self.steps: list[JsonObject] = []
        self._index: dict[int, int] = {}
        self._literals: dict[int, Any] = {}
        self._changed: set[int] = set()  # storages of host tensors that an op wrote to
        self._keep: list[Any] = []

    # tensors and scalars ----------------------------------------------------------------------------------------------

    def storage(self, t: Any, kind: str | None) -> int:
        key = t.untyped_storage()._cdata
        if key not in self._index:
            if kind is None:
                self.refusals.refuse("a tensor that this call neither received nor made (kept from an earlier call)")
            self._index[key] = len(self.storages)
            self._keep.append(t)
            self.storages.append({"kind": kind, "nbytes": t.untyped_storage().nbytes()})
        return self._index[key]

    def ref(self, t: Any, kind: str | None = None) -> JsonObject:
        if id(t) in self._literals:
            return self._literal(t)
        if t.device.type != "cuda":
            self.refusals.refuse(f"a {t.device.type} tensor {tuple(t.shape)} reaches a launch or an op")
        return {
            "t": self.storage(t, kind),
            "dtype": str(t.dtype)[6:],
            "size": list(t.shape),
            "stride": list(t.stride()),
            "offset": t.storage_offset(),
        }

    def _literal(self, t: Any) -> JsonObject:
        if t.untyped_storage()._cdata in self._changed:
            self.refusals.refuse("a host tensor that was changed after it was made")
        with no_dispatch():
            values = self._literals[id(t)].flatten().tolist()
        return {"literal": [self.encode(v) for v in values], "size": list(t.shape), "dtype": str(t.dtype)[6:]}

    def encode(self, a: Any, kind: str | None = None) -> Any:
        """Return a plan's form of an argument. Refuses what has none. `kind`: what storages seen first are."""
        if isinstance(a, torch.Tensor):
            return self.ref(a, kind)
        if self.addresses.contains(a):
            storage, byte = self._place(a)
            return {"address": storage, "byte": byte}
        if a is None or isinstance(a, bool | int | str):
            return a
        if isinstance(a, float):
            return {"f": a.hex()}  # inf, nan and every bit kept
        if isinstance(a, torch.dtype | torch.layout | torch.memory_format):
            return {"torch": str(a)[6:]}
        if isinstance(a, torch.device):
            return {"device": a.type}
        if isinstance(a, list | tuple):
            return [self.encode(x, kind) for x in a]
        if isinstance(a, tl.constexpr):
            return self.encode(a.value)
        if hasattr(a, "block_shape") and hasattr(a, "base"):
            return self._descriptor(a)
        if self.addresses.contains(address := _address_of(a)):
            return self._wrapped(a, address)
        return self.refusals.refuse(f"an argument of type {type(a).__name__}")

    def _place(self, n: int) -> tuple[int, int]:
        """Return the storage that an address lies in, by its index, and the byte of it. Refuses any other address."""
        storage, byte = self.addresses.found(n)
        if storage._cdata not in self._index:
            self.refusals.refuse("the address of a tensor that this call neither received nor made")
        if byte > storage.nbytes():
            self.refusals.refuse("an address behind the end of a tensor")
        return self._index[storage._cdata], byte

    def _wrapped(self, a: Any, address: int) -> JsonObject:
        """Return what a launch is given that is no tensor, and says where one lies: `triton.reinterpret(x, type)`."""
        dtype = a.dtype if isinstance(a.dtype, torch.dtype) else torch.uint8
        storage, byte = self._place(address)
        if byte % dtype.itemsize:
            self.refusals.refuse(f"an argument of type {type(a).__name__} that begins within an element")
        count = (self.addresses.found(address)[0].nbytes() - byte) // dtype.itemsize
        offset = byte // dtype.itemsize
        return {"t": storage, "dtype": str(dtype)[6:], "size": [count], "stride": [1], "offset": offset}

    def _descriptor(self, a: Any) -> JsonObject:
        return {
            "desc": self.ref(a.base),
            "shape": list(a.shape),
            "strides": list(a.strides),
            "block": list(a.block_shape),
            "padding": str(getattr(a, "padding", "zero")),
            "tf32": bool(getattr(a, "round_f32_to_tf32", False)),
        }

    # torch ops --------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if name.startswith("prim."):  # a question about a tensor (its device), not work
            return func(*args, **kwargs)
        if func.namespace not in ("aten", "prims"):
            return self._custom_op(func, args, kwargs)
        if func in _VALUES:
            self.refusals.refuse(f"the value of a tensor is needed on the host ({name})")
        try:
            out = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            self.refusals.refuse(f"the value of a tensor is needed on the host ({name})")
        self._note(func, name, args, kwargs, out)
        return out

    def _custom_op(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a custom op's real body: its fake rule would hide the launches inside."""
        body = custom_ops.body(func)
        if body is None:
            self.refusals.refuse(f"the custom op {func}")
        with self:
            return body(*args, **kwargs)

    def _note(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        outs, ins = _tensors(out), _tensors((args, kwargs))
        if func is _aten.lift_fresh.default and self._is_literal(args[0]):
            self._literals[id(out)] = args[0]
            self._keep.append(out)
            return
        if func._schema.is_mutable:
            self._changed |= {t.untyped_storage()._cdata for t in ins if t.device.type == "cpu"}
        if not any(t.device.type == "cuda" for t in ins + outs) or self._is_view(func, ins, outs):
            return
        if name in _ALLOCATIONS:
            self._storages(outs, "buffer")
            return
        step = {"op": name, "args": self.encode(list(args)), "kwargs": {k: self.encode(v) for k, v in kwargs.items()}}
        self._storages(outs, "made")
        self.add(step | {"out": [self.ref(t) for t in outs]})

    def add(self, step: JsonObject) -> None:
        """Add a step to the plan. Refuses a step over the limit, rather than record a million until the deadline."""
        if len(self.steps) >= MOST_STEPS:
            self.refusals.refuse(f"more than {MOST_STEPS} launches and torch ops")
        self.steps.append(step)

    def _storages(self, tensors: Iterable[Any], kind: str) -> None:
        for t in tensors:
            self.storage(t, kind)

    @staticmethod
    def _is_literal(t: Any) -> bool:
        return type(t) is torch.Tensor and t.device.type == "cpu" and t.numel() <= _LITERAL_LIMIT

    @staticmethod
    def _is_view(func: Any, ins: list[Any], outs: list[Any]) -> bool:
        if func.is_view:
            return True
        storages = {t.untyped_storage()._cdata for t in ins}
        return bool(outs) and not func._schema.is_mutable and all(t.untyped_storage()._cdata in storages for t in outs)
