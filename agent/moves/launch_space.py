"""The grid of the tuned baseline: whose launch is varied, over which values, and the texts that hold it.

LAUNCH_SPACE names its kernels, `{"_matmul": {"BLOCK_M": [64, 128]}}`, or is flat: then it is of the one launch that
takes all of its parameters, and among several of the one that does most work (`workload.py`). So is a grid that nobody
declared: of those whose launches the file holds, for a package may launch others of its own. Relies on
`launch_config.py` for the points of one kernel.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.launched import LAUNCH_OPTIONS
from pgo_agent.agent.moves.launch_config import GRID_LIMIT, config_of, launch_grid, named
from pgo_agent.agent.moves.launch_levers import written
from pgo_agent.agent.moves.launch_sites import (
    Config,
    LaunchSite,
    numbers,
    sites,
    unfollowed,
    unsettable,
    with_configs,
)
from pgo_agent.agent.moves.move import NO_LAUNCH, Best
from pgo_agent.agent.moves.workload import hardest
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import TargetFault

Space = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Varied:
    """What the tuned baseline varies, beside the kernel as shipped."""

    texts: tuple[tuple[str, Config | None], ...] = ()  # and what stands in each for launches that are not autotuned
    points: int = 0
    kernels: tuple[str, ...] = ()  # whose launches are varied
    written: Config | None = None  # what the file as shipped gives to those that are not autotuned
    why: str = ""  # why nothing is varied
    several: bool = False  # whether the target launches other kernels, too


def varied(source: str, shipped: Built, manifest: Mapping[str, Any], space: object) -> Varied:
    """Return the grid of a target. `space`: its LAUNCH_SPACE, if any; `manifest`: of the shipped kernel's bundle.

    Raises TargetFault where LAUNCH_SPACE asks for what no launch takes, or is no such grid.
    """
    plans = [manifest["plans"][case][choices[0].label] for case, choices in shipped.choices.items()]
    every_site, order = sites(source), hardest(plans, manifest["kernels"], shipped.statics)
    launched = {s.kernel: s for s in every_site if s.kernel in order}
    seen = {name: _seen(site, every_site, shipped) for name, site in launched.items()}
    declared = _declared(space, launched, seen, order, source)
    chosen: dict[str, Space | None] = {**declared} or dict.fromkeys(([n for n in order if n in launched] or order)[:1])
    standing = next((s for s in every_site if s.kernel in order[:1] and not s.autotuned), None)
    nothing = Varied(written=named(standing, every_site, standing.values) if standing else None)
    if not launched:
        return Varied(why=f"no launch parameter to vary: {_unseen(source, order)}")
    try:
        points = {name: _points(launched.get(name), seen.get(name, []), own) for name, own in chosen.items()}
        grid = _laid_out(source, every_site, points) or replace(nothing, why=_unvaried(order, bool(declared)))
        return replace(grid, several=len(order) > 1)
    except DoesNotApply as e:
        if declared:
            raise TargetFault(f"LAUNCH_SPACE cannot be put into the file: {e}", "leave that parameter out") from None
        return replace(nothing, why=f"no launch parameter to vary: {e}")


def _seen(site: LaunchSite, every_site: Sequence[LaunchSite], shipped: Built) -> list[Config]:
    """The configurations that the kernel as shipped has: of its list, or as it is written and built."""
    seen = list[Config]()
    for choice in itertools.chain.from_iterable(shipped.choices.values()):
        statics = {shipped.statics[k]["name"]: shipped.statics[k] for k in choice.kernels}
        if site.kernel in statics:
            config = config_of(site, every_site, numbers(choice.config), statics.keys())
            own = written(site, Best(config, statics[site.kernel])) if config is not None else {}
            seen += [own] if own and own not in seen else []
    return seen


# what is declared -----------------------------------------------------------------------------------------------------


def _declared(
    space: object,
    launched: Mapping[str, LaunchSite],
    seen: Mapping[str, Sequence[Config]],
    order: Sequence[str],
    source: str,
) -> dict[str, Space]:
    """Kernel -> its part of LAUNCH_SPACE; empty where there is none."""
    if not space:
        return {}
    if not isinstance(space, Mapping):
        raise TargetFault("LAUNCH_SPACE is no dict", 'write it like {"BLOCK": [64, 128], "num_warps": [4, 8]}')
    if any(isinstance(v, Mapping) for v in space.values()):
        return {str(name): _of_kernel(str(name), own, launched, seen, order, source) for name, own in space.items()}
    if not launched:
        return {}
    _check(space, "")
    takes = {name: _settable(launched[name], seen[name]) for name in order if name in launched}
    fitting = [name for name in takes if space.keys() <= takes[name]]
    if not fitting:
        raise _unknown(space, launched, takes)
    return {fitting[0]: space}


def _of_kernel(
    name: str,
    own: object,
    launched: Mapping[str, LaunchSite],
    seen: Mapping[str, Sequence[Config]],
    order: Sequence[str],
    source: str,
) -> Space:
    if not isinstance(own, Mapping):
        problem = f"LAUNCH_SPACE names kernels, and {name} beside them"
        raise TargetFault(problem, 'give each kernel its own: {"kernel": {"BLOCK": [64, 128]}}')
    if name not in launched:
        there = ", ".join(launched) or "none"
        if name in order:
            problem = f"LAUNCH_SPACE names {name}, whose launch is not followed: {_unseen(source, [name])}"
        else:
            problem = f"LAUNCH_SPACE names the kernel {name}, which no public case launches"
        raise TargetFault(problem, f"these launches can be varied: {there}")
    _check(own, f" for {name}")
    takes = _settable(launched[name], seen[name])
    if not own.keys() <= takes:
        raise _unknown(own, {name: launched[name]}, {name: takes})
    return own


def _check(space: Mapping[Any, Any], where: str) -> None:
    for name, values in space.items():
        fine = isinstance(values, list | tuple) and values and all(isinstance(v, bool | int | str) for v in values)
        if not isinstance(name, str) or not fine:
            problem = f"LAUNCH_SPACE gives {name!r}{where} as {values!r}"[:200]
            raise TargetFault(problem, 'give a list of values: {"BLOCK": [64, 128]}')


def _settable(site: LaunchSite, seen: Sequence[Config]) -> set[str]:
    names = {*LAUNCH_OPTIONS, *site.edits, *set[str]().union(*seen)}
    return {n for n in names if not unsettable(site, n)}


def _unknown(space: Space, launched: Mapping[str, LaunchSite], takes: Mapping[str, set[str]]) -> TargetFault:
    unknown = sorted(n for n in space if not any(n in t for t in takes.values()))
    why = [unsettable(s, n) for n in unknown for s in launched.values() if n in s.fixed or n in s.tied]
    of = next(iter(launched)) if len(launched) == 1 else "the kernel"
    if not unknown:
        problem = f"no launch takes all that LAUNCH_SPACE names: {', '.join(sorted(space))}"
        return TargetFault(problem, 'say whose they are: {"kernel": {"BLOCK": [64, 128]}}')
    problem = f"LAUNCH_SPACE names {', '.join(unknown)}, which no launch of {of} takes"
    use = "; ".join(f"{k}: {', '.join(sorted(t))}" for k, t in takes.items()) if len(takes) > 1 else ""
    return TargetFault(f"{problem}{': ' if why else ''}{'; '.join(why)}", f"use: {use or _listed(takes)}")


def _listed(takes: Mapping[str, set[str]]) -> str:
    return ", ".join(sorted(set[str]().union(*takes.values())))


# the points -----------------------------------------------------------------------------------------------------------


def _points(site: LaunchSite | None, seen: Sequence[Config], space: Space | None) -> list[Config]:
    """The points of one kernel. What a launch computes stays computed where the grid does not set it."""
    if site is None:
        return []
    points = launch_grid(space, seen)
    if site.autotuned:
        return points
    varying = {*site.values, *(space or {}), *_differing(points)}
    return [{k: v for k, v in p.items() if k in varying} for p in points]


def _differing(points: Sequence[Config]) -> set[str]:
    return {k for p in points for k, v in p.items() if any(q.get(k) != v for q in points)}


def _laid_out(source: str, every_site: Sequence[LaunchSite], points: Mapping[str, list[Config]]) -> Varied | None:
    """The texts of the points: lists at autotuned launches, one text for each combination of the others'.

    None where that is nothing but what stands there.
    """
    own = {s.kernel: s for s in every_site if points.get(s.kernel)}
    tuned, plain = [s for s in own.values() if s.autotuned], [s for s in own.values() if not s.autotuned]
    combined = list(itertools.product(*([(s, p) for p in points[s.kernel]] for s in plain)))
    total = len(combined) * max(1, sum(len(points[s.kernel]) for s in tuned))
    if not own or (total == 1 and not tuned and all(p == s.values for s, p in combined[0])):
        return None
    if total == 1 and tuned and not plain and _alone(source, tuned[0], points[tuned[0].kernel]):
        return None
    if total > GRID_LIMIT:
        raise TargetFault(f"LAUNCH_SPACE has {total} points, at most {GRID_LIMIT} are tried", "declare a smaller grid")
    for site in tuned:
        source = _put(source, site.kernel, points[site.kernel])
    texts = list[tuple[str, Config | None]]()
    for combination in combined:
        text, config = source, Config()
        for site, point in combination:
            text, config = _put(text, site.kernel, [point]), config | named(site, every_site, point)
        texts.append((text, config if plain else None))
    standing = {k: v for s in plain for k, v in named(s, every_site, s.values).items()}
    return Varied(tuple(texts), total, tuple(own), standing if plain else None)


def _put(source: str, kernel: str, configs: Sequence[Config]) -> str:
    return with_configs(source, next(s for s in sites(source) if s.kernel == kernel), configs)


def _alone(source: str, site: LaunchSite, points: Sequence[Config]) -> bool:
    """Whether the one point of a grid is the one that stands in the file."""
    return _put(source, site.kernel, points) == source


def _unvaried(order: Sequence[str], declared: bool) -> str:
    if declared:
        return "LAUNCH_SPACE holds nothing but what stands in the file"
    which = f" of {order[0]}, which does most of the work," if len(order) > 1 else ""
    return f"the launch{which} names no parameter to vary"


def _unseen(source: str, kernels: Sequence[str]) -> str:
    """Why no launch of these kernels is known."""
    uses = [use for name, use in unfollowed(source).items() if name in kernels]
    return f"a launch is not followed: {uses[0]}" if uses else NO_LAUNCH
