"""Runs as a GPU would have left them, for tests of what the search makes of its record.

The kernel is really built and its bundle is in the content store; what a judge with a GPU would have said of the
baseline and of candidates is written with the store's own methods. `begin` adds a run to a workspace, `propose` a
generation, `tried` a candidate with its verdict, `built` a candidate with its real first build.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgo_agent.agent.evaluation import build
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built, Choice
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.machine import Environment

from tests.agent.baselines import baseline, point
from tests.agent.proposed import proposed
from tests.conftest import TARGETS
from tests.shared_builds import lend

COVERED = coverage.of(cases=1)

ADD = TARGETS / "add.py"
SOURCE = ADD.read_text()
H200 = devices.find("h200")
SETTINGS = RunSettings(cases=("1m",), width=4)
ALONE = replace(box.choose(), kind="none")  # a machine without a sandbox
_sum = "tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)"


def prepare(root: Path) -> None:
    """A workspace with one run, `first-1`, whose baseline is the kernel as shipped."""
    store, subject = Store(lend(root)), target.read(ADD)
    built = Builder(subject, H200, box.choose(), store.contents, 2).build(SOURCE, {"CASES": ["1m"]}, None, 2)
    case, options = next(iter(built.choices.items()))
    points = [point(built, case, i, 1.0 + i) for i in range(len(options))]
    own = baseline(built, points, held_out=("HELD_OUT/odd",), environment=Environment(H200.name))
    store.add_run("first-1", ADD, subject.digest, SOURCE, H200.key, SETTINGS, _facts(), subject.asked)
    store.set_baseline("first-1", own)
    store.close()


def _facts() -> RunFacts:
    return RunFacts(triton_version(box.choose().python))


def begin(store: Store, run: str, source: str = SOURCE, triton: str = "", **settings: Any) -> Context:
    """A new run in a prepared workspace, of `add` or of another text of it. `triton`: another version than is here."""
    facts = replace(_facts(), triton=triton) if triton else _facts()
    subject = replace(target.read(ADD), source=source, contract=source)
    store.add_run(run, ADD, subject.digest, source, H200.key, SETTINGS.changed(settings), facts, subject.asked)
    first = store.run("first-1").baseline
    assert first is not None
    store.set_baseline(run, first)
    return context(store, run)


def context(store: Store, run: str, **changes: Any) -> Context:
    """What a process works with that goes on with a run."""
    kept = store.run(run)
    subject = replace(target.read(ADD), source=kept.source, contract=kept.source)
    own = Builder(subject, H200, box.choose(), store.contents, 2)
    ready = Context(store, kept, subject, H200, own, None, None, GpuJudge(subject, gpu=None), lambda event: None)
    return replace(ready, **changes)


def another(n: int = 0) -> str:
    """A text of `add` that computes the same in other words: a candidate's, one for each number."""
    return SOURCE.replace("    z = torch.empty_like(x)\n", f"    z = torch.empty_like(x)  # {n}\n")


def adding(words: str) -> str:
    """A text of `add` that stores something else."""
    assert SOURCE.count(_sum) == 1
    return SOURCE.replace(_sum, words)


def propose(ctx: Context, *sources: str, finished: bool = False, **told: Any) -> list[Candidate]:
    """The next generation of a run, as its moves would write it."""
    n = max(ctx.store.generations(ctx.run.id), default=0) + 1
    plain = {"proposer": "moves"}
    candidates = [proposed(s, **(plain | told)) for s in sources]
    ctx.store.add_generation(ctx.run.id, n, "shipped", candidates)
    if finished:
        ctx.store.finish_generation(ctx.run.id, n)
    return ctx.store.candidates(ctx.run.id, n)


_numbers = itertools.count(1)


def tried(ctx: Context, verdict: Verdict, speedup: float | None = None, source: str = "", **told: Any) -> Candidate:
    """A finished generation of one candidate with its verdict; its build is the baseline's."""
    why, stage = told.pop("why", plain("why")), told.pop("stage", "time")
    (c,) = propose(ctx, source or another(next(_numbers)), finished=True, **told)
    ctx.store.set_built(ctx.run.id, c.id, as_shipped(ctx))
    against = told.get("parent", "shipped")
    judged = Judgement(verdict, stage, why, {"incumbent": against} if speedup else {}, COVERED)
    ctx.store.set_verdict(ctx.run.id, c.id, judged, speedup, 1.0)
    return ctx.store.candidate(ctx.run.id, c.id)


def built(ctx: Context, source: str, **told: Any) -> Candidate:
    """A candidate after its first build."""
    (c,) = propose(ctx, source, **told)
    ctx.store.set_built(ctx.run.id, c.id, build.first(ctx, c, 2))
    return ctx.store.candidate(ctx.run.id, c.id)


def judge(ctx: Context, c: Candidate, verdict: Verdict, stage: str, speedup: float | None = None) -> None:
    ctx.store.set_verdict(ctx.run.id, c.id, Judgement(verdict, stage, plain("why"), coverage=COVERED), speedup, 1.0)


def accept(ctx: Context, c: Candidate, speedup: float) -> None:
    """A win over the kernel as shipped; its build is the baseline's."""
    ctx.store.set_built(ctx.run.id, c.id, as_shipped(ctx))
    ctx.store.set_verdict(
        ctx.run.id,
        c.id,
        Judgement(Verdict.ACCEPTED, "confirm", plain("why"), {"incumbent": "shipped"}, COVERED),
        speedup,
        1.0,
    )


def as_shipped(ctx: Context) -> Built:
    points = ctx.baseline().points
    keys = {p.choice: f"k{i}" for i, p in enumerate(points)}
    options = tuple(Choice(p.choice, p.config, (keys[p.choice],), p.plan_id) for p in points)
    statics = {keys[p.choice]: p.statics[0] for p in points}
    return Built(points[0].bundle, {}, {points[0].case: options}, statics, {}, ())
