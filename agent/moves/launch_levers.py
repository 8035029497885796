"""The levers of a launch: configurations one step from the best known ones, each with the symptom that it answers.

Kernels with dots have small tiles, and their neighbours are tried. In a kernel without one, a tile's size decides how
many bytes a thread has in flight, and the best may be far from what stands in the file: there sizes and warps are tried
together, by the elements of a thread. Relies on `launch_sites.py` for what can be set. It measures nothing.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pgo_agent.agent.moves.analysis.launched import LAUNCH_OPTIONS
from pgo_agent.agent.moves.launch_sites import Config, LaunchSite
from pgo_agent.agent.moves.move import Best
from pgo_agent.agent.profile.cost_model import RESERVED_SHARED, occupancy
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.sandbox.devices import Device

LARGER_TILE = (
    Defect.SYNCHRONOUS, Defect.LITTLE, Defect.ATOMICS, Defect.IN_FLIGHT, Defect.COPY_WAIT, Defect.DOT_WAIT,
)  # fmt: skip
SMALLER_TILE = (Defect.SPILL, Defect.SERIALIZED, Defect.OCCUPANCY, Defect.TAIL, Defect.SMALL_GRID)
_MORE_WARPS = (Defect.SPILL, Defect.SERIALIZED, Defect.SYNCHRONOUS, Defect.OCCUPANCY)
_MORE_EACH = (Defect.LITTLE, Defect.ATOMICS)
_WARPS, _STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6)
_MOST_WARPS = 32  # of a block
_MOST, _MOST_STREAMED = 256, 16384  # elements along one side of a tile, of a kernel with dots and of one without
_SHARES = ((8, 8), (4, 16), (8, 16), (4, 8), (2, 16), (16, 16), (16, 8), (4, 32), (1, 16), (1, 8), (2, 32))
_FEWER, _MORE = "fewer registers for each thread", "more work for each warp"
_COUNTS = (2, 4, 8)  # rows, or blocks of the data's own format, of one program


def written(site: LaunchSite, b: Best) -> Config:
    """Return a configuration with the warps and stages that its build has, where the launcher computes them."""
    unknown = {} if b.static.get("warp_specialized") else {n: n for n in site.computed if n not in b.config}
    built = {"num_warps": b.static.get("num_warps", 0), "num_stages": b.static.get("pipeline_depth", 0)}
    least = {"num_warps": 1, "num_stages": 2}  # of fewer stages a build says nothing
    return b.config | {n: built[n] for n in unknown if built.get(n, 0) >= least.get(n, 1)}


Step = tuple[str, str, Config, tuple[Defect, ...]]  # name, symptom, configuration, what of a profile it answers


def steps(
    site: LaunchSite, bases: Sequence[Best], measured: Sequence[Config | None], device: Device
) -> Iterator[tuple[Best, Step]]:
    """Yield points near the best ones that nobody has measured: each lever in turn. First what each steps away from.

    What the launcher computes is told to the levers, and stays computed where they do not set it.
    """
    levers = (_blocks, _groups) if site.by_hand else (_stages, _registers, _counts, _blocks, _shares, _groups, _warps)
    listed = [[(base, _step(base, now, s)) for s in lever(site, now, device)] for lever in levers for base, now in
              ((b, replace(b, config=written(site, b))) for b in bases)]  # fmt: skip
    seen = [_telling(m, bases) for m in measured if m is not None]
    for pair in itertools.chain.from_iterable(itertools.zip_longest(*listed)):
        if pair is not None and _telling(pair[1][2], bases) not in seen:
            seen.append(_telling(pair[1][2], bases))
            yield pair


def _telling(config: Config, bases: Sequence[Best]) -> Config:
    """A configuration without what changes no code: in a kernel without dots stages do not."""
    idle = all(_streams(b) and b.static["pipeline_depth"] < 2 for b in bases)
    return {k: v for k, v in config.items() if not (idle and k == "num_stages")}


def _step(base: Best, now: Best, step: Step) -> Step:
    name, why, config, cures = step
    return name, why, {k: v for k, v in config.items() if k in base.config or now.config.get(k) != v}, cures


def _stages(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    if "num_stages" in site.computed and "num_stages" not in b.config:
        for n in (2, 3) if b.static.get("dots") else ():
            why = "nobody knows how deep its pipeline is meant to be, and the build has none"
            yield f"num_stages={n}", why, b.config | {"num_stages": n}, (Defect.FEW_STAGES, Defect.COPY_WAIT)
        return
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


def refuted(alike: Iterable[Best], config: Config, device: Device) -> str:
    """Why builds disprove the symptom of a step from one configuration to another; empty unless all of them do."""
    reasons = []
    for b in alike:
        fewer = b.static["pipeline_depth"] > 1 and config.get("num_stages", 3) < b.config.get("num_stages", 3)
        now = occupancy(b.static, b.config.get("num_warps", 4), device)
        fit = device.smem_sm // (b.static["shared"] + RESERVED_SHARED)
        reason = f"{now.limiter} let {now.blocks} block(s) on an SM, its shared memory {fit}: less of it makes no room"
        reasons.append(reason if fewer and fit > now.blocks else "")
    return reasons[0] if all(reasons) else ""


def _registers(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    """A cap under which one more block fits on an SM, where shared memory has room for it."""
    warps = b.config.get("num_warps", 4)
    now = occupancy(b.static, warps, device)
    roomy = device.smem_sm // (b.static["shared"] + RESERVED_SHARED) > now.blocks
    cap = device.regs_sm // (32 * warps * (now.blocks + 1)) // 8 * 8
    if now.limiter == "registers" and roomy and 64 <= cap < b.static["registers"]:
        why = f"{b.static['registers']} registers let {now.blocks} block(s) on an SM; {cap} would let one more"
        yield f"maxnreg={cap}", why, b.config | {"maxnreg": cap}, (Defect.OCCUPANCY,)


def _blocks(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    most = _MOST_STREAMED if _streams(b) else _MOST
    for name, value in _tiles(site, b).items():
        for v, why, cures in (
            (value * 2, "more work for each byte loaded", LARGER_TILE),
            (value // 2, "more blocks, fewer registers", SMALLER_TILE),
        ):
            if 16 <= v <= most:
                yield f"{name}={v}", why, b.config | {name: v}, cures


def _shares(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    """Sizes of the only tile of a kernel without dots, with warps, by the elements that a thread then has."""
    tiles = _tiles(site, b)
    if not _streams(b) or len(tiles) != 1:
        return
    ((name, now),) = tiles.items()
    for warps, each in _SHARES:
        size = 32 * warps * each
        if (size, warps) == (now, b.config.get("num_warps", 4)):
            continue
        why = f"{each} elements for each thread of {warps} warps"
        yield f"{name}={size} num_warps={warps}", why, b.config | {name: size, "num_warps": warps}, _MORE_EACH


def _counts(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    """More rows of a program: it pays for its beginning, and waits for its loads, once for all of them."""
    for name in sorted(n for n in site.counts & b.config.keys() if 0 < b.config[n] <= max(_COUNTS)):
        for v in (n for n in _COUNTS if n != b.config[name]):
            yield f"{name}={v}", "a program's loads wait side by side", b.config | {name: v}, _MORE_EACH


def _tiles(site: LaunchSite, b: Best) -> dict[str, int]:
    """The tile sizes of a configuration that may be changed: not of a row that a program holds whole."""
    held = site.whole if _streams(b) else frozenset[str]()
    named = {n: v for n, v in b.config.items() if n not in LAUNCH_OPTIONS and not n.startswith("GROUP")}
    return {n: v for n, v in named.items() if type(v) is int and _tile(v) and n not in held}


def _streams(b: Best) -> bool:
    """Whether a kernel is known to have no dots."""
    return b.static.get("dots") == 0


def _tile(value: int) -> bool:
    return value >= 16 and value & (value - 1) == 0


def _groups(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    for name, value in b.config.items():
        if name.startswith("GROUP") and type(value) is int:
            for v, why in ((value * 2, "more tiles share what the L2 holds"), (value // 2, "fewer tiles in a group")):
                if 1 <= v <= 64:
                    yield f"{name}={v}", why, b.config | {name: v}, (Defect.MISSES,)


def _warps(site: LaunchSite, b: Best, device: Device) -> Iterator[Step]:
    now = b.config.get("num_warps", 4)
    far = ((now * 4, _FEWER, _MORE_WARPS), (now // 4, _MORE, (Defect.LITTLE,))) if _streams(b) else ()
    for n, why, cures in ((now * 2, _FEWER, _MORE_WARPS), (now // 2, _MORE, (Defect.LITTLE,)), *far):
        if n in _WARPS or (n == _MOST_WARPS and _streams(b)):
            yield f"num_warps={n}", why, b.config | {"num_warps": n}, cures
