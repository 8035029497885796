"""Which models answered in a run, what they cost, and which roles fell back: for `show`, as words or JSON."""

from collections.abc import Iterator
from dataclasses import asdict

from pgo_agent.agent.run.record import model_calls
from pgo_agent.agent.run.record.model_calls import Fallback, Share
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import OPTIONAL_BUDGETS
from pgo_agent.sandbox.json_codec import JsonObject


def as_lines(store: Store, run: Run) -> Iterator[str]:
    """Yield a line for each role and model, each fallback, and the budgets besides minutes and candidates."""
    yield from map(_share, model_calls.shares(store, run.id))
    yield from map(_fallback, model_calls.fallbacks(store, run.id))
    budgets = [f"{_figure(amount)} of {_figure(most)} {unit}" for unit, amount, most in _budgets(store, run)]
    if budgets:
        yield f"spent: {', '.join(budgets)}"


def as_json(store: Store, run: Run) -> JsonObject:
    shares, fallbacks = model_calls.shares(store, run.id), model_calls.fallbacks(store, run.id)
    body = {"calls": [asdict(s) for s in shares], "fallbacks": [asdict(f) for f in fallbacks]}
    return body | {"spent": spent(store, run)}


def spent(store: Store, run: Run) -> dict[str, float]:
    """Return how much is spent of each budget that has no limit by itself, over all resumptions."""
    return {**store.spent(run.id), "gpu_seconds": run.gpu_seconds}


def folders(run: Run) -> list[str]:
    """Return the folders in which replies of a run's models are expected."""
    names = run.facts.models.values()
    return list(dict.fromkeys(name.removeprefix("relay:") for name in names if name.startswith("relay:")))


def _share(s: Share) -> str:
    calls = "1 call" if s.calls == 1 else f"{s.calls} calls"
    useless = f" ({s.useless} with something wrong)" if s.useless else ""
    cost = f", {s.cost:.4g} in money" if s.cost is not None else ""
    tokens = f"{s.prompt_tokens} + {s.completion_tokens} tokens"
    return f"{s.role}: {s.model}: {calls}{useless}, {tokens}, {s.seconds:.0f} s{cost}"


def _fallback(f: Fallback) -> str:
    return f"{f.role}: embedded for {f.about}: {f.why}" if f.about else f"{f.role}: embedded from there on: {f.why}"


def _budgets(store: Store, run: Run) -> Iterator[tuple[str, float, float]]:
    amounts = spent(store, run)
    for name, budget in OPTIONAL_BUDGETS.items():
        if (most := getattr(run.settings, name)) is not None:
            yield budget.budget, amounts[name], most


def _figure(x: float) -> str:
    return f"{x:.0f}" if x >= 1000 or x == int(x) else f"{x:.4g}"
