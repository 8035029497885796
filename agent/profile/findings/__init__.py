"""What stands out in a kernel's profile: known defects, by looks at what each pass found. It decides nothing."""

from pgo_agent.agent.profile.findings import counters, timeline
from pgo_agent.agent.profile.findings.defect import EXPLAINS, Defect, Finding
from pgo_agent.agent.profile.findings.static import findings
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.static_profile import StaticProfile

__all__ = ["EXPLAINS", "Defect", "Finding", "findings", "standing_out"]


def standing_out(k: KernelProfile, device: Device) -> tuple[Finding, ...]:
    """By every pass that there is: static, timeline, counters. A tail that the timeline could see is not estimated."""
    static = k.static if isinstance(k.static, StaticProfile) else None
    found = findings(static, k.launch, device) if static else ()
    if not isinstance(k.timeline, Missing):
        seen = k.timeline.waves is not None
        found = tuple(f for f in found if f.defect is not Defect.TAIL or not seen)
        found += timeline.findings(k.timeline, device)
    if not isinstance(k.counters, Missing):
        found += counters.findings(k.counters, dots=static is not None and "tensor" in static.kinds)
    return found
