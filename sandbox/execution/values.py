"""Types of TTGIR as torch's, constants, and conversions between types as compiled code makes them.

Values are torch tensors on the CPU, scalars with no dimension, pointers int64. Integers have no sign: what reads one as
unsigned asks for it (`unsigned`). Conversions are those of PTX: to nearest even, fp8 and integers saturate.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.execution.errors import NotModelled
from pgo_agent.sandbox.interpreter import floats
from pgo_agent.sandbox.ttgir import types
from pgo_agent.sandbox.ttgir.token_lists import closing
from pgo_agent.sandbox.ttgir.tokens import tokens
from pgo_agent.sandbox.ttgir.tree import Op

UNWRITTEN = 0xFF  # each byte of memory that nothing wrote
MOST = 1 << 20  # elements of one tensor of a kernel (Triton's own limit)
_DTYPES = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "index": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
}  # fmt: skip
_UNSIGNED = {torch.int8: np.uint8, torch.int16: np.uint16, torch.int32: np.uint32, torch.int64: np.uint64}
FP8 = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}  # the largest finite number (OCP)


def dtype(element: str) -> Any:
    """Return the torch type of an element type. Raises NotModelled."""
    if element.startswith("!tt.ptr"):
        return torch.int64
    element = re.sub(r"^[su](?=i\d)", "", element)  # of descriptors: si8, ui32
    if element not in _DTYPES:
        raise NotModelled(f"the type {element[:40]}")
    return _DTYPES[element]


def form(text: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and the element type of a type; a scalar has no dimension."""
    shaped = types.shaped(text)
    if shaped is None:
        return (), text
    if shaped.kind == "tensor" and int(np.prod(shaped.shape)) > MOST:
        raise NotModelled(f"a tensor of {shaped.shape}")
    return shaped.shape, shaped.element


def result(op: Op) -> tuple[tuple[int, ...], Any]:
    """Return the shape and torch type of an op's result."""
    shape, element = form(op.result_types[0])
    return shape, dtype(element)


def constant(op: Op) -> Any:
    """Return the value of an arith.constant."""
    shape, element = form(op.result_types[0]) if op.result_types else ((), "i1")
    kind = dtype(element)
    number = _written(op)
    if number[:1] in ("[", '"', ""):
        raise NotModelled("a constant that lists its elements")
    return _number(number, kind).expand(shape)


def _written(op: Op) -> str:
    """Return a constant's value as written, by its tokens: what stands in a string is no part of it."""
    listed = [t for t in tokens(str(op.parts[0])) if t.kind != "space"]
    at = next(i for i, t in enumerate(listed) if t.text == op.name) + 1
    if listed[at].text == "{":
        at = closing(listed, at) + 1
    if listed[at].text != "dense":
        return listed[at].text
    return "".join(t.text for t in listed[at + 2 : closing(listed, at + 1)])


def _number(text: str, kind: Any) -> Any:
    if text in ("true", "false"):
        return torch.tensor(text == "true")
    if text.startswith("0x") and kind.is_floating_point:
        size = kind.itemsize
        raw = np.frombuffer(int(text, 16).to_bytes(size, "little"), dtype=np.uint8).copy()
        return torch.from_numpy(raw).view(kind).reshape(())
    if kind.is_floating_point:
        return torch.tensor(float(text), dtype=torch.float64).to(torch.float32 if kind in FP8 else kind).to(kind)
    return torch.tensor(int(text, 0), dtype=torch.int64).to(kind)


def unsigned(value: Any) -> Any:
    """Return the integers as numpy's without a sign."""
    if value.dtype == torch.bool:
        return value.numpy().astype(np.uint8)
    return np.ascontiguousarray(value.numpy()).view(_UNSIGNED[value.dtype]).reshape(tuple(value.shape))


def signed(array: Any, kind: Any) -> Any:
    """Return numpy's unsigned integers as a tensor of a type, with what does not fit cut off."""
    if kind == torch.bool:
        return torch.from_numpy(np.asarray(array, dtype=np.uint64) & 1).to(torch.bool)
    width = _UNSIGNED[kind]
    flat = np.ascontiguousarray(np.asarray(array).astype(width)).view(np.dtype(f"i{kind.itemsize}"))
    return torch.from_numpy(flat.reshape(np.shape(array)))


def rounded(value: Any, kind: Any, toward_zero: bool = False) -> Any:
    """Return floats as another float type."""
    if toward_zero and kind.itemsize < value.dtype.itemsize:
        forms = {f.torch: f for f in (floats.FP16, *floats.FORMATS.values())}
        near = floats.quantized(value.to(torch.float64).numpy(), forms[kind], True)
        return rounded(torch.from_numpy(np.asarray(near)), kind)
    if kind in FP8:
        wide = value.to(torch.float32)
        most = FP8[kind]
        return torch.where(wide.isnan(), wide, wide.clamp(-most, most)).to(kind)
    if value.dtype == torch.float64 and kind == torch.float16:  # torch goes by way of float32
        return torch.from_numpy(np.asarray(value.numpy().astype(np.float16)))
    return value.to(torch.float32).to(kind) if value.dtype in FP8 else value.to(kind)


def to_integer(value: Any, kind: Any, sign: bool = True) -> Any:
    """Return floats as integers: toward zero, saturated, NaN as 0 (PTX: cvt.rzi)."""
    bits = 1 if kind == torch.bool else kind.itemsize * 8
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sign else (0, 2**bits - 1)
    wide = np.nan_to_num(np.trunc(value.to(torch.float64).numpy()), nan=0.0, posinf=np.inf, neginf=-np.inf)
    whole = np.where(wide >= high, high, np.where(wide <= low, low, 0)).astype(object if bits == 64 else np.int64)
    inside = (wide > low) & (wide < high)
    whole = np.where(inside, np.where(inside, wide, 0).astype(np.int64), whole)
    if bits == 64 and not sign:
        return signed(np.asarray(whole, dtype=np.uint64), kind)
    return torch.from_numpy(np.asarray(whole, dtype=np.int64)).to(kind)


def on_bits(what: Callable[..., Any], *given: Any) -> Any:
    """Apply what only moves elements; torch lacks much of that for fp8."""
    kind = given[0].dtype
    if kind not in FP8:
        return what(*given)
    return what(*(g.view(torch.uint8) for g in given)).view(kind)


def unwritten(shape: Sequence[int], kind: Any) -> Any:
    """Return what is in memory that nothing wrote, or is not defined: NaN, or -1."""
    size = 1 if kind == torch.bool else kind.itemsize
    if kind == torch.bool:
        return torch.ones(tuple(shape), dtype=torch.bool)
    return torch.full((*shape, size), UNWRITTEN, dtype=torch.uint8).view(kind)[..., 0]
