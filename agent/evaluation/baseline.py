"""The baselines: the kernel as shipped, what `triton.autotune` picks of its list, and the best of its own launch grid,
all by our timing, case by case.

On a GPU every configuration is checked against the reference and timed. Without one, a configuration whose very code
was measured before shows its recording, and any other an estimate; neither is ever called a measurement of this run.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgo_agent.agent.evaluation import interpreter, sweep
from pgo_agent.agent.moves import launch_config, space
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run import own_list
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import shipped_results
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import TargetFault, UsageFault
from pgo_agent.sandbox.gate import plan_rules
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.gpu_judge import bundle_ref
from pgo_agent.sandbox.target import SIDES
from pgo_agent.sandbox.threads import threads

SAMPLE = 24  # configurations of a case that are built where nothing is timed
HELD_OUT_SHARE = 4  # one in so many cores builds the held-out cases, while all work on the launch grid
Point = dict[str, Any]  # case, bundle, choice, said (how it is shown), config, plan_id, statics, ms, how, problem


def establish(ctx: Context) -> dict[str, Any]:
    """Builds and, on a GPU, measures the baselines. Raises TargetFault when the kernel itself fails or is wrong, and
    where the fastest of its own configurations is, unless `--drop-wrong` was said.
    """
    source = ctx.target.source
    ctx.emit("phase", phase="baseline", doing="building the kernel as shipped")
    shipped = _as_shipped(ctx, source)
    described = shipped.described
    cases = list(shipped.choices)
    with threads(1) as pool:
        checking = pool.submit(_check_small, ctx)
        held_out, grid = _others(ctx, source, shipped)
        checking.result()
    _must_build(ctx, held_out, [f"HELD_OUT/{n}" for n in described["sets"]["HELD_OUT"]])
    points = _points(ctx, shipped, described, _written(ctx, source, shipped))
    for built, config in grid:
        points += _points(ctx, built, described, config)
    points = _unique(points)
    own = {p["plan_id"] for p in points if p["bundle"] == shipped.bundle}
    _time(ctx, points, _points(ctx, held_out, described, None), own)
    unfit = own_list.unfit(points, own, shipped.failures)
    if unfit:
        ctx.emit("note", text=own_list.note(unfit))
    best, picked = _best(points, cases, own), own_list.autotuned(points, cases, own, order)
    if not ctx.settings.drop_wrong:
        own_list.ask(ctx.target.path, picked, best)
    found = {
        "cases": cases,
        "held_out": [f"HELD_OUT/{n}" for n in described["sets"]["HELD_OUT"]],
        "held_out_bundle": held_out.bundle,
        "work": described["work"],
        "weights": _weights(described),
        "nondeterministic": described["nondeterministic"],
        "libraries": described["libraries"],
        "allowed_ops": sorted(plan_rules.ops_of(_plans(ctx, shipped.bundle))),
        "shipped": best,
        own_list.AUTOTUNED: picked,
        "tuned": _best(points, cases, None),
        "varied": _grid_points(ctx, source, shipped, described).kernels if grid else [],
        "points": points,
        "unfit": unfit,
        "failures": [f.message.splitlines()[0][:200] for b in (shipped, *(g for g, _ in grid)) for f in b.failures],
        "environment": ctx.gpu.environment if ctx.gpu else None,
    }
    ctx.store.set_baseline(ctx.run.id, found)
    ctx.emit("baseline.completed", points=len(points), gpu_seconds=ctx.gpu_seconds())
    return found


def _plans(ctx: Context, bundle: str) -> list[Mapping[str, Any]]:
    return [p for choices in ctx.store.contents.manifest(bundle)["plans"].values() for p in choices.values()]


def rebuild(ctx: Context) -> None:
    """Builds again what `establish` built, onto the content store; measures nothing."""
    _others(ctx, ctx.target.source, _as_shipped(ctx, ctx.target.source))


def _others(ctx: Context, source: str, shipped: Built) -> tuple[Built, list[tuple[Built, Config | None]]]:
    """The held-out cases and the launch grid."""
    with threads(1) as pool:
        workers = max(1, ctx.builder.cores // HELD_OUT_SHARE)
        limit = None if ctx.settings.drop_wrong else 1  # the first may be what is dropped
        building = pool.submit(ctx.builder.build, source, {"HELD_OUT": None}, limit, workers)
        grid = _grid(ctx, source, shipped, shipped.described)
        return building.result(), grid


def _as_shipped(ctx: Context, source: str) -> Built:
    wanted = ctx.settings.cases
    shipped = ctx.builder.build(source, {"CASES": wanted or None}, sampled(ctx), ctx.builder.cores, sample=True)
    for case, count in shipped.listed.items():
        if (built := len(shipped.choices.get(case, ()))) < count and count > (sampled(ctx) or count):
            told = f"{case.split('/', 1)[1]}: a sample of {built} of its {count} configurations is built"
            ctx.emit("note", text=f"{told}: without a GPU none is timed")
    known = shipped.described.get("sets", {}).get("CASES", {})
    unknown = [c for c in wanted if c not in known]
    if known and unknown:
        raise UsageFault(f"no public case is called {', '.join(unknown)}", f"the file has: {', '.join(known)}")
    names = wanted or known
    if shipped.ok and not names:
        raise TargetFault(f"{ctx.target.contract_path}: CASES is empty", "name at least one case")
    if taken := [n for n in shipped.described.get("libraries", ()) if n in SIDES]:
        problem = f"{ctx.target.contract_path}: LIBRARIES holds {', '.join(taken)}: so a side of the timing is called"
        raise TargetFault(problem, f"give it another name; these are taken: {', '.join(SIDES)}")
    _must_build(ctx, shipped, [f"CASES/{n}" for n in names])
    return shipped


def sampled(ctx: Context) -> int | None:
    """How many configurations of a case are built of a file that may list hundreds; None, where they are timed: all."""
    return SAMPLE if ctx.gpu is None else None


def _must_build(ctx: Context, built: Built, cases: Iterable[str]) -> None:
    missing = [c for c in cases if c not in built.choices]
    if built.ok and not missing:
        return
    failure = next((f for f in built.failures if not missing or f.case in missing or not f.case), None)
    where = f"{ctx.target.path}:{failure.line}" if failure and failure.line else str(ctx.target.path)
    what = f"{missing[0].split('/', 1)[1]}: " if missing else ""
    why = failure.message.strip()[:1500] if failure else "nothing was built"
    said = {
        "refused": "asks for what a recorded plan cannot hold",
        "build_error": "does not compile",
        "rejected": "does not make a valid bundle",
    }
    kind = said.get(failure.kind if failure else "", "fails when it is traced")
    advice = about_imports(why) or "mend the file, then start again"
    raise TargetFault(f"{where}: the kernel as it stands {kind}: {what}{why}", advice)


def about_imports(why: str) -> str:
    """What to do about a file that needs a module which the box does not show; empty when that is not why it failed."""
    module = re.search(r"No module named '([^']+)'", why)
    if module is None:
        return ""
    return (
        "only the file itself and installed packages can be seen where it is traced: put what it needs of "
        f"{module[1]} into the file, or install that as a package (not in editable mode)"
    )


def _check_small(ctx: Context) -> None:
    """The original must be right on its own small cases, in Triton's interpreter; on a GPU the sweep tells instead."""
    if ctx.gpu is not None:
        return
    judged = interpreter.judged(ctx, ctx.target.source)
    if judged.verdict == Verdict.BUILT and not ctx.run.facts.given:  # a check says it of its candidate
        ctx.emit("warning", text=f"what follows compares no results: {judged.reason}")
    if judged.verdict == Verdict.REJECTED:
        raise TargetFault(f"{ctx.target.path}: {judged.reason}", "return a copy: `x = x.clone()` before the launch")
    if judged.verdict in (Verdict.WRONG, Verdict.CHEATING, Verdict.CRASHED, Verdict.BUILD_ERROR):
        raise TargetFault(
            f"{ctx.target.path}: the kernel as it stands does not pass its own reference: {judged.reason}",
            "mend kernel() or reference(); nothing can be optimized against a wrong baseline",
        )


