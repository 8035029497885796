"""Baselines to be written into a record, as a run would have left them."""

from collections.abc import Sequence
from typing import Any

from pgo_agent.agent.run.record.baseline import Baseline, BaselinePoint, TimeSource, Work
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.build.result import Built


def point(built: Built, case: str, at: int = 0, ms: float = 1.0, **changes: Any) -> BaselinePoint:
    """A configuration of a build, as if it had been measured."""
    choice = built.choices[case][at]
    return BaselinePoint(
        case=case,
        bundle=built.bundle,
        choice=choice.label,
        said=choice.label,
        config=choice.config,
        plan_id=choice.plan_id,
        codes=built.codes_of(choice),
        statics=built.statics_of(choice),
        ms=ms,
        how=TimeSource.MEASURED,
        **changes,
    )


def baseline(built: Built, points: Sequence[BaselinePoint], **changes: Any) -> Baseline:
    """What a run would keep whose best configuration of each case is the first of it, on every side."""
    best = {p.case: p for p in reversed(points)}
    plain: dict[str, Any] = {
        "cases": tuple(best),
        "held_out": (),
        "held_out_bundle": built.bundle,
        "work": json_codec.from_json(dict[str, dict[str, Work]], built.described["work"]),
        "weights": None,
        "nondeterministic": False,
        "libraries": (),
        "allowed_ops": (),
        "shipped": best,
        "autotuned": {},
        "tuned": best,
        "varied": (),
        "points": tuple(points),
        "unfit": (),
        "failures": (),
        "environment": None,
    }
    return Baseline(**(plain | changes))
