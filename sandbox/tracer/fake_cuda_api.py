"""What a machine without a GPU answers about the one it pretends to have: `torch.cuda`, and Triton's driver.

Relies on Triton's driver interface (3.6 to 3.9). It answers questions about the device with the properties of the one
that was asked for, and refuses what a recorded plan cannot hold: streams, events, graphs, benchmarks, torch.compile.
"""

import contextlib
import functools
import multiprocessing
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch._library.triton
import triton
import triton.testing
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.tracer import nvidia_smi
from torch.utils import _device
from triton.backends.compiler import GPUTarget


class Refused(RuntimeError):
    """The launcher asked for something that a plan cannot hold."""


class Refusals:
    """The first thing refused, with its line. A launcher may swallow the exception: the refusal stands."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.line: int | None = None
        self.file = ""  # the candidate's file: only its lines are worth naming

    def refuse(self, why: str) -> NoReturn:
        line = line_in(self.file)
        text = f"line {line}: {why}" if line else why
        if self.first is None:
            self.first, self.line = text, line
        raise Refused(text)

    def refuser(self, what: str) -> Callable[..., NoReturn]:
        return lambda *a, **k: self.refuse(f"{what} cannot be held by a recorded plan")

    def refused(self, what: str) -> type:
        """Return a class that nobody can make an object of. Libraries name it in annotations when they are imported."""
        return type(what.rpartition(".")[2], (), {"__new__": self.refuser(what)})


def line_in(file: str) -> int | None:
    """Return the line of `file` that is being executed now, or None."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


class _Nothing(contextlib.nullcontext[None]):
    def __init__(self, *_a: object, **_k: object) -> None:
        super().__init__()


class _Generator:
    """The GPU's own generator of random numbers: seed 0, no number drawn. Launchers read its state and set it."""

    device = torch.device("cuda", 0)

    def get_state(self) -> "_State":
        return _State()

    def set_state(self, _state: object) -> None:
        """Each launch begins with the same state, for a plan holds the numbers that a kernel is given."""

    def initial_seed(self) -> int:
        return 0


class _State:
    """Its state: seed and offset, when it is read as whole numbers."""

    def view(self, _dtype: torch.dtype) -> list[int]:
        return [0, 0]


class _Stream:
    cuda_stream = 0
    device_index = 0

    def synchronize(self) -> None:
        """Nothing runs, so there is nothing to wait for."""


class Driver:
    """What Triton believes to be its driver. `launched` is called for every kernel launch."""

    def __init__(self, device: Device, launched: Callable[..., None], loaded: Callable[..., tuple[int, int]]) -> None:
        self.device, self.utils = device, Utils(device, loaded)
        self.launcher_cls = lambda src, metadata: Launcher(src, metadata, launched)

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self.device.arch, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _d: int) -> None:
        """There is one device only."""

    def get_current_stream(self, _d: int | None = None) -> int:
        return 0

    def get_device_capability(self, _d: int | None = None) -> tuple[int, int]:
        return divmod(self.device.arch, 10)

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Callable[..., NoReturn]:
        raise Refused("the launcher benchmarks on its own; our timing picks the configuration")

    def get_empty_cache_for_benchmark(self) -> NoReturn:
        raise Refused("the launcher benchmarks on its own; our timing picks the configuration")

    def clear_cache(self, _cache: object) -> None:
        """Nothing is cached."""

    @staticmethod
    def is_active() -> bool:
        return True


class Utils:
    """The driver's helper module: properties, and binaries that are 'loaded' by remembering them."""

    def __init__(self, device: Device, loaded: Callable[..., tuple[int, int]]) -> None:
        self.device, self.loaded, self.handles = device, loaded, 0

    def get_device_properties(self, _d: int) -> dict[str, int]:
        d = self.device
        return {
            "max_shared_mem": d.smem_block,
            "max_num_regs": d.regs_sm,
            "multiprocessor_count": d.sms,
            "warpSize": 32,
            "sm_clock_rate": d.sm_khz,
            "mem_clock_rate": d.mem_khz,
            "mem_bus_width": d.bus_bits,
        }

    def load_binary(self, _name: str, cubin: bytes, _shared: int, _device: int) -> tuple[int, int, int, int, int]:
        self.handles += 1
        regs, spills = self.loaded(cubin)
        return self.handles, self.handles, regs, spills, 1024

    def unload_module(self, _m: int) -> None:
        """Nothing was loaded."""

    def set_printf_fifo_size(self, _n: int) -> None:
        """Nothing prints."""

    def cuOccupancyMaxActiveClusters(self, *_a: object) -> int:  # noqa: N802 (Triton's name)
        return self.device.sms