def _grid(ctx: Context, source: str, shipped: Built, described: Mapping[str, Any]) -> list[tuple[Built, Config | None]]:
    """What the launch grid builds, each text with what stands in it for launches that are not autotuned."""
    if ctx.run.facts.given and ctx.gpu is None:
        ctx.emit("phase", phase="baseline", doing="checking the kernel itself")
        return []  # nothing is timed here, so that a check has no use for it
    grid = _grid_points(ctx, source, shipped, described)
    if not grid.texts:
        ctx.emit("note", text=f"{grid.why}; the tuned baseline is the kernel as shipped")
        return []
    of = f" of {' and '.join(grid.kernels)}" if grid.several else ""
    ctx.emit(
        "phase",
        phase="baseline",
        doing=f"checking the kernel, and building {grid.points} points of its launch grid{of}",
    )
    names = {"CASES": [c.split("/", 1)[1] for c in shipped.choices]}
    workers = max(1, ctx.builder.cores // len(grid.texts))
    with threads(ctx.builder.cores) as pool:
        built = list(pool.map(lambda text: ctx.builder.build(text[0], names, None, workers), grid.texts))
    return [(b, config) for b, (_, config) in zip(built, grid.texts, strict=True)]


def _grid_points(ctx: Context, source: str, shipped: Built, described: Mapping[str, Any]) -> space.Varied:
    return space.varied(source, shipped, ctx.store.contents.manifest(shipped.bundle), described["launch_space"])


def _written(ctx: Context, source: str, shipped: Built) -> Config | None:
    """What stands in the text as shipped for launches that are not autotuned, as far as the grid has them."""
    return _grid_points(ctx, source, shipped, shipped.described).written


def _points(ctx: Context, built: Built, described: Mapping[str, Any], written: Config | None) -> list[Point]:
    """Everything known of a build's configurations. `written`: what stands in its text, for plain launches."""
    if not built.ok:
        return []
    manifest = ctx.store.contents.manifest(built.bundle)
    return [
        {
            "case": case,
            "bundle": built.bundle,
            "choice": c.label,
            "said": launch_config.labelled(c.label, c.config, written),
            "config": c.config | (written or {}),
            "plan_id": c.plan_id,
            "codes": [built.codes[k] for k in c.kernels],
            "statics": [built.statics[k] for k in c.kernels],
            **known(ctx, manifest, case, c.label, c.plan_id, [built.statics[k] for k in c.kernels], described["work"]),
        }
        for case, choices in built.choices.items()
        for c in choices
    ]


def known(
    ctx: Context,
    manifest: Mapping[str, Any],
    case: str,
    label: str,
    plan_id: str,
    statics: Sequence[Mapping[str, Any]],
    work: Mapping[str, Any],
) -> dict[str, Any]:
    """What is known of a plan without measuring it: its recording, or an estimate."""
    found = shipped_results.find(plan_id, ctx.device.name)
    if found is not None:
        return {"ms": found.ms, "how": "recorded", "problem": "", "finalist": found.finalist}
    kind, name = case.split("/", 1)
    launches = [s for s in manifest["plans"][case][label]["steps"] if "kernel" in s]
    total = sum(
        cost_model.estimate(
            static,
            manifest["kernels"][s["kernel"]]["num_warps"],
            s["grid"][0] * s["grid"][1] * s["grid"][2],
            ctx.device,
            work[kind][name]["flops"] * share,
            work[kind][name]["bytes"] / len(launches),
        )
        for s, static, share in zip(launches, statics, _shares(statics), strict=True)
    )
    return {"ms": total, "how": "estimate", "problem": ""}


def _shares(statics: Sequence[Mapping[str, Any]]) -> list[float]:
    """How the work is shared among launches, for an estimate: evenly by those with tensor loops, if there are any."""
    weights = [1.0 if s["loop_flops"] else 0.0 for s in statics]
    return [w / sum(weights) for w in weights] if any(weights) else [1 / len(statics)] * len(statics)


def rate(ctx: Context, work: Mapping[str, int], ms: float) -> dict[str, Any]:
    """The rate of a case's work on the run's device, with its unit."""
    value, unit = ctx.device.rate(work["flops"], work["bytes"], ms)
    return {"rate": value, "unit": unit}


def _time(ctx: Context, points: list[Point], held_out: list[Point], own: set[str]) -> None:
    """On a GPU: replaces what is known by what is measured. Raises TargetFault when the original is wrong."""
    if ctx.gpu is None:
        return
    ctx.emit("phase", phase="baseline", doing=f"measuring {len(points)} configurations")
    entries = [
        {
            "bundle": bundle_ref(ctx.store.contents, p["bundle"]),
            "case": p["case"],
            "choice": p["choice"],
            "own": p["plan_id"] in own,
        }
        for p in (*points, *held_out)
    ]
    measured = {(e["bundle"], e["case"], e["choice"]): e for e in sweep.sweep(ctx, ctx.gpu, entries)}
    for p in (*points, *held_out):
        e = measured[p["bundle"], p["case"], p["choice"]]
        ms = statistics.median(e["ms"]) if e["ms"] else None
        p |= {"ms": ms, "samples": e["ms"], "how": "measured", "problem": e["problem"], "check": e.get("check")}
        p |= {"finalist": e.get("finalist", False), "taken_on": e["taken_on"]}
    for case in dict.fromkeys(p["case"] for p in (*points, *held_out)):
        listed = [p for p in (*points, *held_out) if p["case"] == case]
        if all(p["problem"] for p in listed):
            shown = case.split("/", 1)[1]
            raise TargetFault(
                f"{ctx.target.path}: the kernel as it stands is wrong on {shown}: {listed[0]['problem']}",
                f"{own_list.advice(listed[:1])}mend kernel() or reference(); nothing can be optimized against a wrong "
                "baseline",
            )


def _best(points: Sequence[Point], cases: Sequence[str], own: set[str] | None) -> dict[str, Point]:
    """The fastest right configuration of each case: of the file's own list (`own`), or of all."""
    best = {}
    for case in cases:
        fit = [p for p in points if p["case"] == case and not p["problem"] and (own is None or p["plan_id"] in own)]
        if not fit:
            raise TargetFault(f"no configuration of the file is right on {case.split('/', 1)[1]}", "mend the kernel")
        best[case] = {k: v for k, v in min(fit, key=order).items() if k != "statics"}
    return best


def order(p: Point) -> tuple[bool, bool, float]:
    """Recorded times before estimates, and what was timed side by side before the rest: no mixed comparisons."""
    return p["how"] == "estimate", not p.get("finalist", True), p["ms"]


def _unique(points: list[Point]) -> list[Point]:
    seen: dict[tuple[str, str], Point] = {}
    for p in points:
        seen.setdefault((p["case"], p["plan_id"]), p)
    return list(seen.values())


def _weights(described: Mapping[str, Any]) -> dict[str, float] | None:
    given = described["weights"]
    return {f"CASES/{n}": float(w) for n, w in given.items()} if isinstance(given, dict) else None
