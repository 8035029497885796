"""What stands out in the static profile of a launch.

Relies on `sandbox/profile/`. Nothing here is a time, so the order is by what such a defect usually costs: it is fixed,
and says no more than where to look first.
"""

import math
from collections.abc import Callable, Iterator

from pgo_agent.agent.profile.cost_model import SERIALIZED
from pgo_agent.agent.profile.findings.defect import Defect, Finding
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile.kernel_profile import LaunchCount
from pgo_agent.sandbox.profile.static_profile import StaticProfile

IDLE = 0.2  # of the machine, over all waves, from which a tail is worth a word
FEW = 0.5  # of the warps that an SM can hold: below it latency shows in kernels without tensor instructions


def findings(k: StaticProfile, launch: LaunchCount, device: Device) -> tuple[Finding, ...]:
    """The defects of a kernel as it is launched, the usually dearest first."""
    return (*of_code(k), *_tail(k, launch, device))


def of_code(k: StaticProfile) -> tuple[Finding, ...]:
    """Those that it has however it is launched."""
    return tuple(f for look in _LOOKS for f in look(k))


def _spills(k: StaticProfile) -> Iterator[Finding]:
    r = k.resources
    if r.spill_store_bytes:
        inside = sum(m.kinds.get("spill", 0) for m in k.loops if m.depth == 0)
        line = k.peak.source if k.peak else 0
        told = f"{r.spill_store_bytes} B of registers spill to local memory, {inside} instructions of it in loops"
        yield Finding(Defect.SPILL, r.spill_store_bytes, "B", line, told)


def _serialized(k: StaticProfile) -> Iterator[Finding]:
    notes = [n for n in k.notes if n in SERIALIZED]
    if notes:
        told = f"ptxas serializes the tensor instructions ({', '.join(notes)}): none runs beside another"
        yield Finding(Defect.SERIALIZED, len(notes), "notes", 0, told)


def _unpipelined(k: StaticProfile) -> Iterator[Finding]:
    loads = any(a.loop for a in k.accesses)
    if k.backend == "nvidia" and k.pipeline.dots and loads and k.pipeline.depth == 1 and not k.pipeline.async_copies:
        told = "no copy runs ahead of the dots: the loop waits for each of its loads"
        yield Finding(Defect.FEW_STAGES, k.pipeline.depth, "stages", 0, told)


def _uncoalesced(k: StaticProfile) -> Iterator[Finding]:
    for a in k.accesses:
        if a.uncoalesced:
            told = f"{a.op} is not coalesced: of a warp's lanes {a.warp_run} B lie side by side"
            yield Finding(Defect.UNCOALESCED, float(a.warp_run or 0), "B", a.source, told)


def _narrow(k: StaticProfile) -> Iterator[Finding]:
    for a in k.accesses:
        if a.narrow and a.loop and not a.uncoalesced:
            told = f"{a.op} in a loop moves {a.width} B of a thread at a time, of {a.share}"
            yield Finding(Defect.NARROW, a.width, "B", a.source, told)


def _converted(k: StaticProfile) -> Iterator[Finding]:
    for c in k.conversions:
        if c.loop and c.through == "shared memory":
            told = f"a layout conversion in a loop moves {c.bytes} B through shared memory"
            yield Finding(Defect.CONVERSION, c.bytes, "B", c.source, told)


def _occupied(k: StaticProfile) -> Iterator[Finding]:
    o = k.occupancy
    if not k.pipeline.dots and o.share < FEW:
        told = f"{o.warps} of {o.most_warps} warps fit an SM: {' and '.join(o.limiter)} allow no more"
        yield Finding(Defect.OCCUPANCY, round(o.share, 3), "of an SM's warps", 0, told)


def _tail(k: StaticProfile, launch: LaunchCount, device: Device) -> Iterator[Finding]:
    """Waves: blocks over what all SMs hold at a time. Blocks that take different times are not seen."""
    at_once = device.sms * k.occupancy.blocks
    waves = launch.blocks / at_once
    idle = 1 - waves / math.ceil(waves) if waves else 0.0
    if k.backend == "nvidia" and idle >= IDLE:
        told = f"{launch.blocks} blocks are {waves:.2f} waves of {at_once}: {idle:.0%} of the machine has none"
        yield Finding(Defect.TAIL, round(waves, 3), "waves", 0, told)


_LOOKS: tuple[Callable[[StaticProfile], Iterator[Finding]], ...] = (
    _spills,
    _serialized,
    _unpipelined,
    _uncoalesced,
    _narrow,
    _converted,
    _occupied,
)
