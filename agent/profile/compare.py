"""Compares a profile with an earlier one of the same case: a sentence for each difference. Kernels match by name.

Only what both profiles hold is compared. A pass that one of them lacks gives no sentence, except for its defects.
"""

from collections.abc import Iterator, Mapping

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.findings import Finding
from pgo_agent.agent.profile.format import percent
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Roofline
from pgo_agent.sandbox.profile.static_profile import StaticProfile

LEAST = 0.02  # of the cycles, by which a section must differ to be worth a sentence


def changed(case: CaseProfile, before: CaseProfile) -> tuple[str, ...]:
    """Return the differences, the most important first: roof, defects, shares, resources of kernels."""
    now, then = _named(case), _named(before)
    both = [name for name in now if name in then]
    sentences = [
        *_roof(case, before),
        *(f"The kernel {name} is new." for name in now if name not in then),
        *(f"The kernel {name} is gone." for name in then if name not in now),
        *(s for name in both for s in _defects(name, _by_defect(case, now[name]), _by_defect(before, then[name]))),
        *(s for name in both for s in _taken(name, now[name], then[name])),
    ]
    return tuple(sentences) or ("Nothing that the profile shows.",)


def _named(case: CaseProfile) -> dict[str, KernelProfile]:
    return {k.kernel: k for k in reversed(case.kernels)}


def _by_defect(case: CaseProfile, k: KernelProfile) -> Mapping[str, Finding]:
    """Defect -> its first finding in a kernel."""
    return {f.defect: f for f in reversed(case.findings.get(k.build, ()))}


def _roof(case: CaseProfile, before: CaseProfile) -> Iterator[str]:
    now, then = case.roofline, before.roofline
    if isinstance(now, Roofline) and isinstance(then, Roofline):
        a, b = percent(now.reached), percent(then.reached)
        if a != b:
            yield f"{a} of the roof is reached, {b} before."


def _defects(name: str, now: Mapping[str, Finding], then: Mapping[str, Finding]) -> Iterator[str]:
    for change, defects in (("New", now.keys() - then.keys()), ("Gone", then.keys() - now.keys())):
        if defects:
            yield f"{change} in {name}: {', '.join(sorted(defects))}."
    for defect in (d for d in now if d in then):
        a, b = now[defect].share, then[defect].share
        if a is not None and b is not None and abs(a - b) >= LEAST:
            yield f"In {name} {defect} take {percent(a)} of the time, {percent(b)} before."


def _taken(name: str, now: KernelProfile, then: KernelProfile) -> Iterator[str]:
    """The differences in resources of a kernel, in one sentence."""
    if isinstance(now.static, StaticProfile) and isinstance(then.static, StaticProfile):
        a, b = _figures(now.static), _figures(then.static)
        differ = [f"{what} {a[what]}, {b[what]} before" for what in a if a[what] != b[what]]
        if differ:
            yield f"Of {name}: {'; '.join(differ)}."


def _figures(k: StaticProfile) -> dict[str, int]:
    return {
        "registers of a thread": k.resources.registers,
        "bytes spilled": k.resources.spill_store_bytes,
        "shared bytes of a block": k.resources.shared_bytes,
        "warps that fit an SM": k.occupancy.warps,
        "instructions": k.instructions,
    }
