"""The time of a configuration without measuring it: the recording of its very code, or an estimate.

Neither is ever called a measurement of this run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.agent.run.record.baseline import KnownTime, TimeSource, Work

Statics = Sequence[Mapping[str, Any]]  # static profiles of what a configuration launches, in order


def known_time(
    ctx: Context, manifest: Mapping[str, Any], case: str, label: str, plan_id: str, statics: Statics, work: Work
) -> KnownTime:
    """Return the recorded or estimated time of a plan of a bundle, in ms. `work`: of its case."""
    recorded = shipped_results.find(plan_id, ctx.device.name)
    if recorded is not None:
        return KnownTime(ms=recorded.ms, how=TimeSource.RECORDED, finalist=recorded.finalist)
    steps = manifest["plans"][case][label]["steps"]
    launches = [s for s in steps if "kernel" in s]
    if not launches:
        return KnownTime(ms=cost_model.operators(steps, ctx.device, work.flops), how=TimeSource.ESTIMATE)
    total = sum(
        cost_model.estimate(
            static,
            manifest["kernels"][s["kernel"]]["num_warps"],
            s["grid"][0] * s["grid"][1] * s["grid"][2],
            ctx.device,
            work.flops * share,
            work.bytes / len(launches),
        )
        for s, static, share in zip(launches, statics, _shares(statics), strict=True)
    )
    return KnownTime(ms=total, how=TimeSource.ESTIMATE)


def _shares(statics: Statics) -> list[float]:
    """The share of the work of each launch, for an estimate: even among those with tensor loops, if any, else all."""
    weights = [1.0 if s["loop_flops"] else 0.0 for s in statics]
    return [w / sum(weights) for w in weights] if any(weights) else [1 / len(statics)] * len(statics)


def rate(ctx: Context, work: Work, ms: float) -> tuple[float, str]:
    """Return the rate of a case's work on the run's device, and its unit. `ms`: time of a call."""
    return ctx.device.rate(work.flops, work.bytes, ms)
