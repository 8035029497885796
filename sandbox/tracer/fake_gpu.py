"""Turns a process into one that believes it has a GPU: fake cuda tensors with addresses, and a driver that records."""

from collections.abc import Callable
from typing import Any

import torch
import torch._library.triton
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.tracer import cuda_device_guard, custom_ops, fake_cuda_api, lazy_dynamo
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from triton.runtime import driver

BASE, STEP = 1 << 46, 1 << 40  # fake addresses: one terabyte for each storage, far above any real one

lazy_dynamo.settings()  # before there is a FakeTensorMode, which would import all of dynamo


class FakeMode(FakeTensorMode):
    """Stays off the device although `torch.cuda.is_available()` now says yes."""

    avoid_device_init = True


class Addresses:
    """Fake tensors answer `data_ptr()` with an address of their own, which is found again where it is used as a
    number."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._keep: list[Any] = []
        self._asked: dict[int, Any] = {}  # address -> the tensor whose it is

    def of(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._index:
            self._index[storage._cdata] = len(self._index)
            self._keep.append(storage)
        address = BASE + self._index[storage._cdata] * STEP + int(tensor.storage_offset()) * int(tensor.element_size())
        self._asked[address] = tensor
        return address

    def tensor(self, n: object) -> Any:
        """Return the tensor that was asked last for this address; None where it is no such address."""
        return self._asked.get(n) if type(n) is int else None

    def contains(self, n: object) -> bool:
        return type(n) is int and BASE <= n < BASE + len(self._index) * STEP

    def found(self, n: int) -> tuple[Any, int]:
        """Return the storage in which an address lies, and the byte of it."""
        place, byte = divmod(n - BASE, STEP)
        return self._keep[place], byte


class Generator(torch.Generator):
    """A CPU generator that says it lives on the GPU, for `inputs(case, generator)` under FakeMode."""

    device = torch.device("cuda", 0)


class AnyGenerator(Generator):
    """What a user's program gets for `torch.Generator(device=...)`, whatever the device."""

    def __new__(cls, _device: object = None) -> Any:
        return super().__new__(cls)


def install(
    device: Device,
    refusals: fake_cuda_api.Refusals,
    addresses: Addresses,
    launched: Callable[..., None],
    loaded: Callable[..., tuple[int, int]],
) -> None:
    """Turn this process into one that believes it has `device`. There is no way back: use a process of its own."""
    cuda_device_guard.install()
    custom_ops.install()
    FakeTensor.data_ptr = lambda tensor: addresses.of(tensor)
    if hasattr(
        fake_tensor, "init_gpu_context"
    ):  # some releases touch the device even where `avoid_device_init` says no
        fake_tensor.init_gpu_context = lambda _device: None
    fake_cuda_api.patch_torch(device, refusals)
    driver.set_active(fake_cuda_api.Driver(device, launched, loaded))


def moved(module: Any, function: Callable[..., Any], recurse: bool = True) -> Any:
    """Stand in for `torch.nn.Module._apply`, which would swap a fake parameter for one on another device."""
    if recurse:
        for child in module.children():
            child._apply(function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                value = function(parameter.detach())
            module._parameters[name] = torch.nn.Parameter(value, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module
