"""Builds what the baselines need: the kernel as shipped, its held-out cases, and its launch grid.

Reports what is wrong with a file that does not build as it stands. It measures nothing.
"""

import re
from collections.abc import Iterable, Sequence

from pgo_agent.agent.moves import launch_space
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import TargetFault, UsageFault
from pgo_agent.sandbox.target import SIDES
from pgo_agent.sandbox.threads import threads

SAMPLE = 24  # configurations of a case that are built where nothing is timed
GRID_SAMPLE = 12  # points of the launch grid that are built there: 36 of attention cost a minute, for estimates
HELD_OUT_SHARE = 4  # of this many cores one builds the held-out cases, while all build the launch grid
GridBuild = tuple[Built, Config | None]  # with the configuration in its text, for launches that are not autotuned


def as_shipped(ctx: Context, source: str) -> Built:
    """Build the kernel file as it stands, for the public cases of the run.

    Raises UsageFault for an unknown case, TargetFault if it does not build.
    """
    wanted = ctx.settings.cases
    asked = {"CASES": wanted or None}
    shipped = ctx.builder.build(source, asked, sampled(ctx), ctx.builder.cores, sample=True, again=True)
    for case, count in shipped.listed.items():
        if (built := len(shipped.choices.get(case, ()))) < count and count > (sampled(ctx) or count):
            text = f"{case.split('/', 1)[1]}: a sample of {built} of its {count} configurations is built"
            ctx.emit("note", text=f"{text}: without a GPU none is timed")
    public = shipped.described.get("sets", {}).get("CASES", {})
    unknown = [c for c in wanted if c not in public]
    if public and unknown:
        raise UsageFault(f"no public case is called {', '.join(unknown)}", f"the file has: {', '.join(public)}")
    names = wanted or public
    if shipped.ok and not names:
        raise TargetFault(f"{ctx.target.contract_path}: CASES is empty", "name at least one case")
    if taken := [n for n in shipped.described.get("libraries", ()) if n in SIDES]:
        problem = f"{ctx.target.contract_path}: LIBRARIES holds {', '.join(taken)}: so a side of the timing is called"
        raise TargetFault(problem, f"give it another name; these are taken: {', '.join(SIDES)}")
    must_build(ctx, shipped, [f"CASES/{n}" for n in names])
    return shipped


def others(ctx: Context, source: str, shipped: Built) -> tuple[Built, list[GridBuild]]:
    """Build the held-out cases and the launch grid, side by side."""
    with threads(1) as pool:
        workers = max(1, ctx.builder.cores // HELD_OUT_SHARE)
        limit = None if ctx.settings.drop_wrong else 1  # the first may be what is dropped
        building = pool.submit(ctx.builder.build, source, {"HELD_OUT": None}, limit, workers, again=True)
        grid = _grid(ctx, source, shipped)
        return building.result(), grid


def _grid(ctx: Context, source: str, shipped: Built) -> list[GridBuild]:
    """The builds of the launch grid, each with the configuration in its text for launches that are not autotuned."""
    if ctx.run.facts.given and (ctx.gpu is None or ctx.run.facts.against):
        ctx.emit("phase", phase="baseline", doing="checking the kernel itself")
        return []  # nothing is timed here, or nothing but the file's own list: a check does not need it
    grid = grid_points(ctx, source, shipped)
    if not grid.texts:
        ctx.emit("note", text=f"{grid.why}; the tuned baseline is the kernel as shipped")
        return []
    texts, limit = sample(grid) if ctx.gpu is None else (grid.texts, None)
    several = f" of {' and '.join(grid.kernels)}" if grid.several else ""
    points = f"{grid.points} points" if limit is None else f"{limit * len(texts)} of {grid.points} points"
    doing = f"checking the kernel, and building {points} of its launch grid{several}"
    ctx.emit("phase", phase="baseline", doing=doing)
    names = {"CASES": [c.split("/", 1)[1] for c in shipped.choices]}
    workers = max(1, ctx.builder.cores // len(texts))
    with threads(ctx.builder.cores) as pool:
        built = list(pool.map(lambda t: ctx.builder.build(t[0], names, limit, workers, sample=True), texts))
    return [(b, config) for b, (_, config) in zip(built, texts, strict=True)]


def sample(grid: launch_space.Varied) -> tuple[Sequence[tuple[str, Config | None]], int | None]:
    """Return texts of a grid at even distances, and how many configurations of each are built; None: all."""
    count, each = len(grid.texts), grid.points // len(grid.texts)
    if grid.points <= GRID_SAMPLE:
        return grid.texts, None
    most = min(count, GRID_SAMPLE)
    return [grid.texts[count * n // most] for n in range(most)], min(each, max(1, GRID_SAMPLE // most))


def grid_points(ctx: Context, source: str, shipped: Built) -> launch_space.Varied:
    """Return the launch grid: which launches are varied, and the texts that hold the configurations."""
    return launch_space.varied(
        source, shipped, ctx.store.contents.manifest(shipped.bundle), shipped.described["launch_space"]
    )


def written(ctx: Context, source: str, shipped: Built) -> Config | None:
    """Return the configuration in the text as shipped, for launches that are not autotuned; None without a grid."""
    return grid_points(ctx, source, shipped).written


def sampled(ctx: Context) -> int | None:
    """Return how many configurations of a case are built; None: all, as on a GPU, where they are timed."""
    return SAMPLE if ctx.gpu is None else None


def must_build(ctx: Context, built: Built, cases: Iterable[str]) -> None:
    """Raise TargetFault if a case is missing, with the place and cause of the failure and what to do."""
    missing = [c for c in cases if c not in built.choices]
    if built.ok and not missing:
        return
    failure = next((f for f in built.failures if not missing or f.case in missing or not f.case), None)
    where = f"{ctx.target.path}:{failure.line}" if failure and failure.line else str(ctx.target.path)
    what = f"{missing[0].split('/', 1)[1]}: " if missing else ""
    why = failure.message.strip()[:1500] if failure else "nothing was built"
    kinds = {
        "refused": "asks for what a recorded plan cannot hold",
        "build_error": "does not compile",
        "rejected": "does not make a valid bundle",
    }
    kind = kinds.get(failure.kind if failure else "", "fails when it is traced")
    advice = about_imports(why) or "fix the file, then start again"
    raise TargetFault(f"{where}: the kernel as it stands {kind}: {what}{why}", advice)


def about_imports(why: str) -> str:
    """Return advice for a file that needs a module which the box does not show; empty if that is not the cause."""
    module = re.search(r"No module named '([^']+)'", why)
    if module is None:
        return ""
    return (
        "only the file itself and installed packages can be seen where it is traced: put what it needs of "
        f"{module[1]} into the file, or install that as a package (not in editable mode)"
    )
