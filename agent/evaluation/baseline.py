"""Establishes the baselines of each case, by our timing: the kernel as shipped, what `triton.autotune` picks of its
list, and the best of its own launch grid.

On a GPU every configuration is checked against the reference and timed. Without one, a configuration shows the
recording of its very code if there is one, else an estimate; neither is ever called a measurement of this run. Relies
on `baseline_builds.py` for the builds and on `baseline_sweep.py` for the timing; the data is `record/baseline.py`'s.
"""

import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from pgo_agent.agent.evaluation import baseline_builds, baseline_sweep, interpreter
from pgo_agent.agent.evaluation.baseline_sweep import Entry
from pgo_agent.agent.evaluation.known_time import known_time
from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.run import shipped_configurations
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.baseline import Baseline, BaselinePoint, Best, TimeSource, Work
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.documents import Described, PlanDocument
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate import call_difference, plan_rules
from pgo_agent.sandbox.gate.reason import shown
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.target import IN_PLACE
from pgo_agent.sandbox.threads import threads

Works = dict[str, dict[str, Work]]  # set of cases -> name -> work


def establish(ctx: Context) -> Baseline:
    """Build and, on a GPU, measure the baselines.

    Raises TargetFault if the kernel fails or is wrong, or if its fastest configuration is, without `--drop-wrong`.
    """
    source = ctx.target.source
    ctx.emit("phase", phase="baseline", doing="building the kernel as shipped")
    with _checked(ctx) as checking:
        shipped = baseline_builds.as_shipped(ctx, source)
        held_out, grid = baseline_builds.others(ctx, source, shipped)
        checking.result()
    hidden = tuple(f"HELD_OUT/{n}" for n in shipped.described["sets"]["HELD_OUT"])
    baseline_builds.must_build(ctx, held_out, hidden)
    works: Works = json_codec.from_json(Works, shipped.described["work"])
    builds = [(shipped, baseline_builds.written(ctx, source, shipped)), *grid]
    points = _unique([p for built, written in builds for p in _points(ctx, built, works, written)])
    own_plans = {p.plan_id for p in points if p.bundle == shipped.bundle}
    points = _measured(ctx, points, _points(ctx, held_out, works, None), own_plans)
    cases, unfit = tuple(shipped.choices), shipped_configurations.unfit(points, own_plans, shipped.failures)
    if unfit:
        ctx.emit("note", text=shipped_configurations.note(unfit))
    if loose := plan_rules.unreturned(_plans(ctx, shipped.bundle), ctx.target.in_place):
        ctx.emit("warning", text=f"kernel() does not return {', '.join(loose)}: what becomes of it is not compared")
    again = call_difference.together(shipped.again, held_out.again)
    for case, different in list((again or {}).items())[:1]:
        text = f"{shown(case)}: when kernel() is called again, {different[0].said}; one call is what is judged"
        ctx.emit("warning", text=text)
    best, picked = _best(points, cases, own_plans), shipped_configurations.autotuned(points, cases, own_plans)
    if not ctx.settings.drop_wrong and (wrong := {c: p for c, p in picked.items() if p.problem}):
        raise shipped_configurations.question(ctx.target.path, wrong, best, _wrong_on_held_out(ctx, works, wrong))
    baseline = Baseline(
        cases=cases,
        held_out=hidden,
        held_out_bundle=held_out.bundle,
        work=works,
        weights=_weights(shipped.described),
        nondeterministic=shipped.described["nondeterministic"],
        libraries=tuple(shipped.described["libraries"]),
        allowed_ops=tuple(sorted(plan_rules.ops_of(_plans(ctx, shipped.bundle)))),
        shipped=best,
        autotuned=picked,
        tuned=_best(points, cases, None),
        varied=tuple(baseline_builds.grid_points(ctx, source, shipped).kernels if grid else ()),
        points=tuple(points),
        unfit=tuple(unfit),
        failures=tuple(f.message.splitlines()[0][:200] for b in (shipped, *(g for g, _ in grid)) for f in b.failures),
        environment=ctx.gpu.environment if ctx.gpu else None,
        again=again,
    )
    ctx.store.set_baseline(ctx.run.id, baseline)
    ctx.emit("baseline.completed", points=len(points), gpu_seconds=ctx.gpu_seconds())
    return baseline


def rebuild(ctx: Context) -> None:
    """Build again what `establish` built, into the content store; measure nothing."""
    source = ctx.target.source
    baseline_builds.others(ctx, source, baseline_builds.as_shipped(ctx, source))


def _plans(ctx: Context, bundle: str) -> list[PlanDocument]:
    return [p for choices in ctx.store.contents.manifest(bundle)["plans"].values() for p in choices.values()]


@contextmanager
def _checked(ctx: Context) -> Iterator[Future[None]]:
    """Check the original in the interpreter meanwhile. What is wrong with its builds is said without waiting for it."""
    with threads(1) as pool:
        try:
            yield pool.submit(_check_small, ctx)
        except Exception:
            ctx.cpu.close()
            raise


