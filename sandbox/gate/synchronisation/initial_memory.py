"""Storages that a plan fills with one number before a launch: the initial values of flags and counters."""

from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.sandbox.gate.synchronisation.dependent_launch import storages

_FILLS = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "zero_": 0, "ones": 1, "ones_like": 1}
_FILLED = {"full": 1, "full_like": 1, "new_full": 2, "fill_": 1}  # which of its arguments a torch op fills with


def before(steps: Sequence[Mapping[str, Any]], launch: int) -> dict[int, int]:
    """Return storage -> the number that all of it holds when step `launch` begins; others are left out."""
    held: dict[int, int] = {}
    for step in steps[:launch]:
        if "kernel" in step:
            for storage in storages(step).values():
                held.pop(storage, None)
            continue
        name, args = str(step["op"]).removeprefix("aten.").partition(".")[0], step["args"]
        value = _FILLS.get(name, args[_FILLED[name]] if name in _FILLED and len(args) > _FILLED[name] else None)
        for tensor in (*step["out"], *(args[:1] if name.endswith("_") else ())):
            if isinstance(tensor, Mapping) and "t" in tensor:
                held.pop(tensor["t"], None)
                if isinstance(value, int):
                    held[tensor["t"]] = value
    return held
