"""What a launcher does differently when it is called again: in a fresh process, after other cases, twice.

A plan is of one call. A launcher that keeps something of its first call, or counts its calls, may launch something else
at the next. A launcher that changes only at its hundredth call is not found here. Compares what tracers left, which
nobody trusts: raises what reading it raises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.build.trace_and_compile import Traced
from pgo_agent.sandbox.gate.call_difference import Difference, Differences, Kind

SAID = 300  # characters of an error


@dataclass(frozen=True)
class Left:
    """What a tracer left, with the names of kernels that are ours by its own."""

    traced: Traced
    names: Mapping[str, str]

    def steps(self, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the steps of a plan; kernels by their text, and by the name of their function."""
        return [{**s, **self._kernel(s["kernel"])} if "kernel" in s else dict(s) for s in entry["plan"]["steps"]]

    def _kernel(self, key: str) -> dict[str, str]:
        return {"kernel": self.names[key], "function": str(self.traced["kernels"][key]["name"])}


def differences(parts: Sequence[Left], again: Left) -> Differences:
    """Return case -> what other calls do differently, each kind once. `again`: a process that repeated all cases."""
    found = Differences()
    for part in parts:
        for kind, of in part.traced["traced"].items():
            for case, entries in ((c, e) for c, e in of.items() if e):
                calls = again.traced.get("traced", {}).get(kind, {}).get(case, [again.traced])
                kinds = {d.kind: d for c in calls if (d := _difference(part, entries[0], again, c))}
                found |= {f"{kind}/{case}": tuple(kinds.values())} if kinds else {}
    return found


def _difference(part: Left, first: Mapping[str, Any], later: Left, again: Mapping[str, Any]) -> Difference | None:
    """Return how a call differs from the first one of its case, if it does."""
    if "plan" not in first:
        return None
    if "error" in again:
        return Difference(Kind.FAILS, f"it fails: {str(again['error']['message'])[:SAID]}")
    if first["configs"] != again["configs"]:
        return Difference(Kind.CONFIGURATION, "it chooses another configuration")
    before, now = part.steps(first), later.steps(again)
    if len(before) != len(now):
        return Difference(Kind.STEPS, f"it makes {len(now)} launches and operations, and not {len(before)}")
    pairs = enumerate(zip(before, now, strict=True), 1)
    different = next((d for n, (old, new) in pairs if (d := _step(n, old, new))), None)
    same_results = first["plan"]["out"] == again["plan"]["out"]
    return different or (None if same_results else Difference(Kind.RESULTS, "its results lie elsewhere"))


def _step(number: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference | None:
    if old == new:
        return None
    if any(old.get(k) != new.get(k) for k in ("function", "op")):
        return Difference(Kind.KERNEL, f"step {number} runs another kernel or operation")
    if "grid" in old and old["grid"] != new["grid"]:
        grids = [" x ".join(map(str, s["grid"])) for s in (new, old)]
        return Difference(Kind.GRID, f"step {number} has the grid {grids[0]}, and not {grids[1]}"[:SAID])
    return Difference(Kind.ARGUMENTS, f"step {number} has other arguments")
