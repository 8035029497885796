"""What a run takes: builds, seconds, seconds of the GPU, tokens, money; and what a new one will take, by former ones.

The estimate is simple and says what it rests on: builds as in former runs of the target (or else of any target), and
for each build the seconds that they took, in the middle; tokens as former prompts took, or as many as a prompt may
have. A run records its estimate, so that its error is known when it has ended. Relies on the record; measures nothing.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.llm.models import EMBEDDED, prices
from pgo_agent.agent.llm.models.types import OPTIMIZER
from pgo_agent.agent.run.facts import Cost
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Call, Store
from pgo_agent.agent.run.settings import STATES, RunSettings, default_width

NEWEST = 8  # former runs that count
PROMPT, REPLY = 16_000, 6_000  # tokens of a call, where no former one is known: a prompt's budget, and a long reply


@dataclass(frozen=True)
class Estimate:
    """What a run will take, and what that rests on."""

    middle: Cost
    low: float  # share of the middle that the cheapest former run took for a build, and the dearest one
    high: float
    runs: int  # former runs; 0: none, and only tokens are told
    same: bool  # whether they are of this very target


def of(store: Store, run: Run) -> Cost:
    """Return what a run has taken so far."""
    builds, spent = _builds(store, run).all, store.spent(run.id)
    money = spent["money"] if run.facts.prices else None
    return Cost(builds, run.seconds, run.gpu_seconds, spent["tokens"], money)


def estimate(
    store: Store, digest: str, device: str, asked: RunSettings, cores: int, on_gpu: bool, models: dict[str, str]
) -> Estimate:
    """Return what a run of a target with these settings will take. `digest`: of its text. `models`: by role."""
    ended = [r for r in reversed(store.runs()) if _tells(r, device, on_gpu)]
    same = [r for r in ended if r.digest == digest][:NEWEST]
    former = same or ended[:NEWEST]
    builds, units, gpu_units = 0.0, [0.0], [0.0]
    if former:
        counts = [_builds(store, r) for r in former]
        builds = statistics.median(c.at_start for c in counts)
        builds += asked.candidates * statistics.median(c.of_candidates / max(c.candidates, 1) for c in counts)
        units = [r.seconds / max(c.all, 1) for r, c in zip(former, counts, strict=True)]
        gpu_units = [r.gpu_seconds / max(c.all, 1) for r, c in zip(former, counts, strict=True)]
    unit = statistics.median(units)
    tokens, money = _of_models(store, asked, cores, models)
    middle = Cost(round(builds), builds * unit, builds * statistics.median(gpu_units), tokens, money)
    return Estimate(middle, min(units) / (unit or 1), max(units) / (unit or 1), len(former), bool(same))


def _tells(run: Run, device: str, on_gpu: bool) -> bool:
    """Whether a run tells what another one on such a device takes: a whole one that looked for its own candidates."""
    if run.state not in STATES or run.device != device or run.facts.given or run.facts.open_to or not run.baseline:
        return False
    return (run.baseline.environment is not None) == on_gpu


@dataclass(frozen=True)
class _Builds:
    """How many configurations of cases a run built."""

    at_start: int  # for its baselines
    of_candidates: int
    candidates: int

    @property
    def all(self) -> int:
        return self.at_start + self.of_candidates


def _builds(store: Store, run: Run) -> _Builds:
    candidates = store.candidates(run.id)
    built = [c.built for c in candidates if c.built is not None]
    at_start = len(run.baseline.points) if run.baseline else 0
    return _Builds(at_start, sum(len(options) for b in built for options in b.choices.values()), len(candidates))


# models ---------------------------------------------------------------------------------------------------------------


def _of_models(store: Store, asked: RunSettings, cores: int, models: dict[str, str]) -> tuple[float, float | None]:
    """Return tokens and money: a call of the optimizer for each generation, and one of each other role."""
    named = {role: name for role, name in models.items() if name != EMBEDDED}
    generations = math.ceil(asked.candidates / (asked.width or default_width(cores)))
    table, tokens, money = prices.read() if named else {}, 0.0, 0.0
    for role, name in named.items():
        calls = generations if role == OPTIMIZER else 1
        prompt, reply = _of_a_call(list(_calls(store, role)), asked)
        tokens += calls * (prompt + reply)
        price = table.get(name) or table.get(name.partition(":")[0])
        money = money + calls * price.of(round(prompt), round(reply)) if price else math.nan
    return tokens, money if named and not math.isnan(money) else None


def _calls(store: Store, role: str) -> Iterator[Call]:
    for run in store.runs()[-NEWEST:]:
        yield from store.calls(run.id, role)


def _of_a_call(calls: Sequence[Call], asked: RunSettings) -> tuple[float, float]:
    """Return the tokens of a prompt and of a reply."""
    known = [(c.prompt_tokens, c.completion_tokens) for c in calls if c.prompt_tokens and c.completion_tokens]
    if not known:
        return float(asked.prompt_tokens or PROMPT), float(REPLY)
    return statistics.fmean(p for p, _ in known), statistics.fmean(r for _, r in known)