class Launcher:
    def __init__(self, src: Any, metadata: Any, launched: Callable[..., None]) -> None:
        self.src, self.metadata, self.launched = src, metadata, launched

    def __call__(self, gx: int, gy: int, gz: int, _stream: int, function: int, *rest: Any) -> None:
        self.launched(self, (gx, gy, gz), function, rest[4:])  # packed metadata, launch metadata and two hooks first


def _properties(d: Device) -> types.SimpleNamespace:
    major, minor = divmod(d.arch, 10)
    return types.SimpleNamespace(
        name=d.name,
        major=major,
        minor=minor,
        multi_processor_count=d.sms,
        total_memory=d.memory,
        warp_size=32,
        max_threads_per_multi_processor=d.threads_sm,
        regs_per_multiprocessor=d.regs_sm,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=d.smem_block,
        shared_memory_per_multiprocessor=d.smem_sm,
        L2_cache_size=d.l2,
        max_threads_per_block=1024,
        clock_rate=d.sm_khz,
        memory_clock_rate=d.mem_khz,
        memory_bus_width=d.bus_bits,
        is_integrated=0,
        gcnArchName="",
    )


def _zero() -> Callable[..., int]:
    """Return a new function each time: torch._dynamo does not import when two of torch's names share one."""
    return lambda *a, **k: 0


def compiled(wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return what stands in for `torch.compile`, as a function and as a decorator with options."""

    def compile_(model: Any = None, **_options: Any) -> Any:
        return wrap if model is None else wrap(model)

    return compile_


def refused_when_called(refusals: Refusals, function: Any) -> Any:
    """Return a function that is refused once it is called: libraries decorate functions that no launcher needs."""

    @functools.wraps(function, updated=())
    def call(*_args: Any, **_options: Any) -> NoReturn:
        refusals.refuse("a function of torch.compile cannot be held by a recorded plan")

    return call


def _unpinned(function: Callable[..., Any]) -> Callable[..., Any]:
    """Stand in for a function that makes a tensor of the host: no allocator here pins memory, and nothing needs it."""

    @functools.wraps(function)
    def made(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return made


def patch_torch(d: Device, refusals: Refusals) -> None:
    properties, capability = _properties(d), divmod(d.arch, 10)
    answers = dict(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=_zero(),
        is_initialized=lambda: True,
        init=_zero(),
        _lazy_init=_zero(),
        set_device=_zero(),
        synchronize=_zero(),
        empty_cache=_zero(),
        device=_Nothing,
        device_of=_Nothing,
        get_device_properties=lambda *a: properties,
        get_device_name=lambda *a: d.name,
        get_device_capability=lambda *a: capability,
        current_stream=lambda *a: _Stream(),
        default_stream=lambda *a: _Stream(),
        is_current_stream_capturing=lambda: False,
        is_bf16_supported=lambda *a, **k: d.arch >= 80,
        mem_get_info=lambda *a: (d.memory, d.memory),
        default_generators=(_Generator(),),
    )
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name in ("Stream", "Event", "CUDAGraph", "graph"):
        setattr(torch.cuda, name, refusals.refused(f"torch.cuda.{name}"))
    torch.cuda.stream = refusals.refuser("torch.cuda.stream")
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.compile = compiled(lambda function: refused_when_called(refusals, function))
    cuda = torch.device("cuda", 0)
    torch.accelerator.current_accelerator = lambda *a, **k: cuda
    torch.accelerator.is_available = lambda: True
    for name in ("_cuda_getCurrentRawStream", "_cuda_getDevice", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice"):
        setattr(torch._C, name, _zero())
    nvidia_smi.install(d)
    _device._device_constructors()  # what a default device is given to, which is kept: the functions as they are
    for name in ("tensor", "empty", "zeros", "ones", "full", "arange"):
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_args, **_kwargs: tensor
    for name in ("Lock", "RLock"):  # the box allows no memory that processes share
        setattr(multiprocessing, name, getattr(threading, name))
    torch.library.wrap_triton = torch._library.triton.wrap_triton = lambda kernel: kernel
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = refusals.refuser("triton.testing.do_bench")