def _check_small(ctx: Context) -> None:
    """Check the original on its own small cases in Triton's interpreter; on a GPU the sweep checks it instead."""
    if ctx.gpu is not None:
        return
    judged = interpreter.judged(ctx, ctx.target.source)
    if judged.verdict == Verdict.BUILT and not ctx.run.facts.given:  # a check says it of its candidate
        ctx.emit("warning", text=f"what follows compares no results: {judged.reason}")
    if judged.verdict == Verdict.REJECTED:
        hint = f'{IN_PLACE} = ("x",) beside the cases says that kernel() changes x; a copy would be timed with the rest'
        raise TargetFault(f"{ctx.target.path}: {judged.reason}", hint)
    if judged.verdict in (Verdict.WRONG, Verdict.CHEATING, Verdict.CRASHED, Verdict.BUILD_ERROR):
        found = json_codec.from_json(list[JsonObject], judged.evidence.get("numerics", []))
        admits = shipped_configurations.admitting(c for c in found if c.get("problem"))
        raise TargetFault(
            f"{ctx.target.path}: the kernel as it stands does not pass its own reference: {judged.reason}",
            f"{admits}fix kernel() or reference(); nothing can be optimized against a wrong baseline",
        )


def _points(ctx: Context, built: Built, works: Works, written: Config | None) -> list[BaselinePoint]:
    """What is known of each configuration of a build. `written`: the configuration in its text, for plain launches."""
    if not built.ok:
        return []
    manifest, points = ctx.store.contents.manifest(built.bundle), list[BaselinePoint]()
    for case, c in ((case, c) for case, choices in built.choices.items() for c in choices):
        statics, (kind, name) = built.statics_of(c), case.split("/", 1)
        time = known_time(ctx, manifest, case, c.label, c.plan_id, statics, works[kind][name])
        points.append(
            BaselinePoint(
                case=case,
                bundle=built.bundle,
                choice=c.label,
                said=launch_config.labelled(c.label, c.config, written),
                config=c.config | (written or {}),
                plan_id=c.plan_id,
                codes=built.codes_of(c),
                statics=statics,
                ms=time.ms,
                how=time.how,
                finalist=time.finalist,
            )
        )
    return points


def _measured(
    ctx: Context, points: list[BaselinePoint], held_out: list[BaselinePoint], own_plans: set[str]
) -> list[BaselinePoint]:
    """The points with measured times, on a GPU. Raises TargetFault if the original is wrong."""
    if ctx.gpu is None:
        return points
    ctx.emit("phase", phase="baseline", doing=f"measuring {len(points)} configurations")
    measured = _swept(ctx, ctx.gpu, (*points, *held_out), own_plans)
    for case in dict.fromkeys(p.case for p in measured):
        listed = [p for p in measured if p.case == case]
        if all(p.problem for p in listed):
            raise TargetFault(
                f"{ctx.target.path}: the kernel as it stands is wrong on {shown(case)}: {listed[0].problem}",
                f"{shipped_configurations.advice(listed[:1])}fix kernel() or reference(); "
                "nothing can be optimized against a wrong baseline",
            )
    return measured[: len(points)]


def _swept(ctx: Context, gpu: Judge, points: Sequence[BaselinePoint], own_plans: set[str]) -> list[BaselinePoint]:
    entries = [Entry(p.bundle, p.case, p.choice, p.plan_id in own_plans) for p in points]
    by_entry = baseline_sweep.sweep(ctx, gpu, entries)
    return [
        replace(
            p,
            ms=statistics.median(s.ms) if s.ms else None,
            samples=s.ms,
            how=TimeSource.MEASURED,
            problem=s.problem,
            check=s.check,
            finalist=s.finalist,
            taken_on=s.taken_on,
        )
        for p, e in zip(points, entries, strict=True)
        for s in (by_entry[e],)
    ]


def _wrong_on_held_out(ctx: Context, works: Works, wrong: Best) -> list[BaselinePoint]:
    """What the same configurations do wrong on held-out cases, which are otherwise built with the first alone: a
    TOLERANCE that is advised must admit that too."""
    if ctx.gpu is None:
        return []
    ctx.emit("phase", phase="baseline", doing="checking what triton.autotune picks on held-out cases")
    built = ctx.builder.build(ctx.target.source, {"HELD_OUT": None}, None, ctx.builder.cores)
    asked = [p.config for p in wrong.values()]
    points = [p for p in _points(ctx, built, works, None) if p.config in asked]
    return [p for p in _swept(ctx, ctx.gpu, points, own_plans=set()) if p.problem]


def _best(points: Sequence[BaselinePoint], cases: Sequence[str], own_plans: set[str] | None) -> Best:
    """The fastest right configuration of each case: of the file's own list (`own_plans`), or of all."""
    best = {}
    for case in cases:
        fit = [p for p in points if p.case == case and not p.problem and (own_plans is None or p.plan_id in own_plans)]
        if not fit:
            wrong = next((f" ({p.problem})" for p in points if p.case == case), "")
            hint = f"fix the kernel; inputs that it changes belong in {IN_PLACE}"
            raise TargetFault(f"no configuration of the file is right on {case.split('/', 1)[1]}{wrong}", hint)
        best[case] = replace(min(fit, key=lambda p: p.rank), statics=())
    return best


def _unique(points: Sequence[BaselinePoint]) -> list[BaselinePoint]:
    seen: dict[tuple[str, str], BaselinePoint] = {}
    for p in points:
        seen.setdefault((p.case, p.plan_id), p)
    return list(seen.values())


def _weights(described: Described) -> dict[str, float] | None:
    weights = described["weights"]
    return {f"CASES/{n}": float(w) for n, w in weights.items()} if isinstance(weights, dict) else None
