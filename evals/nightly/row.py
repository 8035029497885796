"""A row: what one run of a target, an optimizer and a seed came to, with the samples that say so.

Figures that follow from samples are computed from them and never trusted: a line whose ratios are not those of its own
samples is refused, and so is one that measured nothing and does not say why. Relies on
`sandbox/judge/timing/bootstrap.py` for intervals, and on `sandbox/json_codec.py` for what fields may hold.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from pgo_agent.agent.run.record.baseline import Unfit
from pgo_agent.agent.run.shipped_configurations import AUTOTUNED
from pgo_agent.evals.runner.results import ENDED
from pgo_agent.sandbox import devices, json_codec
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import OPTIONAL, JsonObject, Record
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing.bootstrap import Interval
from pgo_agent.sandbox.target import COMPILED

SHIPPED, TUNED, WINNER, AGAIN = "shipped", "tuned", "winner", "A/A"
BASES = (SHIPPED, TUNED)
NEEDED = (*BASES, AGAIN)  # sides that every measured case has
NONE = Interval(1.0, 1.0, 1.0)  # of a run without a winner: what was there before is there still
STAGE = {"stage", "verdict", "reason", "seconds"}  # what each stage of the gate says of a winner
CLOSE = 1e-4  # largest difference between the ratio in a line and the ratio of its samples


@dataclass(frozen=True)
class Reached(Record):
    """The rate of a side, and its shares of the measured peak and of the fastest library; None where there is none."""

    rate: float | None
    unit: str
    of_peak: float | None
    of_library: float | None
    library: str | None


@dataclass(frozen=True)
class Case(Record):
    flops: int
    bytes: int
    weight: float
    ms: dict[str, tuple[float, ...]]  # side -> raw samples of the last session, round by round
    plans: dict[str, JsonObject]  # side -> choice, plan_id, codes

    @property
    def delivered(self) -> str:
        """The side that a user has in the end: the winner, or else the tuned baseline."""
        return WINNER if WINNER in self.ms else TUNED

    @property
    def libraries(self) -> list[str]:
        return sorted(self.ms.keys() - {*NEEDED, WINNER, AUTOTUNED})

    def median(self, side: str) -> float:
        return statistics.median(self.ms[side])

    def ratio(self, base: str) -> Interval:
        """Return how many times faster than `base` what is delivered is."""
        return bootstrap.ratio(self.ms[base], self.ms[WINNER]) if WINNER in self.ms else NONE

    @cached_property
    def noise(self) -> Interval:
        """The shipped kernel against itself, in the same session."""
        return bootstrap.ratio(self.ms[SHIPPED], self.ms[AGAIN])

    def reached(self, side: str, environment: Environment) -> Reached:
        """Return the rate of a side."""
        device = devices.named(environment.gpu or "")
        rate, unit = device.rate(self.flops, self.bytes, self.median(side)) if device else (None, "")
        peak = environment.peaks.get(unit)
        best = min(self.libraries, key=self.median, default=None)
        share = bootstrap.middle(self.ms[best], self.ms[side]) if best else None
        return Reached(rate, unit, rate / peak if rate and peak else None, share, best)


@dataclass(frozen=True)
class Tried:
    """A candidate that was judged."""

    id: str
    move: str
    kind: str
    author: str
    verdict: str
    stage: str
    reason: str
    speedup: float | None
    against: str | None
    seconds: float  # of the GPU, that judging it took


@dataclass(frozen=True)
class Winner:
    id: str
    moves: tuple[str, ...]  # from the kernel as shipped to it
    kind: str
    author: str
    reason: str
    diff: str  # unified, from the kernel as shipped; of TTGIR from the text that it replaces
    stages: tuple[JsonObject, ...]  # what each stage of the gate said: stage, verdict, reason, seconds


@dataclass(frozen=True)
class Row(Record):
    kernel: str
    target: str
    optimizer: str
    seed: int | None  # None: not recorded, as of all that may be None here
    run: str
    when: str  # it began
    commit: str
    digest: str  # of the target
    environment: Environment
    budget: JsonObject | None
    state: str
    failed: str  # why there is nothing to measure; empty: the last session was held
    truncated: bool  # ended by its budget of time
    cases: dict[str, Case]
    candidates: tuple[Tried, ...]
    winner: Winner | None
    seconds: float | None
    gpu_seconds: float | None
    tokens: int | None
    money: float | None
    unfit: tuple[Unfit, ...] = ()  # of the file's own configurations
    models: tuple[str, ...] = ()  # that answered, by their own word
    prompts: tuple[str, ...] = ()  # SHA-256 of each that was asked
    templates: str = ""  # SHA-256 of what the optimizer's prompts are made from
    suite: str = field(default="", metadata=OPTIONAL)  # that the kernel is of; empty: none
    # case -> why torch.compile of the reference has no time there; None: it was not asked for
    uncompiled: dict[str, str] | None = field(default=None, metadata=OPTIONAL)
    # library -> case -> why it has no time there, or why its results would not be accepted
    refused: dict[str, dict[str, str]] | None = field(default=None, metadata=OPTIONAL)
    file: str = field(default="", compare=False)  # that it was read from

    @property
    def libraries(self) -> list[str]:
        """The libraries that were timed in a case, or refused one."""
        return sorted({name for c in self.cases.values() for name in c.libraries} | (self.refused or {}).keys())

    @property
    def key(self) -> tuple[str, str, int | None]:
        return (self.kernel, self.optimizer, self.seed)

    @property
    def gpu(self) -> str:
        return str(self.environment.gpu)

    def ratio(self, base: str) -> Interval:
        """Return the geometric mean over cases of how many times faster than a baseline; exactly 1 of a run without a
        winner."""
        return self._ratios[base]

    @cached_property
    def _ratios(self) -> dict[str, Interval]:
        if self.winner is None or self.failed:
            return dict.fromkeys(BASES, NONE)
        weights = {n: c.weight for n, c in self.cases.items()}
        return {
            b: bootstrap.geomean({n: (c.ms[b], c.ms[WINNER]) for n, c in self.cases.items()}, weights) for b in BASES
        }

    @property
    def of_autotuned(self) -> float | None:
        """As `over`, of what `triton.autotune` picks: None where that is as shipped."""
        return self.over(AUTOTUNED)

    def over(self, side: str) -> float | None:
        """Return how many times faster than a side what the run delivers is: geometric mean over cases that have the
        side; None where none has.
        """
        timed = {n: c for n, c in self.cases.items() if side in c.ms}
        if not timed:
            return None
        weight = sum(c.weight for c in timed.values())
        logs = (c.weight * math.log(bootstrap.middle(c.ms[side], c.ms[c.delivered])) for c in timed.values())
        return math.exp(sum(logs) / weight)

    def middle(self, base: str) -> float:
        """Return the middle of `ratio` without the interval, which takes a thousand times as long."""
        if self.winner is None or self.failed:
            return 1.0
        weight = sum(c.weight for c in self.cases.values())
        logs = (c.weight * math.log(bootstrap.middle(c.ms[base], c.ms[WINNER])) for c in self.cases.values())
        return math.exp(sum(logs) / weight)

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(t.verdict for t in self.candidates)

    def as_json(self) -> JsonObject:
        """Return a line: everything, and what follows from it for whoever reads it without this project."""
        follows: JsonObject = {
            "verdicts": dict(self.verdicts),
            "ratio": {b: self.ratio(b).as_json() for b in BASES},
            "of_autotuned": self.of_autotuned,
            "of_compiled": self.over(COMPILED),
            "cases": {n: self._case(c) for n, c in self.cases.items()},
        }
        return {"what": ENDED, **{n: v for n, v in super().as_json().items() if n != "file"}, **follows}

    def _case(self, c: Case) -> JsonObject:
        return c.as_json() | {
            "ratio": {b: c.ratio(b).as_json() for b in BASES},
            "noise": c.noise.as_json(),
            "reached": {side: c.reached(side, self.environment).as_json() for side in c.ms},
        }


def parse(line: Mapping[str, Any], file: str = "") -> Row:
    """Return the row in a line. Raises AttributeError, KeyError, TypeError, ValueError for a line that is no row."""
    named = [f for f in fields(Row) if f.name not in ("cases", "file")]
    values = {f.name: line[f.name] for f in named if f.name in line or not f.metadata.get("optional")}
    cases = {n: {f.name: case[f.name] for f in fields(Case)} for n, case in line["cases"].items()}
    return json_codec.decoded(Row, values | {"cases": cases, "file": file})


def problem(line: Mapping[str, Any]) -> str:
    """Return why a line is no row; empty where it is one, or says that it is something else."""
    try:
        read(line)
    except ValueError as e:
        return str(e)
    return ""


def read(line: Mapping[str, Any], file: str = "") -> Row | None:
    """Return the row of a line; None where it says that it is something else. Raises ValueError in words for one that
    lies."""
    if line["what"] != ENDED:
        return None
    try:
        row = parse(line, file)
        why = unproven(row) or _boasts(row, {b: float(line["ratio"][b][1]) for b in BASES})
    except KeyError as e:
        raise ValueError(f"a row that says nothing of {e.args[0]}") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as e:
        raise ValueError(f"it is no row: {e}") from None
    if why:
        raise ValueError(why)
    return row


def unproven(row: Row) -> str:
    """Return what a row lacks of the evidence for what it says; empty where it is all there."""
    if not row.environment.gpu:
        return "a row that names no GPU"
    if row.winner and not all(s.keys() >= STAGE for s in row.winner.stages):
        return "a winner with a stage that does not say what it said"
    if row.failed:
        return "a failure with a winner" if row.winner else ""
    accepted = {t.id for t in row.candidates if t.verdict == Verdict.ACCEPTED}
    if row.winner and row.winner.id not in accepted:
        return "a winner that is no accepted candidate"
    if not row.cases:
        return "a row without samples, that says of no failure"
    needed = (*NEEDED, *([WINNER] if row.winner else []))
    for name, c in row.cases.items():
        if missing := [s for s in needed if not c.ms.get(s)]:
            return f"a row without samples of {', '.join(missing)} in {name}"
        if missing := [s for s in needed if not c.plans.get(s, {}).get("plan_id")]:
            return f"{name}: nothing names the code of {', '.join(missing)}"
        if len({len(ms) for ms in c.ms.values()}) != 1:
            return f"{name}: sides that were not timed in the same rounds"
        if not all(math.isfinite(x) and x > 0 for ms in c.ms.values() for x in ms):
            return f"{name}: samples that are no times"
        if WINNER in c.ms and row.winner is None:
            return f"{name}: times of a winner that the row does not have"
    return ""


def _boasts(row: Row, claimed: Mapping[str, float]) -> str:
    """Return what a line says that its samples do not."""
    for base in BASES:
        measured = row.middle(base)
        if abs(claimed[base] - measured) > CLOSE:
            return f"it says {claimed[base]:.4f}x of {base}, its samples say {measured:.4f}x"
    return ""
