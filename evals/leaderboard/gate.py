"""The gate's rates for the site: what of the corpora was refused, where, and how long each stage took."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.evals.entries import GROUPS
from pgo_agent.evals.gate_report import STANDINGS, by_stage

HONEST = "honest"  # the group that must not be refused


def rates(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Everything that is counted, as plain values; None of no entries."""
    entries = [line for line in lines if line["what"] == "gate"]
    if not entries:
        return None
    groups = {g: _group(g, entries) for g in GROUPS}
    bad = [e for e in entries if not _is(e, HONEST)]
    stages = by_stage(e.get("stages", {}) for e in entries)
    refusals = Counter(e["stage"] for e in bad if e["standing"] == "refused")
    medians = {s: statistics.median(taken) for s, taken in stages.items()}
    return {
        "environment": entries[0]["environment"],
        "groups": {g: counted for g, counted in groups.items() if counted["entries"]},
        "bad": _counted(bad),
        "honest": _counted([e for e in entries if _is(e, HONEST)]),
        "refused_by": dict(refusals.most_common()),
        "most_refused": max(refusals.values(), default=1),
        "seconds": medians,
        "slowest": max(medians.values(), default=1.0),
        "per_minute": _pace([line for line in lines if line["what"] == "gate batch"]),
    }


def _is(entry: Mapping[str, Any], group: str) -> bool:
    return str(entry["entry"]).startswith(f"{group}/")


def _group(group: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return _counted([e for e in entries if _is(e, group)])


def _counted(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counted = Counter(e["standing"] for e in entries)
    return {"entries": len(entries), **{s: counted[s] for s in STANDINGS}}


def _pace(batches: Sequence[Mapping[str, Any]]) -> float | None:
    """Candidates a minute, builds and baselines included."""
    wall = sum(b["wall"] for b in batches)
    return 60 * sum(b["entries"] for b in batches) / wall if wall else None
