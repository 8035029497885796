"""`python -m pgo_agent.evals.profiles TARGET:CASE ...`: profiles kernels on this GPU, and writes lines.

One JSON line for each kernel: how much records disturbed it, how far its scopes add up to its roles, whether the
instructions that ipc counts are those that the GPU executed, its roof, its summary, and the machine. A profile that was
not timed is not written.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands import profile
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.summarize import summarize
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.version import commit_of
from pgo_agent.evals.record import RESULTS
from pgo_agent.sandbox.build.builder import triton_version
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing, PassName, Roofline
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.find_scopes import HOLDING, Kind
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline

USUAL = (
    "kernels/fa_fwd.py:d128-4k",
    "kernels/fa_bwd.py:d128-4k-causal",
    "kernels/gemm.py:8k",
    "evals/corpus/targets/attention_specialized.py:d128-4k",
)
WHOLE = "kernel"  # the role of all warps
SECONDS = 120.0  # of the GPU for one case


def lines(found: CaseProfile, target: str, commit: str) -> Iterator[dict[str, Any]]:
    """A line for each kernel of a case that was timed."""
    roof = found.roofline
    common = {
        "what": "profile",
        "target": target,
        "case": found.case,
        "configuration": found.configuration,
        "commit": commit,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "roofline": roof.as_json() | {"reached": roof.reached} if isinstance(roof, Roofline) else None,
        "summary": summarize(found).text,
    }
    for kernel in found.kernels:
        if isinstance(kernel.timeline, Timeline):
            yield common | _kernel(kernel, kernel.timeline) | {"decisions": _decisions(found, kernel)}


def _decisions(found: CaseProfile, kernel: KernelProfile) -> list[dict[str, Any]]:
    return [d.as_json() for d in found.decisions[kernel.build]]


def _kernel(kernel: KernelProfile, timeline: Timeline) -> dict[str, Any]:
    return {
        "kernel": kernel.kernel,
        "environment": timeline.machine | {"triton": triton_version(sys.executable)},
        "resources": kernel.static.resources.as_json() if isinstance(kernel.static, StaticProfile) else None,
        "overheads": [round(p.overhead, 4) for p in timeline.passes],
        "same_outputs": all(p.same_outputs for p in timeline.passes),
        "overwritten": sum(p.timed.lost.overwritten for p in timeline.passes),
        "costs": timeline.costs,
        "plain_ms": timeline.plain_ms,
        "roles": list(_roles(timeline.scopes)),
        "scopes": [s.as_json() for s in timeline.scopes],
        "ipc": list(_rates(kernel, timeline)),
        "chain": _shown(kernel.chain),
        "counters": _counters(kernel.counters),
        "refused": [r.as_json() for r in timeline.refused],
    }


def _roles(scopes: Sequence[ScopeTime]) -> Iterator[dict[str, Any]]:
    """Cycles of each role, and what its scopes add up to: P50 times executions."""
    for whole in (s for s in scopes if s.scope.kind is Kind.ROLE):
        inside = [s for s in scopes if s.scope.role == whole.scope.role and s.scope.kind not in HOLDING]
        total = sum(s.cycles.p50 * s.count for s in inside)
        yield {"role": whole.scope.role, "cycles": whole.cycles.p50, "of_scopes": total}


def _rates(kernel: KernelProfile, timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Each ipc, beside the instructions that the counters saw on the lines of its scope: of a warp, an execution."""
    if not isinstance(kernel.ipc, tuple):
        return
    known = {s.scope.name: s for s in timeline.scopes}
    warps = kernel.launch.blocks * (kernel.static.resources.warps if isinstance(kernel.static, StaticProfile) else 0)
    for rate in kernel.ipc:
        yield rate.as_json() | {"by_counters": _executed(kernel, known[rate.scope], warps)}


def _executed(kernel: KernelProfile, timed: ScopeTime, warps: int) -> float | None:
    """None without counters, and where only some warps execute the scope: Nsight Compute counts those of all roles."""
    if not isinstance(kernel.counters, Counters) or not kernel.counters.lines or not warps or not timed.count:
        return None
    if timed.scope.role != WHOLE:
        return None
    span = range(timed.scope.first, timed.scope.last + 1)
    return sum(n.executed for n in kernel.counters.lines if n.line in span) / warps / timed.count


def _shown(found: Record | Missing) -> dict[str, Any]:
    return {"why": found.why} if isinstance(found, Missing) else found.as_json()


def _counters(found: Counters | Missing) -> dict[str, Any]:
    return {k: v for k, v in _shown(found).items() if k not in ("lines", "source", "code", "metrics")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=USUAL, help="FILE:CASE")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the GPU, for each")
    parser.add_argument("--store", type=Path, default=Path(".pgo-agent"))
    parser.add_argument("--out", type=Path, default=None, help="default: evals/results/profiles-DEVICE.jsonl")
    args = parser.parse_args()
    store, commit = Store(args.store), commit_of()
    for named in args.kernels:
        file, _, case = named.rpartition(":")
        wanted = frozenset(PassName)
        found = profile.profile(Path(file), RunSettings(cases=(case,)), None, "nvidia", store, wanted, args.seconds)
        out = args.out or RESULTS / f"profiles-{found.device}.jsonl"
        made = [line for c in found.cases for line in lines(c, found.target, commit)]
        with out.open("a") as f:
            f.write("".join(json.dumps(line) + os.linesep for line in made))
        print(f"{named}: {len(made)} lines in {out}")


if __name__ == "__main__":
    main()
