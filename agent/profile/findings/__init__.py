"""The findings in a kernel's profile: known defects, from the answer of each pass. It decides nothing."""

from pgo_agent.agent.profile.findings import counters, timeline
from pgo_agent.agent.profile.findings.counters import traffic
from pgo_agent.agent.profile.findings.defect import EXPLAINS, Defect, Finding
from pgo_agent.agent.profile.findings.static import findings
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing
from pgo_agent.sandbox.profile.static_profile import StaticProfile

__all__ = ["EXPLAINS", "Defect", "Finding", "findings", "standing_out", "traffic"]


def standing_out(k: KernelProfile, device: Device) -> tuple[Finding, ...]:
    """Return the findings of all passes: static, timeline, counters. A timeline with waves replaces the estimated
    tail."""
    static = k.static if isinstance(k.static, StaticProfile) else None
    results = findings(static, k.launch, device) if static else ()
    if not isinstance(k.timeline, Missing):
        seen = k.timeline.waves is not None
        results = tuple(f for f in results if f.defect is not Defect.TAIL or not seen)
        results += timeline.findings(k.timeline, device)
    if not isinstance(k.counters, Missing):
        results += counters.findings(k.counters, dots=static is not None and "tensor" in static.kinds)
    return results
