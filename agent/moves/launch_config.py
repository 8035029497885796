"""Launch moves: other configurations for the launch sites that stand in the file.

The first proposal is what the declared grid showed to be best for each case; the next ones step outside of the grid,
one parameter at a time, each with the symptom that it answers. Where a file launches several kernels, each has its
turn, the one that does the work first. `launch_space.py` says which of them the declared grid varies.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.launch_sites import LAUNCH_OPTIONS, Config, LaunchSite, sites, unsettable, with_configs
from pgo_agent.agent.moves.move import CARRIED, Best, Proposal, Skipped, checked
from pgo_agent.agent.moves.priority import ProfileEvidence
from pgo_agent.agent.profile.cost_model import RESERVED_SHARED, occupancy
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import TargetFault

GRID_LIMIT = 256  # points of a launch grid
_WARPS, _STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6)
_LARGER_TILE = (Defect.COPY_WAIT, Defect.DOT_WAIT)
_SMALLER_TILE = (Defect.SPILL, Defect.SERIALIZED, Defect.OCCUPANCY, Defect.TAIL)
_MORE_WARPS = (Defect.SPILL, Defect.SERIALIZED, Defect.OCCUPANCY)


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
    """Yield launch proposals. `best`: case -> its best configuration; `measured`: points measured already."""
    every_site = sites(source)
    busiest = {b.static.get("name") for b in best.values()}
    launched = {name for b in best.values() for name in b.profiles}
    for site in sorted(every_site, key=lambda s: s.kernel not in busiest):  # stable: else as they stand in the file
        if launched and site.kernel not in launched:
            continue
        where = f" in {site.kernel}" if len(every_site) > 1 else ""
        bases = bases_of(site, every_site, best.values())
        yield from _best_of_the_grid(source, site, bases, where)
        points = [config_of(site, every_site, c) for c in measured]
        every = {c: b for c, x in best.items() for b in bases_of(site, every_site, [x])}
        for base, (name, why, config, cures) in _steps(site, bases, points, device):
            alike = {c: b for c, b in every.items() if written(site, b) == written(site, base)}
            if held := _held(site, base, config) or _refuted(alike.values(), config, device):
                yield Skipped(name + where, held)
                continue
            configs = [config, *(b.config for b in bases if b.config != config)] if site.autotuned else [config]
            made = _attempted(source, site, configs, name + where, f"{why}; tries {said(config)}")
            yield made if isinstance(made, Skipped) else asked.cite(made, asked.of(site.kernel, cures, alike))
        for name, value in site.tied.items():
            why = f"the grid of its launch is written with {value}, too: give both one name, and it can be varied"
            yield Skipped(f"other values of {name}{where}", why)


def _best_of_the_grid(source: str, site: LaunchSite, bases: Sequence[Best], where: str) -> Iterator[Proposal | Skipped]:
    configs, name = [b.config for b in bases], f"best of the grid{where}"
    why = "the fastest configuration of each case over the declared grid"
    if site.autotuned and configs:
        yield _attempted(source, site, configs, name, why)
    for config in _unique(configs) if not site.autotuned else ():
        if config != site.values:
            yield _attempted(source, site, [config], name, f"the fastest of a case; tries {said(config)}")


def _unique(configs: Iterable[Config]) -> list[Config]:
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
        if name in site.computed and name not in written(site, base):
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


def written(site: LaunchSite, b: Best) -> Config:
    """Return a configuration with the warps that its build has, where the launcher computes them."""
    computed = "num_warps" in site.computed and "num_warps" not in b.config and not b.static.get("warp_specialized")
    return b.config | ({"num_warps": b.static["num_warps"]} if computed and "num_warps" in b.static else {})


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
            own = Best(config, static, b.profiles)
            bases += [own] if written(site, own) not in [written(site, earlier) for earlier in bases] else []
    return bases


Step = tuple[str, str, Config, tuple[Defect, ...]]  # name, symptom, configuration, what of a profile it answers


def _steps(
    site: LaunchSite, bases: Sequence[Best], measured: Sequence[Config | None], device: Device
) -> Iterator[tuple[Best, Step]]:
    """Points one parameter away from the best ones that nobody has measured: each lever in turn. First what each steps
    away from. What the launcher computes is told to the levers, and stays computed where they do not set it.
    """
    levers = (_blocks, _groups) if site.by_hand else (_stages, _registers, _blocks, _groups, _warps)
    steps = [[(base, _step(base, now, s)) for s in lever(now, device)] for lever in levers for base, now in
             ((b, replace(b, config=written(site, b))) for b in bases)]  # fmt: skip
    seen = [*measured]
    for pair in itertools.chain.from_iterable(itertools.zip_longest(*steps)):
        if pair is not None and pair[1][2] not in seen:
            seen.append(pair[1][2])
            yield pair


def _step(base: Best, now: Best, step: Step) -> Step:
    name, why, config, cures = step
    return name, why, {k: v for k, v in config.items() if k in base.config or now.config.get(k) != v}, cures


def _stages(b: Best, device: Device) -> Iterator[Step]:
    now = b.config.get("num_stages", 3)
    spare = device.smem_block - b.static["shared"]
    pipelined = b.static["pipeline_depth"] >= now
    if pipelined and now + 1 in _STAGES and spare >= b.static["shared"] // max(now, 1):
        yield (
            f"num_stages={now + 1}",
            f"{spare} bytes of shared memory are left for a deeper pipeline",
            b.config | {"num_stages": now + 1},
            (Defect.FEW_STAGES, Defect.COPY_WAIT),
        )
    if now - 1 in _STAGES and now > 2 and b.static["shared"] and b.static["pipeline_depth"] > 1:
        why = f"{b.static['shared']} bytes of shared memory limit the blocks of an SM"
        yield f"num_stages={now - 1}", why, b.config | {"num_stages": now - 1}, (Defect.OCCUPANCY,)


def _refuted(alike: Iterable[Best], config: Config, device: Device) -> str:
    """Why builds disprove the symptom of a step from one configuration to another; empty unless all of them do."""
    reasons = []
    for b in alike:
        fewer = config.get("num_stages", 3) < b.config.get("num_stages", 3)
        now = occupancy(b.static, b.config.get("num_warps", 4), device)
        fit = device.smem_sm // (b.static["shared"] + RESERVED_SHARED)
        reason = f"{now.limiter} let {now.blocks} block(s) on an SM, its shared memory {fit}: less of it makes no room"
        reasons.append(reason if fewer and fit > now.blocks else "")
    return reasons[0] if all(reasons) else ""


def _registers(b: Best, device: Device) -> Iterator[Step]:
    """A cap under which one more block fits on an SM, where shared memory has room for it."""
    warps = b.config.get("num_warps", 4)
    now = occupancy(b.static, warps, device)
    roomy = device.smem_sm // (b.static["shared"] + RESERVED_SHARED) > now.blocks
    cap = device.regs_sm // (32 * warps * (now.blocks + 1)) // 8 * 8
    if now.limiter == "registers" and roomy and 64 <= cap < b.static["registers"]:
        why = f"{b.static['registers']} registers let {now.blocks} block(s) on an SM; {cap} would let one more"
        yield f"maxnreg={cap}", why, b.config | {"maxnreg": cap}, (Defect.OCCUPANCY,)


def _blocks(b: Best, device: Device) -> Iterator[Step]:
    for name, value in b.config.items():
        if name not in LAUNCH_OPTIONS and not name.startswith("GROUP") and type(value) is int and _tile(value):
            for v, why, cures in (
                (value * 2, "more work for each byte loaded", _LARGER_TILE),
                (value // 2, "more blocks, fewer registers", _SMALLER_TILE),
            ):
                if 16 <= v <= 256:
                    yield f"{name}={v}", why, b.config | {name: v}, cures


def _tile(value: int) -> bool:
    return value >= 16 and value & (value - 1) == 0


def _groups(b: Best, device: Device) -> Iterator[Step]:
    for name, value in b.config.items():
        if name.startswith("GROUP") and type(value) is int:
            for v, why in ((value * 2, "more tiles share what the L2 holds"), (value // 2, "fewer tiles in a group")):
                if 1 <= v <= 64:
                    yield f"{name}={v}", why, b.config | {name: v}, (Defect.MISSES,)


def _warps(b: Best, device: Device) -> Iterator[Step]:
    now = b.config.get("num_warps", 4)
    for n, why, cures in (
        (now * 2, "fewer registers for each thread", _MORE_WARPS),
        (now // 2, "more work for each warp", ()),
    ):
        if n in _WARPS:
            yield f"num_warps={n}", why, b.config | {"num_warps": n}, cures


def said(config: Mapping[str, Any]) -> str:
    """Return a configuration in words, those of several kernels one after the other, each with its name."""
    parts = dict[str, list[str]]()
    for key, value in config.items():
        kernel, _, name = key.rpartition(".")
        parts.setdefault(kernel, []).append(f"{name}={value}")
    return ", ".join(f"{kernel}: {' '.join(words)}" if kernel else " ".join(words) for kernel, words in parts.items())


def labelled(label: str, config: Mapping[str, Any], standing: Config | None) -> str:
    """Label a point of a sweep: the label of its build, and what stands in its text for other launches."""
    return ", ".join([*([label] if config or not standing else []), *([said(standing)] if standing else [])])
