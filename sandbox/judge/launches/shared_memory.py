"""Overwrites the shared memory of every SM, which otherwise keeps what the last kernel left there.

A kernel that reads shared memory before it writes could find results of the launch before: 30 MB of an H100. Relies on
the driver, which compiles the PTX below; PTX of candidates never reaches it.
"""

import ctypes as C  # noqa: N812
import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from pgo_agent.sandbox.judge.launches import cuda_driver

THREADS = 1024
BLOCKS = 2  # for each SM: one fills it, a second covers SMs that got their block late
MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute
PTX = """
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry scrub(.param .u32 size, .param .u32 seed)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    ld.param.u32 %r1, [size];
    ld.param.u32 %r2, [seed];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r2, %r3, 2654435761, %r2;
    mad.lo.u32 %r2, %r4, 2246822519, %r2;
    shl.b32 %r5, %r3, 2;
    mov.u32 %r6, room;
    add.u32 %r6, %r6, %r5;
LOOP:
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mad.lo.u32 %r2, %r2, 1664525, 1013904223;
    st.shared.u32 [%r6], %r2;
    add.u32 %r5, %r5, 4096;
    add.u32 %r6, %r6, 4096;
    bra LOOP;
DONE:
    ret;
}
"""


def shared(device: Any) -> None:
    """Enqueue the overwriting with random bytes on the current stream; do nothing on a CPU. Raises CudaError."""
    if torch.device(device).type == "cuda":
        _launcher(torch.cuda.current_device())(secrets.randbits(32))


@cache
def _launcher(index: int) -> Callable[[int], None]:
    properties = torch.cuda.get_device_properties(index)
    size, blocks = properties.shared_memory_per_block_optin, BLOCKS * properties.multi_processor_count
    module, function = C.c_void_p(), C.c_void_p()
    cuda_driver.call("cuModuleLoadData", C.byref(module), PTX.encode() + b"\0")
    cuda_driver.call("cuModuleGetFunction", C.byref(function), module, b"scrub")
    cuda_driver.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, size)

    def launch(seed: int) -> None:
        values = C.c_uint(size), C.c_uint(seed)
        addresses = (C.c_void_p * 2)(*(C.addressof(v) for v in values))
        stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
        ones = (C.c_uint(1), C.c_uint(1))
        grid, block = (C.c_uint(blocks), *ones), (C.c_uint(THREADS), *ones)
        cuda_driver.call("cuLaunchKernel", function, *grid, *block, C.c_uint(size), stream, addresses, None)

    return launch
