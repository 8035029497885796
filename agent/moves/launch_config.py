"""Launch moves: other configurations for the launch sites that stand in the file.

The first proposal is what the declared grid showed to be best for each case; the next ones step outside of the grid,
one parameter at a time, each with the symptom that it answers. Where a file launches several kernels, each has its
turn, the one that does the work first. `launch_space.py` says which of them the declared grid varies.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pgo_agent.agent.moves import scaled_tiles
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.launched import LAUNCH_OPTIONS
from pgo_agent.agent.moves.launch_levers import refuted, steps, written
from pgo_agent.agent.moves.launch_sites import Config, LaunchSite, sites, unsettable, with_configs
from pgo_agent.agent.moves.move import CARRIED, Best, Proposal, Skipped, checked
from pgo_agent.agent.moves.priority import ProfileEvidence
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import TargetFault

GRID_LIMIT = 256  # points of a launch grid


def launch_grid(space: Mapping[str, Sequence[int]] | None, seen: Sequence[Config]) -> list[Config]:
    """Return the points of the tuned baseline: the declared LAUNCH_SPACE, or else one around the file's own values."""
    if not seen:
        return []
    space = space or _around(seen)
    allowed = set().union(*seen) | set(LAUNCH_OPTIONS)
    unknown = sorted(set(space) - allowed)
    if unknown:
        raise TargetFault(
            f"LAUNCH_SPACE names {', '.join(unknown)}, which no launch of the kernel takes",
            f"use: {', '.join(sorted(allowed))}",
        )
    fixed = {k: v for k, v in seen[0].items() if k not in space}
    points = [fixed | dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if len(points) > GRID_LIMIT:
        raise TargetFault(
            f"LAUNCH_SPACE has {len(points)} points, at most {GRID_LIMIT} are tried", "declare a smaller grid"
        )
    return points


def _around(seen: Sequence[Config]) -> dict[str, list[int]]:
    """Half and twice of what stands in the file, for the two parameters of most effect; neighbours for the options."""
    space: dict[str, list[int]] = {}
    for name in seen[0]:
        values = sorted({c[name] for c in seen if type(c.get(name)) is int})
        if values and name == "num_warps":
            space[name] = sorted({*values, 4, 8})
        elif values and name == "num_stages":
            space[name] = sorted({*values, 2, 3, 4})
        elif values and name not in LAUNCH_OPTIONS and all(v >= 16 and v & (v - 1) == 0 for v in values):
            twice = [values[-1] * 2] if values[-1] < 256 else []
            space[name] = sorted({*values, max(values[0] // 2, 16), *twice})
    while _points(space) > GRID_LIMIT:
        widest = max(space, key=lambda k: len(space[k]))
        space[widest] = space[widest][: len(space[widest]) - 1]
    return space


def _points(space: Mapping[str, Sequence[int]]) -> int:
    total = 1
    for values in space.values():
        total *= len(values)
    return total


def propose(
    source: str, best: Mapping[str, Best], measured: Sequence[Config], device: Device, asked: ProfileEvidence
) -> Iterator[Proposal | Skipped]:
    """Yield launch proposals. `best`: case -> its best configuration; `measured`: points measured already.

    The kernel that the profile is of comes first where it alone has dots: it does the work. Others have their turns.
    """
    every_site = sites(source)
    busiest = {b.static.get("name") for b in best.values()}
    launched = {name for b in best.values() for name in b.profiles}
    dots = {n for b in best.values() for n, profile in b.profiles.items() if profile.get("loop_flops")}
    turns = list[Iterator[Proposal | Skipped]]()
    for site in sorted(every_site, key=lambda s: s.kernel not in busiest):  # stable: else as they stand in the file
        if launched and site.kernel not in launched:
            continue
        made = _of_site(source, site, every_site, best, measured, device, asked)
        if dots == {site.kernel}:
            yield from made
        else:
            turns.append(made)
    for turn in itertools.zip_longest(*turns):
        yield from (p for p in turn if p is not None)


def _of_site(
    source: str,
    site: LaunchSite,
    every_site: Sequence[LaunchSite],
    best: Mapping[str, Best],
    measured: Sequence[Config],
    device: Device,
    asked: ProfileEvidence,
) -> Iterator[Proposal | Skipped]:
    """Yield the proposals for one launch."""
    where = f" in {site.kernel}" if len(every_site) > 1 else ""
    bases = bases_of(site, every_site, best.values())
    yield from _best_of_the_grid(source, site, bases, where)
    points = [config_of(site, every_site, c) for c in measured]
    every = {c: b for c, x in best.items() for b in bases_of(site, every_site, [x])}
    stepped = _stepped(source, site, bases, points, every, device, asked, where)
    scaled = _scaled(source, site, bases, asked, where)
    for pair in itertools.zip_longest(scaled, stepped):
        yield from (p for p in pair if p is not None)
    for name, value in site.tied.items():
        why = f"the grid of its launch is written with {value}, too: give both one name, and it can be varied"
        yield Skipped(f"other values of {name}{where}", why)


def _stepped(
    source: str,
    site: LaunchSite,
    bases: Sequence[Best],
    points: Sequence[Config | None],
    every: Mapping[str, Best],
    device: Device,
    asked: ProfileEvidence,
    where: str,
) -> Iterator[Proposal | Skipped]:
    """Steps of the levers. `every`: case -> its best configuration of this launch."""
    for base, (name, why, config, cures) in steps(site, bases, points, device):
        alike = {c: b for c, b in every.items() if written(site, b) == written(site, base)}
        if held := _held(site, base, config) or refuted(alike.values(), config, device):
            yield Skipped(name + where, held)
            continue
        configs = [config, *(b.config for b in bases if b.config != config)] if site.autotuned else [config]
        made = _attempted(source, site, configs, name + where, f"{why}; tries {said(config)}")
        yield made if isinstance(made, Skipped) else asked.cite(made, asked.of(site.kernel, cures, alike))


def _scaled(
    source: str, site: LaunchSite, bases: Sequence[Best], asked: ProfileEvidence, where: str
) -> Iterator[Proposal | Skipped]:
    """Tile sizes that the launcher computes, multiplied: in a kernel without dots the largest first."""
    dots = any(b.static.get("dots") != 0 for b in bases)
    own = [t for t in scaled_tiles.tiles(source) if t.kernel == site.kernel]
    spills = any(b.static.get("spill_store_bytes") for b in bases)
    for name, why, text, cures in scaled_tiles.steps(source, own, dots, spills):
        made = checked(Proposal(text, "launch", name + where, why), source)
        yield made if isinstance(made, Skipped) else asked.cite(made, asked.of(site.kernel, cures))


def _best_of_the_grid(source: str, site: LaunchSite, bases: Sequence[Best], where: str) -> Iterator[Proposal | Skipped]:
    configs, name = [b.config for b in bases], f"best of the grid{where}"
    why = "the fastest configuration of each case over the declared grid"
    if site.autotuned and configs and all(b.standing for b in bases):
        yield Skipped(name, "the file's own list holds the fastest configuration of each case")
    elif site.autotuned and configs:
        yield _attempted(source, site, configs, name, why)
    for config in unique(configs) if not site.autotuned else ():
        if config != site.values:
            yield _attempted(source, site, [config], name, f"the fastest of a case; tries {said(config)}")


def unique(configs: Iterable[Config]) -> list[Config]:
    """Return each configuration once, where it stands first."""
    listed = list(configs)
    return [c for i, c in enumerate(listed) if c not in listed[:i]]


def _attempted(source: str, site: LaunchSite, configs: Sequence[Config], name: str, why: str) -> Proposal | Skipped:
    """The file with configurations, of which a launch that is not autotuned takes the first alone."""
    try:
        text = with_configs(source, site, configs[: CARRIED if site.autotuned else 1])
    except DoesNotApply as e:
        return Skipped(name, str(e))
    return checked(Proposal(text, "launch", name, why), source)


def _held(site: LaunchSite, base: Best, config: Config) -> str:
    """Why a step cannot be written, or says nothing, because of what the launch does with a parameter."""
    for name in (n for n in config if config[n] != base.config.get(n)):
        if why := unsettable(site, name):
            return why
        if name in site.computed and name not in written(site, base) and name != "num_stages":
            return f"{site.kernel} is launched with a {name} that the launcher computes: what it is now is not known"
    return ""


def config_of(
    site: LaunchSite, every_site: Sequence[LaunchSite], config: Config, launched: Collection[str] | None = None
) -> Config | None:
    """Return what a known configuration of a file says of one of its launch sites; None when it does not say.

    Where a file launches several kernels, a configuration names each (`kernel.BLOCK`); without a name it is of the
    autotuned one, or the only one that has several. `launched`: the kernels that are launched where it is known of, if
    that is known: a launcher may choose among some.
    """
    own = {k.removeprefix(f"{site.kernel}."): v for k, v in config.items() if k.startswith(f"{site.kernel}.")}
    bare = {k: v for k, v in config.items() if "." not in k}
    if not site.autotuned:
        stated = own if len(every_site) > 1 else bare
        return site.values | {k: v for k, v in stated.items() if not unsettable(site, k)}
    tuned = [s for s in every_site if s.autotuned and (launched is None or s.kernel in launched)]
    if own or not config or len(tuned) == 1:
        return own or bare or None
    takes = (s for s in tuned if bare and bare.keys() <= s.parameters | set(LAUNCH_OPTIONS))
    return bare if next(takes, None) == site else None


def named(site: LaunchSite, every_site: Sequence[LaunchSite], config: Mapping[str, int]) -> Config:
    """Return a configuration of one launch as one of its file: named after its kernel where there are several."""
    return {f"{site.kernel}.{k}": v for k, v in config.items()} if len(every_site) > 1 else dict(config)


def placed(source: str, config: Config) -> str:
    """Return the file with a known configuration at its launches that are not autotuned. Raises DoesNotApply."""
    every_site = sites(source)
    for site in (s for s in every_site if not s.autotuned):
        own = config_of(site, every_site, config) or {}
        source = with_configs(source, next(s for s in sites(source) if s.kernel == site.kernel), [own])
    return source


def bases_of(site: LaunchSite, every_site: Sequence[LaunchSite], best: Iterable[Best]) -> list[Best]:
    """Return the best known configurations of a site with its kernel's profile, each once, in order of first use."""
    bases: list[Best] = []
    for b in best:
        config = config_of(site, every_site, b.config, b.profiles.keys() or None)
        static = b.profiles.get(site.kernel) or (b.static if not b.profiles else None)
        if config is not None and static is not None:
            own = Best(config, static, b.profiles, standing=b.standing)
            bases += [own] if written(site, own) not in [written(site, earlier) for earlier in bases] else []
    return bases


def said(config: Mapping[str, Any]) -> str:
    """Return a configuration in words, those of several kernels one after the other, each with its name."""
    parts = ((kernel, " ".join(f"{k}={v}" for k, v in own.items())) for kernel, own in by_kernel(config).items())
    return ", ".join(f"{kernel}: {words}" if kernel else words for kernel, words in parts)


def by_kernel(config: Mapping[str, Any]) -> dict[str, Config]:
    """Return a configuration of a file by the kernels that it names; what names none is under an empty name."""
    found = dict[str, Config]()
    for key, value in config.items():
        kernel, _, name = key.rpartition(".")
        found.setdefault(kernel, {})[name] = value
    return found


def labelled(label: str, config: Mapping[str, Any], standing: Config | None) -> str:
    """Label a point of a sweep: the label of its build, and what stands in its text for other launches."""
    return ", ".join([*([label] if config or not standing else []), *([said(standing)] if standing else [])])
