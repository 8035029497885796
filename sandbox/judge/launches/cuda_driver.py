"""Launches a cubin's kernel through the CUDA driver by ctypes: no compiler, no generated C, any Triton version.

Relies on libcuda's stable C interface, and on torch's context being current in this thread. Parameters are laid out as
in Triton's launcher; a layout that differs from the cubin's is refused before the launch.
"""

import ctypes as C  # noqa: N812
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.bundle.schema import Kernel, TmaMeta

_INTEGERS = {
    "i1": "b",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u1": "B",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
}
_TMA_TYPES = {8: 10, 9: 8, 10: 9}  # Triton's element type of a descriptor -> CUtensorMapDataType, where they differ
_CLUSTER, _CLUSTER_POLICY, _COOPERATIVE, _PDL = 4, 5, 2, 6  # CUlaunchAttributeID
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER, _PREFER_SHARED = 8, 14, 1
_ALIGN, _PORTABLE_CLUSTER = 128, 8


class CudaError(RuntimeError):
    """The driver refused a call, or a launch failed. The context may be lost."""


@dataclass(frozen=True)
class TensorMap:
    """What cuTensorMapEncodeTiled needs: an address and the descriptor's shape, strides (elements) and metadata."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nan_fill: bool
    tf32: bool
    meta: TmaMeta


class _Attribute(C.Structure):
    _fields_ = (("id", C.c_uint), ("pad", C.c_uint), ("value", C.c_ubyte * 64))


class _Config(C.Structure):
    _fields_ = (
        ("grid", C.c_uint * 3),
        ("block", C.c_uint * 3),
        ("smem", C.c_uint),
        ("stream", C.c_void_p),
        ("attributes", C.POINTER(_Attribute)),
        ("count", C.c_uint),
    )


@cache
def _cuda() -> C.CDLL:
    try:
        return C.CDLL("libcuda.so.1")
    except OSError as e:
        raise CudaError(f"no CUDA driver: {e}") from None


def call(name: str, *args: Any) -> None:
    """Call a driver function. Raises CudaError with the driver's name of the error."""
    _succeed(name, getattr(_cuda(), name)(*args))


def _succeed(name: str, code: int) -> None:
    if code:
        text = C.c_char_p()
        _cuda().cuGetErrorName(code, C.byref(text))
        raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")


@cache
def version() -> int:
    """Return the driver's CUDA version: 13010 for 13.1."""
    number = C.c_int()
    call("cuDriverGetVersion", C.byref(number))
    return number.value


class LoadedKernel:
    """One kernel, loaded from its cubin."""

    def __init__(self, image: bytes, kernel: Kernel) -> None:
        self.kernel, self._image = kernel, image
        self._module, self._function = C.c_void_p(), C.c_void_p()
        call("cuModuleLoadData", C.byref(self._module), image)
        call("cuModuleGetFunction", C.byref(self._function), self._module, kernel.name.encode())
        if kernel.shared > 49152:
            call("cuFuncSetCacheConfig", self._function, _PREFER_SHARED)
            call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, kernel.shared)
        if kernel.num_ctas > _PORTABLE_CLUSTER:
            call("cuFuncSetAttribute", self._function, _NON_PORTABLE_CLUSTER, 1)
        self._layout = elf.parameter_sizes(image, kernel.name)
        self._attributes, self._count = _attributes(kernel)

    def unload(self) -> None:
        call("cuModuleUnload", self._module)

    def prepare(
        self,
        grid: tuple[int, int, int],
        signature: Sequence[Any],
        args: Sequence[Any],
        scratch: tuple[int, int],
        stream: int,
    ) -> Callable[[], None]:
        """Return a function that launches with these arguments. Raises ValueError when they do not fit."""
        packed = [*pack(signature, args), *(struct.pack("Q", s) for s in scratch)]
        if [len(p) for p in packed] != self._layout:
            raise ValueError(f"arguments of {[len(p) for p in packed]} bytes for parameters of {self._layout}")
        block, addresses = _parameter_block(packed)
        k = self.kernel
        config = _Config(
            (C.c_uint * 3)(grid[0] * k.num_ctas, grid[1], grid[2]),
            (C.c_uint * 3)(32 * k.num_warps, 1, 1),
            k.shared,
            stream,
            self._attributes,
            self._count,
        )
        launch, reference, function = _cuda().cuLaunchKernelEx, C.byref(config), self._function

        def go(keep: object = (block, config, self)) -> None:
            _succeed("cuLaunchKernelEx", launch(reference, function, addresses, None))

        return go


