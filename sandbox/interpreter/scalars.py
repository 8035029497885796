"""Plain numbers as arguments of kernels, converted as for compiled kernels.

A float becomes a tensor of fp32 (Triton's interpreter leaves it a float), a bool one of one bit (it makes one of 32).
"""

from typing import Any

import numpy as np
from triton import language as tl
from triton.runtime import interpreter


def install() -> None:
    """Replace Triton's conversion. Call it before a candidate is imported."""
    convert = interpreter._implicit_cvt

    def converted(value: Any) -> Any:
        if isinstance(value, bool):
            return tl.tensor(interpreter.TensorHandle(np.array([value]), tl.int1), tl.int1)
        if isinstance(value, float):
            return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
        return convert(value)

    interpreter._implicit_cvt = converted
