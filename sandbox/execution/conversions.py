"""Conversions of TTGIR between types: each element by itself, as compiled code makes them (`values.py`)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pgo_agent.sandbox.execution.values import result, rounded, signed, to_integer, unsigned
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor
Apply = Callable[..., Any]  # values of operands -> value of the result


def _cast(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: x.to(kind)


def _round(op: Op) -> Apply:
    _, kind = result(op)
    toward_zero = "rtz" in op.words or "toward_zero" in op.words
    return lambda x: rounded(x, kind, toward_zero)


def _extui(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: x.to(kind) if x.dtype == torch.bool else signed(unsigned(x), kind)


def _extsi(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: -x.to(kind) if x.dtype == torch.bool else x.to(kind)


def _trunci(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: (x & 1).bool() if kind == torch.bool else x.to(kind)


def _sitofp(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: _once(-x.to(torch.int8) if x.dtype == torch.bool else x, kind)


def _uitofp(op: Op) -> Apply:
    _, kind = result(op)
    wide = np.float64 if kind == torch.float64 else np.float32
    return lambda x: rounded(torch.from_numpy(np.asarray(unsigned(x).astype(wide))), kind)


def _once(x: Tensor, kind: Any) -> Tensor:
    """Return integers as floats, rounded once where the type holds as many bits as float32."""
    return x.to(kind) if kind in (torch.float32, torch.float64) else rounded(x.to(torch.float32), kind)


def _fptosi(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: to_integer(x, kind)


def _fptoui(op: Op) -> Apply:
    _, kind = result(op)
    return lambda x: to_integer(x, kind, sign=False)


def _bitcast(op: Op) -> Apply:
    _, kind = result(op)

    def apply(x: Tensor) -> Tensor:
        if x.dtype == kind:
            return x
        if torch.bool in (x.dtype, kind):
            return x.to(torch.uint8).view(kind) if x.dtype == torch.bool else (x.view(torch.uint8) != 0)
        return x.contiguous().view(kind)

    return apply


OPS: dict[str, Callable[[Op], Apply]] = {
    "arith.extsi": _extsi,
    "arith.extui": _extui,
    "arith.trunci": _trunci,
    "arith.extf": _round,
    "arith.truncf": _round,
    "arith.sitofp": _sitofp,
    "arith.uitofp": _uitofp,
    "arith.fptosi": _fptosi,
    "arith.fptoui": _fptoui,
    "arith.bitcast": _bitcast,
    "arith.index_cast": _cast,
    "tt.bitcast": _bitcast,
    "tt.int_to_ptr": _cast,
    "tt.ptr_to_int": _cast,
    "tt.fp_to_fp": _round,
}
