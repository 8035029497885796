"""Turns a process into one that believes it has a GPU: fake cuda tensors with addresses, and a driver that records."""

from collections.abc import Callable
from typing import Any

import torch
import torch._library.triton
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.tracer import cuda_device_guard, custom_ops, fake_cuda_api, lazy_dynamo
from pgo_agent.sandbox.tracer.fake_addresses import Addresses
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from triton.runtime import driver

lazy_dynamo.settings()  # before there is a FakeTensorMode, which would import all of dynamo


class FakeMode(FakeTensorMode):
    """Stays off the device although `torch.cuda.is_available()` now says yes."""

    avoid_device_init = True


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