def _attributes(k: Kernel) -> "tuple[C.Array[_Attribute], int]":
    wanted = [(_PDL, (1,))] if k.launch_pdl else []
    wanted += [(_COOPERATIVE, (1,))] if k.launch_cooperative_grid else []
    wanted += [(_CLUSTER, (k.num_ctas, 1, 1)), (_CLUSTER_POLICY, (1,))] if k.num_ctas != 1 else []  # type: ignore[list-item]
    attributes = (_Attribute * 4)()
    for slot, (which, words) in zip(attributes, wanted, strict=False):
        slot.id = which
        slot.value[: 4 * len(words)] = struct.pack(f"{len(words)}I", *words)
    return attributes, len(wanted)


def _parameter_block(packed: list[bytes]) -> "tuple[object, C.Array[C.c_void_p]]":
    """Copy the parameters into new memory, each aligned as a tensor map needs it."""
    room = sum(-(-len(p) // _ALIGN) * _ALIGN for p in packed) + _ALIGN
    raw, addresses = C.create_string_buffer(room), (C.c_void_p * len(packed))()
    at = -(-C.addressof(raw) // _ALIGN) * _ALIGN
    for i, p in enumerate(packed):
        C.memmove(at, p, len(p))
        addresses[i] = at
        at += -(-len(p) // _ALIGN) * _ALIGN
    return raw, addresses


def pack(signature: Sequence[Any], args: Sequence[Any]) -> list[bytes]:
    """Return arguments as the bytes of kernel parameters. Pointers are integers, descriptors are TensorMaps."""
    try:
        return [b for kind, arg in zip(signature, args, strict=True) for b in _pack(kind, arg)]
    except (struct.error, OverflowError) as e:
        raise ValueError(f"an argument does not fit its type: {e}") from None


def _pack(kind: Any, arg: Any) -> list[bytes]:
    if isinstance(kind, tuple):
        return pack(kind, arg)
    if kind == "constexpr":
        return []
    if kind[0] == "*":
        return [struct.pack("Q", arg or 0)]
    if kind in _INTEGERS:
        return [struct.pack(_INTEGERS[kind], int(arg))]
    if kind == "bf16":
        return [struct.pack("f", arg)[2:]]
    if kind in ("fp16", "fp32", "f32", "fp64"):
        return [struct.pack({"fp16": "e", "fp64": "d"}.get(kind, "f"), arg)]
    if kind.startswith("tensordesc") and isinstance(arg, TensorMap):
        shape = [struct.pack("i", n) for n in _padded(arg)]
        return [encode(arg), *shape, *(struct.pack("q", s) for s in arg.strides)]
    raise ValueError(f"no parameter of type {kind}")


def _padded(m: TensorMap) -> list[int]:
    """Return the shape as the hardware counts it: two fp4 values of a padded descriptor take two bytes."""
    return [*m.shape[:-1], m.shape[-1] * (2 if m.meta.fp4_padded else 1)]


def encode(m: TensorMap) -> bytes:
    """Return the 128 bytes of a CUtensorMap, encoded as in Triton. Raises CudaError or ValueError."""
    rank, width, block = len(m.shape), m.meta.elem_size, m.meta.block_size
    if not (1 <= rank <= 5 and len(m.strides) == len(block) == rank):
        raise ValueError("a descriptor's rank")
    shape = _padded(m)
    raw = C.create_string_buffer(192)
    at = (C.addressof(raw) + 63) & ~63
    dims = (C.c_uint64 * rank)(*reversed(shape))
    strides = (C.c_uint64 * max(1, rank))(*[width * s for s in reversed(m.strides[:-1])])
    box, ones = (C.c_uint32 * rank)(*reversed(block)), (C.c_uint32 * 5)(1, 1, 1, 1, 1)
    kind = 11 if m.tf32 else _TMA_TYPES.get(m.meta.elem_type, m.meta.elem_type)
    call(
        "cuTensorMapEncodeTiled",
        C.c_void_p(at),
        kind,
        rank,
        C.c_void_p(m.pointer),
        dims,
        strides,
        box,
        ones,
        0,
        m.meta.swizzle,
        2,
        int(m.nan_fill),
    )
    spans = zip(reversed(shape), [width, *strides], strict=False)
    if version() <= 13010 and sum((d - 1) * s for d, s in spans) + 1 < 128 << 10:
        C.cast(at + 8, C.POINTER(C.c_uint64))[0] &= ~(1 << 21)  # as Triton 3.9 and CUTLASS do for small tensors
    return C.string_at(at, 128)
