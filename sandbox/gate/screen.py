"""Stage 1, on the CPU: a candidate's plan may use the torch ops that the original launcher used, and no others.

Allocation and views are free. So a matrix product dressed as a kernel is refused in the plan, by what would run,
whatever the source looks like. Each plan must launch at least one kernel (`bundle/check.py` demands that too).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pgo_agent.sandbox.gate.verdict import Judged, Verdict

CHEAP = frozenset({"aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero_.default"})


def ops_of(manifest: Mapping[str, Any]) -> set[str]:
    """The torch ops of all plans of a bundle."""
    return {s["op"] for p in _plans(manifest) for s in p["steps"] if "op" in s}


def screen(candidate: Mapping[str, Any], allowed: set[str]) -> Judged | None:
    """A rejection, or None. `allowed`: the ops of the original's plans; clearing a buffer is always allowed."""
    extra = sorted(ops_of(candidate) - allowed - CHEAP)
    if extra:
        return Judged(
            Verdict.REJECTED, "screen", f"uses torch ops that the original launcher does not: {', '.join(extra)}"
        )
    return None


def _plans(manifest: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    return (p for choices in manifest["plans"].values() for p in choices.values())
