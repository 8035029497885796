"""Builds what the baselines are made of: the kernel as shipped, its held-out cases, and its launch grid.

Says what is wrong with a file that does not build as it stands. Measures nothing.
"""

import re
from collections.abc import Iterable

from pgo_agent.agent.moves import space
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import TargetFault, UsageFault
from pgo_agent.sandbox.target import SIDES
from pgo_agent.sandbox.threads import threads

SAMPLE = 24  # configurations of a case that are built where nothing is timed
HELD_OUT_SHARE = 4  # one in so many cores builds the held-out cases, while all work on the launch grid
GridBuild = tuple[Built, Config | None]  # with what stands in its text for launches that are not autotuned


def as_shipped(ctx: Context, source: str) -> Built:
    """The kernel file as it stands, for the public cases of the run. Raises UsageFault for a case that it has not, and
    TargetFault where it does not build."""
    wanted = ctx.settings.cases
    shipped = ctx.builder.build(source, {"CASES": wanted or None}, sampled(ctx), ctx.builder.cores, sample=True)
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
    """The held-out cases and the launch grid."""
    with threads(1) as pool:
        workers = max(1, ctx.builder.cores // HELD_OUT_SHARE)
        limit = None if ctx.settings.drop_wrong else 1  # the first may be what is dropped
        building = pool.submit(ctx.builder.build, source, {"HELD_OUT": None}, limit, workers)
        grid = _grid(ctx, source, shipped)
        return building.result(), grid


def _grid(ctx: Context, source: str, shipped: Built) -> list[GridBuild]:
    """What the launch grid builds, each text with what stands in it for launches that are not autotuned."""
    if ctx.run.facts.given and ctx.gpu is None:
        ctx.emit("phase", phase="baseline", doing="checking the kernel itself")
        return []  # nothing is timed here, so that a check has no use for it
    grid = grid_points(ctx, source, shipped)
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


def grid_points(ctx: Context, source: str, shipped: Built) -> space.Varied:
    """The launch grid: whose launch is varied, and the texts that hold it."""
    return space.varied(source, shipped, ctx.store.contents.manifest(shipped.bundle), shipped.described["launch_space"])


def written(ctx: Context, source: str, shipped: Built) -> Config | None:
    """What stands in the text as shipped for launches that are not autotuned, as far as the grid has them."""
    return grid_points(ctx, source, shipped).written


def sampled(ctx: Context) -> int | None:
    """How many configurations of a case are built of a file that may list hundreds; None, where they are timed: all."""
    return SAMPLE if ctx.gpu is None else None


def must_build(ctx: Context, built: Built, cases: Iterable[str]) -> None:
    """Raises TargetFault where a case is missing, with where the file fails, why, and what to do about it."""
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
