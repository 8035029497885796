"""What a run will take, and how far that was off: as text or JSON. It draws figures of `agent/run/cost.py`."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from pgo_agent.agent.run.cost import Estimate
from pgo_agent.agent.run.facts import Cost
from pgo_agent.agent.run.settings import RunSettings

UNITS = {"builds": "builds", "seconds": "s", "gpu_seconds": "s of the GPU", "tokens": "tokens", "money": "in money"}
TIMES = ("seconds", "gpu_seconds")


def tell(estimate: Estimate, asked: RunSettings, as_json: bool) -> None:
    """Print an estimate, what it rests on, and the budgets that hold in any case."""
    limits = {"minutes": asked.minutes, "gpu_seconds": asked.gpu_seconds, "tokens": asked.tokens, "money": asked.money}
    if as_json:
        print(json.dumps(asdict(estimate) | {"limits": limits}))
        return
    for line in _lines(estimate):
        print(line)
    said = ", ".join(f"{value:g} {name.replace('_', ' ')}" for name, value in limits.items() if value is not None)
    print(f"at most {said}, as the budgets say")


def _lines(estimate: Estimate) -> Iterator[str]:
    if not estimate.runs:
        yield "no run has ended in this workspace that was judged in this way: the first one will tell"
    for name, unit in UNITS.items():
        value = getattr(estimate.middle, name)
        if not value or (name not in ("tokens", "money") and not estimate.runs):
            continue
        spread = name in TIMES and estimate.runs > 1
        around = f" ({value * estimate.low:.0f} to {value * estimate.high:.0f})" if spread else ""
        yield f"about {_figure(value)} {unit}{around}"
    if estimate.middle.tokens and estimate.middle.money is None:
        yield "no price of these tokens is known, so no money is told (docs/models.md, Budgets)"
    if estimate.runs:
        which = "this target" if estimate.same else "other targets"
        runs = "1 former run" if estimate.runs == 1 else f"{estimate.runs} former runs"
        yield f"by {runs} of {which}: an estimate; builds that are kept take less"


def compared(expected: Cost, took: Cost) -> str:
    """Return what a run took beside what was expected, with the error of each."""
    parts = []
    for name, unit in UNITS.items():
        was, now = getattr(expected, name), getattr(took, name)
        if was and now is not None:
            parts.append(f"{_figure(now)} {unit} (expected {_figure(was)}, {100 * (now - was) / was:+.0f} %)")
    return f"it took {', '.join(parts)}"


def _figure(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 or x == int(x) else f"{x:.3g}"
