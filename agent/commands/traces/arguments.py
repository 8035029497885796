"""Traced tensors in the form in which `init` has those of a program that it ran (`seen.tensor` reads it)."""

import math
from collections.abc import Collection

from pgo_agent.agent.commands.traces.events import TracedTensor
from pgo_agent.sandbox.json_codec import JsonObject

NEAR = 0.9  # part of a size that the highest index reaches, so that any index into that size is valid


def described(t: TracedTensor, storage: int, sizes: Collection[int]) -> JsonObject:
    """Return a tensor, with how its values are drawn. `sizes`: of all tensors of the launch."""
    return {
        "storage": storage,
        "shape": list(t.shape),
        "stride": list(t.stride),
        "dtype": t.dtype,
        "grad": False,
        "recipe": _recipe(t, sizes),
        "copied": list[int](),
    }


def _recipe(t: TracedTensor, sizes: Collection[int]) -> JsonObject:
    if t.low is None or t.high is None:
        return {}
    if "int" in t.dtype or t.dtype == "bool":
        finite = math.isfinite(t.low) and math.isfinite(t.high)
        return {"low": int(t.low), "high": _high(int(t.high) + 1, sizes)} if finite else {}
    if t.mean is None or t.std is None:
        return {}
    return {"values": [t.low, t.high, t.mean, t.std]}


def _high(high: int, sizes: Collection[int]) -> int:
    """Return an upper bound: a size that the values nearly reach, for they are indices into it."""
    return min((s for s in sizes if high <= s and NEAR * s < high), default=high)
