"""Plain numbers as arguments of kernels, converted as for compiled kernels, and single elements as plain integers.

A float becomes a tensor of fp32 (Triton's interpreter leaves it a float), a bool one of one bit (it makes one of 32).
A type is a value that is known when a kernel is compiled, so it has a `value`, too.
An element is held in an array of one dimension, which numpy from 2.4 on does not turn into an int for Triton 3.6.
"""

from typing import Any

import numpy as np
from triton import language as tl
from triton.runtime import interpreter


def install() -> None:
    """Replace Triton's conversion. Call it before a candidate is imported."""
    tl.dtype.value = property(lambda self: self)
    convert = interpreter._implicit_cvt

    def converted(value: Any) -> Any:
        if isinstance(value, bool):
            return tl.tensor(interpreter.TensorHandle(np.array([value]), tl.int1), tl.int1)
        if isinstance(value, float):
            return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
        return convert(value)

    interpreter._implicit_cvt = converted
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched
