"""Launch moves: other configurations for the launch sites that stand in the file.

The first proposal is what the declared grid showed to be best for each case; the next ones step outside of the grid,
one parameter at a time, each with the symptom that it answers. Where a file launches several kernels, each has its
turn, the one that does the work first. The declared grid varies the first site of the file alone.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pgo_agent.agent.findings import Defect
from pgo_agent.agent.moves.base import CARRIED, Best, Proposal, Skipped
from pgo_agent.agent.moves.evidence import Evidence
from pgo_agent.agent.source import LAUNCH_OPTIONS, Config, Site, sites, with_configs
from pgo_agent.agent.static_rank import RESERVED_SHARED, occupancy
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import TargetFault

GRID_LIMIT = 256  # points of a launch grid
_WARPS, _STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6)
_LARGER_TILE = (Defect.COPY_WAIT, Defect.DOT_WAIT)
_SMALLER_TILE = (Defect.SPILL, Defect.SERIALIZED, Defect.OCCUPANCY, Defect.TAIL)
_MORE_WARPS = (Defect.SPILL, Defect.SERIALIZED, Defect.OCCUPANCY)


def launch_grid(space: Mapping[str, Sequence[int]] | None, seen: Sequence[Config]) -> list[Config]:
    """The points of the tuned baseline: the declared LAUNCH_SPACE, or else one around the file's own values."""
    if not seen:
        return []
    space = space or _around(seen)
    known = set().union(*seen) | set(LAUNCH_OPTIONS)
    unknown = sorted(set(space) - known)
    if unknown:
        raise TargetFault(
            f"LAUNCH_SPACE names {', '.join(unknown)}, which no launch of the kernel takes",
            f"use: {', '.join(sorted(known))}",
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


def grid_sources(source: str, site: Site, points: Sequence[Config]) -> list[str]:
    """The file with the grid in it: one text for an autotuned launch, one for each point of a plain one."""
    return [with_configs(source, site, points)] if site.autotuned else [with_configs(source, site, [p]) for p in points]


def propose(
    source: str, best: Mapping[str, Best], measured: Sequence[Config], device: Device, asked: Evidence
) -> Iterator[Proposal | Skipped]:
    """Launch proposals for a source. `best`: case -> its best configuration; `measured`: points known already."""
    found = sites(source)
    several = len({s.kernel for s in found}) > 1
    busiest = {b.static.get("name") for b in best.values()}
    for site in sorted(found, key=lambda s: s.kernel not in busiest):  # stable: else as they stand in the file
        bases = bases_of(site, found, best.values())
        where = f" in {site.kernel}" if several else ""
        yield from _best_of_the_grid(source, site, bases, where)
        known = [config_of(site, found, c) for c in measured]
        every = {c: b for c, x in best.items() for b in bases_of(site, found, [x])}
        for base, name, why, config, cures in _steps(bases, known, device, site.by_hand):
            alike = {c: b for c, b in every.items() if b.config == base}
            if refuted := _refuted(alike.values(), config, device):
                yield Skipped(name + where, refuted)
                continue
            others = [b.config for b in bases if b.config != config][: CARRIED - 1] if site.autotuned else []
            text = with_configs(source, site, [config, *others])
            step = Proposal(text, "launch", name + where, f"{why}; tries {said(config)}")
            yield asked.told(step, asked.of(site.kernel, cures, alike))
        for name, value in site.tied.items():
            why = f"the grid of its launch is written with {value}, too: give both one name, and it can be varied"
            yield Skipped(f"other values of {name}{where}", why)


def _best_of_the_grid(source: str, site: Site, bases: Sequence[Best], where: str) -> Iterator[Proposal]:
    configs = [b.config for b in bases]
    why = "the fastest configuration of each case over the declared grid"
    if site.autotuned and configs:
        yield Proposal(with_configs(source, site, configs[:CARRIED]), "launch", f"best of the grid{where}", why)
    for config in configs if not site.autotuned else ():
        if config != site.values:
            text = with_configs(source, site, [config])
            yield Proposal(text, "launch", f"best of the grid{where}", f"the fastest of a case; tries {said(config)}")


def config_of(
    site: Site, found: Sequence[Site], config: Config, launched: Collection[str] | None = None
) -> Config | None:
    """What a known configuration of a file says of one of its launch sites; None when it does not say.

    A plain launch is varied by the declared grid when it is the first site; any other stands as it is written. Where
    several launches are autotuned, a configuration names each (`kernel.BLOCK`), or is of the only one that has several.
    `launched`: the kernels that are launched where it is known of, if that is known: a launcher may choose among some.
    """
    if not site.autotuned:
        return site.values | (config if site == found[0] else {})
    tuned = [s for s in found if s.autotuned and (launched is None or s.kernel in launched)]
    named = {k.removeprefix(f"{site.kernel}."): v for k, v in config.items() if k.startswith(f"{site.kernel}.")}
    if named or not config or len(tuned) == 1:
        return named or config or None
    takes = (s for s in tuned if config.keys() <= s.parameters | set(LAUNCH_OPTIONS))
    return config if next(takes, None) == site else None


def bases_of(site: Site, found: Sequence[Site], best: Iterable[Best]) -> list[Best]:
    """The best known configurations of a site with the profile of its kernel, each once, in order of first use."""
    bases: list[Best] = []
    for b in best:
        config = config_of(site, found, b.config, b.profiles.keys() or None)
        static = b.profiles.get(site.kernel) or (b.static if not b.profiles else None)
        if config is not None and static is not None and config not in [known.config for known in bases]:
            bases.append(Best(config, static, b.profiles))
    return bases


Step = tuple[str, str, Config, tuple[Defect, ...]]  # name, symptom, configuration, what of a profile it answers


def _steps(
    best: Sequence[Best], measured: Sequence[Config | None], device: Device, by_hand: bool
) -> Iterator[tuple[Config, str, str, Config, tuple[Defect, ...]]]:
    """Points one parameter away from the best ones that nobody has measured: each lever in turn. First what each steps
    away from. `by_hand`: warps and stages are of the kernel's text.
    """
    levers = (_blocks, _groups) if by_hand else (_stages, _registers, _blocks, _groups, _warps)
    every = [(base, lever) for lever in levers for base in best]
    steps = [[(base.config, *step) for step in lever(base, device)] for base, lever in every]
    seen = [*measured]
    for step in itertools.chain.from_iterable(itertools.zip_longest(*steps)):
        if step is not None and step[3] not in seen:
            seen.append(step[3])
            yield step


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
    if now - 1 in _STAGES and now > 2 and b.static["shared"]:
        why = f"{b.static['shared']} bytes of shared memory limit the blocks of an SM"
        yield f"num_stages={now - 1}", why, b.config | {"num_stages": now - 1}, (Defect.OCCUPANCY,)


def _refuted(alike: Iterable[Best], config: Config, device: Device) -> str:
    """Why builds disprove the symptom of a step from one configuration to another; empty unless all of them do."""
    found = []
    for b in alike:
        fewer = config.get("num_stages", 3) < b.config.get("num_stages", 3)
        now = occupancy(b.static, b.config.get("num_warps", 4), device)
        fit = device.smem_sm // (b.static["shared"] + RESERVED_SHARED)
        told = f"{now.limiter} let {now.blocks} block(s) on an SM, its shared memory {fit}: less of it makes no room"
        found.append(told if fewer and fit > now.blocks else "")
    return found[0] if all(found) else ""


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
    """A configuration in words."""
    return " ".join(f"{k}={v}" for k, v in config.items())
