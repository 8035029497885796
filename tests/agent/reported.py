"""A run as a GPU would have left it, for tests of what is told of runs: its times and cycles are MADE UP.

Kernels are really built, their static profiles really taken; verdicts, profiles and the summary are written by the code
that writes them in a run. What a GPU would have answered (samples, errors, cycles) is made up here, and was measured by
nobody.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pgo_agent.agent import version
from pgo_agent.agent.evaluation import build as building
from pgo_agent.agent.profile.pass_runner import GpuBudget
from pgo_agent.agent.run import profile_targets
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.search import finish, profile_incumbent, steps
from pgo_agent.sandbox import devices, json_codec, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.bundle.store import PASSES
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import NONE, plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.questions import Final, Timed
from pgo_agent.sandbox.judge.results.deviation import Error
from pgo_agent.sandbox.judge.results.error_bounds import Bound
from pgo_agent.sandbox.judge.results.numerics import Comparison
from pgo_agent.sandbox.judge.results.stress_inputs import STRESS_INPUTS
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing import decision as timing_verdict
from pgo_agent.sandbox.profile import gpu_passes, static
from pgo_agent.sandbox.profile.gpu_passes import GpuPassContext
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef
from pgo_agent.sandbox.profile.timeline.scope_sets import scopes_of
from pgo_agent.sandbox.ttgir import reader

from tests.agent import timelines
from tests.agent.baselines import baseline, point
from tests.agent.proposed import proposed
from tests.conftest import TARGETS

COVERED = coverage.of(cases=1)

H200 = devices.find("h200")
SETTINGS = RunSettings(width=4)
MADE_UP = Environment(
    H200.name, driver="made.up", torch="0+made.up", triton="0.made.up", python="3.0", cuda_driver="0.0"
)
LOOKS = ("CASES/2k", "HELD_OUT/wide")
Times = dict[str, dict[str, list[float]]]  # case -> side -> ms


class Bench:
    """What stands in for a judge: the answer of a last session."""

    elsewhere = by_hand = False
    here = True
    waited = 0.0

    def __init__(self, found: target.Target, final: Callable[[Sequence[str], Sequence[str]], Times]) -> None:
        self.target, self.environment, self.busy, self.final = found, MADE_UP, 0.0, final

    def ask(self, question: Final) -> Timed:
        self.busy += 2.5
        times = self.final(list(question.sides), question.cases)
        return Timed({c: {n: tuple(ms) for n, ms in sides.items()} for c, sides in times.items()})

    def close(self) -> None:
        """There is nothing to end."""


def around(ms: float, rounds: int, spread: float = 0.01) -> list[float]:
    """Samples of nothing, with an outlier now and then."""
    draw = random.Random(f"{ms} {rounds}")
    return [round(ms * (1 + draw.gauss(0, spread) + 0.08 * (draw.random() < 0.05)), 6) for _ in range(rounds)]


def made_up_final(sides: Sequence[str], cases: Sequence[str]) -> Times:
    """The winner 6 % faster than both baselines, a library that is faster than all of them."""
    ms = {"winner": 1.88, "tuned": 2.0, "shipped": 2.02, "A/A": 2.021, "cuLibrary": 1.5}
    return {c: {n: around(ms[n] * (1 + i / 3), 30) for n in (*sides, "A/A", "cuLibrary")} for i, c in enumerate(cases)}


def begin(
    folder: Path, path: Path, run: str = "made-1", final: Callable[..., Times] = made_up_final, **settings: Any
) -> Context:
    """A run of a target whose baseline stands."""
    store, found = Store(folder / ".pgo-agent"), target.read(path)
    python = box.choose().python
    asked, facts = SETTINGS.changed({"python": python} | settings), RunFacts(triton_version(python), version.ours())
    store.add_run(run, path, found.digest, found.source, H200.key, asked, facts, found.asked)
    builder, judge = Builder(found, H200, box.choose(), store.contents, 2), Bench(found, final)
    cpu: Any = GpuJudge(found, gpu=None)
    ctx = Context(store, store.run(run), found, H200, builder, judge, None, cpu, lambda _: None)  # type: ignore[arg-type]
    _baseline(ctx)
    return ctx


def _baseline(ctx: Context) -> None:
    """The kernel as shipped, which is the tuned one as well: without held-out cases and a launch grid."""
    built = ctx.builder.build(ctx.target.source, {"CASES": None}, None, 2)
    timed: dict[str, Any] = {"ms": 2.0, "samples": tuple(around(2.0, 12)), "finalist": True}
    points = [point(built, c, i, **timed) for c, options in built.choices.items() for i in range(len(options))]
    own = baseline(built, points, libraries=("cuLibrary",), environment=MADE_UP)
    ctx.store.set_baseline(ctx.run.id, own)


def propose(ctx: Context, *sources: str, **told: Any) -> list[str]:
    """A generation; gives the names of its candidates."""
    n = max(ctx.store.generations(ctx.run.id), default=0) + 1
    plain = {"move": "a move", "rationale": "it may help", "proposer": "moves"}
    candidates = [proposed(s, **(plain | told)) for s in sources]
    ctx.store.add_generation(ctx.run.id, n, "shipped", candidates)
    return [c.id for c in candidates]


def accept(ctx: Context, name: str, faster: float = 1.06) -> None:
    """Builds a candidate whole, and records that it was accepted twice."""
    candidate = ctx.store.candidate(ctx.run.id, name)
    ctx.store.set_built(ctx.run.id, name, building.first(ctx, candidate, 2))
    candidate = ctx.store.candidate(ctx.run.id, name)
    choices = {c: o[0].label for c, o in candidate.build.choices.items()}
    first, again = (_look(ctx, faster, seed) for seed in (1, 2))
    said = [
        Evidence(s, None, plain(f"{s} was made up"), 1.0, coverage=COVERED).as_json()
        for s in ("smoke", "quick", "numerics", "time", "race")
    ]
    stages = [*said, Evidence("confirm", Verdict.ACCEPTED, plain("again, and made up"), 2.0).as_json()]
    evidence = first | {"choices": choices, "again": again, "stages": stages, "incumbent": "shipped"}
    i = again["speedup"]
    told = f"{i[1]:.3f}x [{i[0]:.3f}, {i[2]:.3f}] of the incumbent"
    steps.settle(ctx, candidate, Judgement(Verdict.ACCEPTED, "confirm", plain(told), evidence, COVERED), i[1], 12.5)


def _look(ctx: Context, faster: float, seed: int) -> dict[str, Any]:
    """The evidence of one look, by the arithmetic of the judge."""
    cases = ctx.baseline().cases
    ms = {"incumbent": 2.0, "shipped": 2.001, "tuned": 2.002, "A/A": 1.999, "candidate": 2.0 / faster}
    times = {c: {n: around(x + seed / 1e4, 24) for n, x in ms.items()} for c in cases}
    _, _, found = timing_verdict.on_time(times, dict.fromkeys(cases, 0.0), "incumbent", None, 4)
    pairs = {n: {c: (s[n], s["candidate"]) for c, s in times.items()} for n in ("incumbent", "shipped", "tuned")}
    against = {n: bootstrap.geomean(p, None).as_json() for n, p in pairs.items()}
    dropped = [{"case": cases[0], "strain": "wholly masked rows", "why": "inputs() holds nothing for it"}]
    numerics = [_compared(c, "", seed) for c in LOOKS] + [_compared(LOOKS[0], s.name, seed) for s in STRESS_INPUTS[:-1]]
    return found | {"against": against, "time": times, "numerics": numerics, "dropped": dropped, "disturbed": []}


def _compared(case: str, stress_input: str, seed: int) -> dict[str, Any]:
    draw = random.Random(f"{case} {stress_input} {seed}")
    errors = (Error(1e-4 * draw.random(), 1e-6 * draw.random(), 0),)
    return Comparison(case, draw.getrandbits(48), errors, (Bound(2e-4, 4e-6),), NONE, stress_input).as_json()


def refuse(ctx: Context, name: str, verdict: Verdict, stage: str, reason: str, ratio: float | None = None) -> None:
    """A verdict of a candidate that was measured as so many times faster, or not at all."""
    cases = ctx.baseline().cases
    quick = {c: {"incumbent": around(2.0, 6), "candidate": around(2.0 / ratio, 6)} for c in cases} if ratio else {}
    pairs = {c: (s["incumbent"], s["candidate"]) for c, s in quick.items()}
    evidence = (
        {"quick": quick, "speedup": bootstrap.geomean(pairs, None).as_json(), "incumbent": "shipped"} if ratio else {}
    )
    candidate = ctx.store.candidate(ctx.run.id, name)
    steps.settle(
        ctx,
        candidate,
        Judgement(verdict, stage, plain(reason), evidence, COVERED),
        evidence.get("speedup", [0, ratio])[1],
        1.0,
    )


def clocked(ctx: Context, which: str, turns: float = timelines.TURNS) -> None:
    """Takes the static profile of the incumbent, puts a made-up timeline beside it, and summarizes both."""
    context = GpuPassContext(ctx.builder, lambda: ctx.gpu)  # type: ignore[arg-type, return-value]
    for w in profile_targets.wanted(ctx, which):
        for s in static.subjects_of(context, w.source, w.bundle, w.case, w.label, w.together):
            place, contract = KernelRef(w.bundle, w.case, w.label, s.build), ctx.target.contract
            build: Mapping[str, Any] = ctx.store.contents.build(s.build) or {}
            text = ctx.store.contents.get(build["kernel"]["files"]["ttgir"], "ttgir").decode()
            told = timelines.timeline(scopes_of(reader.parse(text)), turns)
            answer = {"pass": gpu_passes.timeline.name, "answer": json_codec.as_json(told)}
            ctx.store.contents.put_record(PASSES, gpu_passes.timeline.key(context, place, contract), answer)
        found = profile_incumbent.profile_case(
            ctx, which, w, GpuBudget(None, 0.0, "Nsight Compute was made up to be absent"), 1
        )
        assert found.taken == ("static", "timeline"), found.passes
        profiles.add(ctx.store, ctx.run.id, found)
    profile_incumbent.summarize(ctx)


def whole(folder: Path) -> str:
    """A complete run of `spilling` that found something; gives its name."""
    path = folder / "spilling.py"
    path.write_text((TARGETS / "spilling.py").read_text())
    ctx = begin(folder, path)
    clocked(ctx, "shipped")
    source = ctx.target.source
    wider, slower = source.replace("maxnreg=96", "maxnreg=232"), source.replace("STEP=32", "STEP=16")
    better, worse = propose(ctx, wider, slower, move="let it have registers")
    accept(ctx, better)
    refuse(ctx, worse, Verdict.SLOWER, "quick", "0.912x of the incumbent", 0.912)
    clocked(ctx, better, timelines.TURNS / 2)
    (wrong,) = propose(ctx, source.replace("x @ y", "x @ y + 0") + "\n", move="another", parent=better)
    refuse(ctx, wrong, Verdict.WRONG, "smoke", "2k: output 0: max error 3.1 above 0.02")
    finish.finish(ctx)
    ctx.store.close()
    return ctx.run.id
