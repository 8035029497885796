"""Gives PyTorch's 'cuda' device a no-op guard on a machine without CUDA, so that fake cuda tensors can be sliced.

A CUDA build of torch without a GPU installs such a guard itself when asked. A CPU build leaves its registry slot empty
and refuses every view of a fake cuda tensor. We put a stand-in there whose methods all answer 0 ("no devices") and let
PyTorch replace it by its own no-op guard. Relies on the registry symbol of libc10, unchanged from torch 2.6 to 2.13.
"""

import ctypes
from pathlib import Path

import torch

_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA = 1  # c10::DeviceType::CUDA
_keep: list[object] = []


def install() -> None:
    """Make views of fake cuda tensors work. Raises RuntimeError when this torch keeps its registry elsewhere."""
    ensure = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if ensure is None:
        raise RuntimeError(f"torch {torch.__version__} has no _ensureCUDADeviceGuardSet: use torch 2.6 or newer")
    registry = _registry()
    if registry is not None and not registry[_CUDA]:
        _stand_in(registry)
    ensure()


def _registry() -> "ctypes.Array[ctypes.c_void_p] | None":
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        return (ctypes.c_void_p * 2).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError):
        return None


def _stand_in(registry: "ctypes.Array[ctypes.c_void_p]") -> None:
    method = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(lambda _self: 0)
    address = ctypes.cast(method, ctypes.c_void_p).value
    vtable = (ctypes.c_void_p * 64)(*[address] * 64)
    instance = (ctypes.c_void_p * 1)(ctypes.addressof(vtable))
    _keep.extend((method, vtable, instance))
    registry[_CUDA] = ctypes.addressof(instance)
