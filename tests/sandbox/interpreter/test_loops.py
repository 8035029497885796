"""The variable of a kernel's loop is a tensor in Triton's interpreter, as it is in compiled code."""

from pathlib import Path

import torch

from tests.sandbox.interpreting import interpreted

COUNTED = """
@triton.jit
def counted(Y, first, last, WIDE: tl.constexpr):
    for i in range(first, last, 2):
        j = i.to(tl.int64)
        if WIDE:
            j = j * 3000000000
        else:
            j = (i * 3000000).to(tl.int64)  # of 32 bits, which overflow
        tl.store(Y + (i - first) // 2, j)
    for k in tl.range(0, 3):
        tl.store(Y + 100 + k, k.to(tl.float32).to(tl.int64))
    for k in tl.static_range(2):
        tl.store(Y + 110 + k, k)


def kernel(x):
    y = torch.zeros(128, device=x.device, dtype=torch.int64)
    counted[(1,)](y, 1000, 1010, WIDE=VALUE)
    return y
"""


def test_a_loop_variable_has_a_type_and_methods(tmp_path: Path) -> None:
    (y,) = interpreted(tmp_path, COUNTED.replace("VALUE", "True"), x=torch.ones(1))
    assert y[:5].tolist() == [3000000000 * i for i in range(1000, 1010, 2)]
    assert y[100:103].tolist() == [0, 1, 2] and y[110:112].tolist() == [0, 1]


def test_its_32_bits_overflow_as_in_compiled_code(tmp_path: Path) -> None:
    (y,) = interpreted(tmp_path, COUNTED.replace("VALUE", "False"), x=torch.ones(1))
    wrapped = [(3000000 * i + (1 << 31)) % (1 << 32) - (1 << 31) for i in range(1000, 1010, 2)]
    assert y[:5].tolist() == wrapped
