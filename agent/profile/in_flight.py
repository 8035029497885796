"""How many programs of a kernel run at a time, and how many bytes an SM may have asked for.

A kernel without dots waits for device memory, which is only busy while enough loads are in flight: bandwidth times
latency. Counted from the launch and the compiled code, so it is an upper bound; nothing was timed.
"""

from dataclasses import dataclass

from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, LaunchCount
from pgo_agent.sandbox.profile.static_profile import StaticProfile

LATENCY = 0.7e-6  # seconds of a load from device memory while it is busy, about
_LOADS = ("tt.load", "ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local")


@dataclass(frozen=True)
class Loads:
    """What a kernel that does little but load has under way."""

    each: int  # bytes of a program, in an iteration of the loop that loads most
    line: int  # of the source, where the largest stands
    in_loop: bool
    most: int  # bytes of an SM at a time
    needed: float  # bytes of an SM that keep device memory busy


def loads(s: StaticProfile, launch: LaunchCount, device: Device) -> Loads | None:
    """Return what is under way at most; None for kernels with dots, without loads, and for another maker's device."""
    found = [a for a in s.accesses if a.op in _LOADS]
    if s.backend != "nvidia" or s.pipeline.dots or not found or not launch.blocks:
        return None
    each, loop = max((sum(a.bytes for a in found if a.loop == loop), loop) for loop in {a.loop for a in found})
    largest = max((a for a in found if a.loop == loop), key=lambda a: a.bytes)
    resident = min(max(s.occupancy.blocks, 1), -(-launch.blocks // device.sms))
    ahead = max(1, s.pipeline.depth - 1) if s.pipeline.async_copies else 1
    needed = device.gbps * 1e9 * LATENCY / device.sms
    return Loads(each, largest.source, bool(loop), each * ahead * resident, needed)


def grid(k: KernelProfile, device: Device) -> str:
    """Return the launch of a kernel in words; empty where the launch or the code is unknown."""
    s, blocks = k.static, k.launch.blocks
    if not isinstance(s, StaticProfile) or s.backend != "nvidia" or not blocks:
        return ""
    fit = max(s.occupancy.blocks, 1)
    at_once = device.sms * fit
    if blocks > at_once:
        said = f"{blocks} programs, {blocks / at_once:.1f} waves of {at_once}"
    else:
        said = f"{blocks} programs, all at once: {blocks / device.sms:.1f} an SM, where {fit} would fit"
    launches = f"; {k.launch.count} launches" if k.launch.count > 1 else ""
    under_way = loads(s, k.launch, device)
    return f"{said}{launches}{f'; {told(under_way)}' if under_way else ''}"


def told(of: Loads) -> str:
    """Return what is under way in words."""
    where = "in an iteration" if of.in_loop else "at most"
    few = f"at most {_size(of.most)} are in flight an SM, of {_size(of.needed)} that keep device memory busy"
    return f"a program loads {_size(of.each)} {where}, so {few}"


def _size(bytes_: float) -> str:
    return f"{bytes_ / 1024:.1f} KB" if bytes_ >= 1024 else f"{bytes_:.0f} B"
