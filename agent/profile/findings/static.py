"""Findings in the static profile of a launch.

Relies on `sandbox/profile/`. There are no times here, so the order is fixed, by the usual cost of such a defect: it
only says where to look first.
"""

import math
from collections.abc import Callable, Iterator

from pgo_agent.agent.profile import in_flight
from pgo_agent.agent.profile.cost_model import SERIALIZED
from pgo_agent.agent.profile.findings import instructions
from pgo_agent.agent.profile.findings.defect import Defect, Finding
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile.kernel_profile import LaunchCount
from pgo_agent.sandbox.profile.static_profile import StaticProfile

IDLE = 0.2  # of the machine, over all waves: a tail below it is not reported
BUSY = 0.75  # of the bytes in flight that keep device memory busy
FEW = 0.5  # of the warps that an SM can hold: below it latency shows in kernels without dots


def findings(k: StaticProfile, launch: LaunchCount, device: Device) -> tuple[Finding, ...]:
    """Return the defects of a kernel and its launch, the usually costliest first."""
    found = (*of_code(k), *_in_flight(k, launch, device), *_tail(k, launch, device))
    waits = not launch.blocks or launch.blocks > device.sms * k.occupancy.blocks  # for room on an SM
    return tuple(f for f in found if f.defect is not Defect.OCCUPANCY or waits)


def of_code(k: StaticProfile) -> tuple[Finding, ...]:
    """Return the defects that do not depend on the launch."""
    return tuple(f for look in _LOOKS for f in look(k))


def _spills(k: StaticProfile) -> Iterator[Finding]:
    r = k.resources
    if r.spill_store_bytes:
        inside = sum(m.kinds.get("spill", 0) for m in k.loops if m.depth == 0)
        line = k.peak.source if k.peak else 0
        text = f"{r.spill_store_bytes} B of registers spill to local memory, {inside} instructions of it in loops"
        yield Finding(Defect.SPILL, r.spill_store_bytes, "B", line, text)


def _serialized(k: StaticProfile) -> Iterator[Finding]:
    notes = [n for n in k.notes if n in SERIALIZED]
    if notes:
        text = f"ptxas serializes the tensor instructions ({', '.join(notes)}): none runs beside another"
        yield Finding(Defect.SERIALIZED, len(notes), "notes", 0, text)


def _unpipelined(k: StaticProfile) -> Iterator[Finding]:
    loads = any(a.loop for a in k.accesses)
    if k.backend == "nvidia" and k.pipeline.dots and loads and k.pipeline.depth == 1 and not k.pipeline.async_copies:
        text = "no copy runs ahead of the dots: the loop waits for each of its loads"
        yield Finding(Defect.FEW_STAGES, k.pipeline.depth, "stages", 0, text)


def _uncoalesced(k: StaticProfile) -> Iterator[Finding]:
    for a in k.accesses:
        if a.uncoalesced:
            text = f"{a.op} is not coalesced: of a warp's lanes {a.warp_run} B lie side by side"
            yield Finding(Defect.UNCOALESCED, float(a.warp_run or 0), "B", a.source, text)


def _narrow(k: StaticProfile) -> Iterator[Finding]:
    for a in k.accesses:
        if a.narrow and a.loop and not a.uncoalesced:
            text = f"{a.op} in a loop moves {a.width} B of a thread at a time, of {a.share}"
            yield Finding(Defect.NARROW, a.width, "B", a.source, text)


def _converted(k: StaticProfile) -> Iterator[Finding]:
    for c in k.conversions:
        if c.loop and c.through == "shared memory":
            text = f"a layout conversion in a loop moves {c.bytes} B through shared memory"
            yield Finding(Defect.CONVERSION, c.bytes, "B", c.source, text)


def _occupied(k: StaticProfile) -> Iterator[Finding]:
    o = k.occupancy
    if not k.pipeline.dots and o.share < FEW:
        text = f"{o.warps} of {o.most_warps} warps fit an SM: {' and '.join(o.limiter)} allow no more"
        yield Finding(Defect.OCCUPANCY, round(o.share, 3), "of an SM's warps", 0, text)


def _in_flight(k: StaticProfile, launch: LaunchCount, device: Device) -> Iterator[Finding]:
    """Of grids that give each SM something: a smaller one is a defect of its own."""
    under_way = in_flight.loads(k, launch, device) if launch.blocks >= device.sms else None
    if under_way and under_way.most < BUSY * under_way.needed:
        yield Finding(Defect.IN_FLIGHT, under_way.most, "B", under_way.line, in_flight.told(under_way))


def _tail(k: StaticProfile, launch: LaunchCount, device: Device) -> Iterator[Finding]:
    """Waves are blocks over the number that all SMs hold at a time; all blocks are taken to be equally long.

    Blocks that all run at a time make no wave: then some SMs have one more than others, or some have none.
    """
    if k.backend != "nvidia" or not launch.blocks:
        return
    if launch.blocks < device.sms:
        none = 1 - launch.blocks / device.sms
        if none >= IDLE:
            text = f"{launch.blocks} blocks for {device.sms} SMs: {none:.0%} of them have none"
            yield Finding(Defect.SMALL_GRID, launch.blocks, "blocks", 0, text)
        return
    at_once = device.sms * k.occupancy.blocks
    unit = at_once if launch.blocks > at_once else device.sms
    waves = launch.blocks / unit
    idle = 1 - waves / math.ceil(waves)
    if idle >= IDLE:
        text = f"{launch.blocks} blocks are {waves:.2f} waves of {unit}: {idle:.0%} of the machine has none"
        yield Finding(Defect.TAIL, round(waves, 3), "waves", 0, text)


_LOOKS: tuple[Callable[[StaticProfile], Iterator[Finding]], ...] = (
    _spills,
    _serialized,
    _unpipelined,
    _uncoalesced,
    _narrow,
    _converted,
    instructions.findings,
    _occupied,
)
