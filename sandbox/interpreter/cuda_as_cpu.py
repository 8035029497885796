"""Lets code for 'cuda' run on CPU tensors: arguments' devices become cpu, and a launcher's tensors report cuda.

Allocations and inputs of a launcher lie between guard zones; unwritten memory holds NaN. Results of other torch
functions have no guard zones; but all storages are noted, so that accesses outside of them are found.
"""

import multiprocessing
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import triton.testing
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.guard_zones import NAN, Fill, Guarded
from pgo_agent.sandbox.tracer import fake_cuda_api
from torch.overrides import TorchFunctionMode

CUDA = torch.device("cuda", 0)
ZONES = 0x7B  # fills zones of allocations: also shows a NaN written there that was read outside of an input
_UNWRITTEN = {
    torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.Tensor.new_empty_strided,
}  # fmt: skip
_UNWRITTEN_OPS = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")  # of aten
_FILLED = {
    torch.zeros, torch.zeros_like, torch.ones, torch.ones_like, torch.full, torch.full_like,
    torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_full,
}  # fmt: skip


@contextmanager
def answering(device: Device) -> Iterator[None]:
    """Let `torch.cuda` answer as if this GPU were there, while packages are imported that ask for one."""
    of_torch = (torch, torch.cuda, torch.accelerator, torch.version, torch._C, torch.library, torch._library.triton)
    modules = (*of_torch, triton.testing, subprocess, multiprocessing)
    before = [dict(vars(m)) for m in modules]
    fake_cuda_api.patch_torch(device, fake_cuda_api.Refusals())
    after = [dict(vars(m)) for m in modules]
    try:
        yield
    finally:
        for module, old, new in zip(modules, before, after, strict=True):
            for name in (n for n in old if new[n] is not old[n] and vars(module).get(n) is new[n]):
                setattr(module, name, old[name])


class DevicesOnCpu(TorchFunctionMode):
    """The mode for code that may name 'cuda': the import of a contract, its inputs and its reference."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*[_cpu(a) for a in args], **{k: _cpu(v) for k, v in (kwargs or {}).items()})


class OnCpu(DevicesOnCpu):
    """The mode for the import of a launcher and its calls: its tensors also say that they are on a GPU."""

    def __init__(self, know: Callable[[Any], None], left: Sequence[Any] = (), fill: Fill = NAN) -> None:
        """`know` is called with every storage. `left`: bytes that unwritten allocations hold, in their order; None, or
        of another size: `fill`."""
        super().__init__()
        self._know, self._left, self._fill = know, list(left), fill
        self._guarded: list[Guarded] = []
        self.unwritten = list[Any]()  # the bytes of each allocation that was not filled

    def storage(self, raw: bytes) -> Any:
        """Return a guarded storage of these bytes."""
        if not raw:
            return torch.UntypedStorage(0)
        self._guarded.append(Guarded(len(raw), "cpu"))
        self._guarded[-1].bytes.copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        storage = self._guarded[-1].storage()
        self._know(storage)
        return storage

    def stray(self) -> int:
        """Return the number of bytes written into guard zones."""
        return sum(g.stray() for g in self._guarded)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answers = {
            torch.Tensor.device.__get__: CUDA,
            torch.Tensor.is_cuda.__get__: True,
            torch.Tensor.is_cpu.__get__: False,
        }
        if func in answers and not args[0].is_meta:
            return answers[func]
        if func is torch.Tensor.get_device:
            return 0
        out = super().__torch_function__(func, types, args, kwargs)
        if (func in _FILLED or _is_unwritten(func, args)) and _has_memory(out):
            self._guard(out, func in _FILLED)
        for t in out if isinstance(out, list | tuple) else (out,):
            if type(t) is torch.Tensor and not t.is_meta:
                with torch._C.DisableTorchFunction():
                    self._know(t.untyped_storage())
        return out

    def _guard(self, out: Any, keep: bool) -> None:
        """Move a new tensor between guard zones; `keep` its content."""
        before = torch.empty(0, dtype=torch.uint8).set_(out.untyped_storage())
        self._guarded.append(Guarded(before.numel(), "cpu"))
        self._guarded[-1].arm(ZONES)
        held = self._guarded[-1].bytes
        if keep:
            held.copy_(before)
        else:
            before = self._left[len(self.unwritten)] if len(self.unwritten) < len(self._left) else None
            self.unwritten.append(held)
            if before is not None and before.numel() == held.numel():
                held.copy_(before)
            elif self._fill is not NAN:
                self._fill.into(held)
        out.set_(self._guarded[-1].storage(), out.storage_offset(), out.size(), out.stride())


def _is_unwritten(func: Any, args: Sequence[Any]) -> bool:
    """Whether a function returns memory that nothing was written into."""
    if func in _UNWRITTEN:
        return True
    if func is torch.Tensor.new:  # of sizes; of data it is a copy
        return all(isinstance(a, int | torch.Size) for a in args[1:])
    packet = getattr(func, "overloadpacket", func)
    return isinstance(packet, torch._ops.OpOverloadPacket) and str(packet).rpartition(".")[2] in _UNWRITTEN_OPS


def _has_memory(out: Any) -> bool:
    return isinstance(out, torch.Tensor) and not out.is_meta and out.untyped_storage().nbytes() > 0


def _cpu(a: Any) -> Any:
    if isinstance(a, torch.device) and a.type == "cuda":
        return torch.device("cpu")
    if isinstance(a, str) and (a == "cuda" or a.startswith("cuda:")):
        return "cpu"
    return a
