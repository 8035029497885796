"""Findings in a timeline: the sections that take the cycles of a kernel, and blocks that SMs wait for.

A section groups scopes of one role by purpose. Only roles with dots count, as the waits of a producer are not exposed;
if no role has dots, all count. Shares are of the cycles of the role, from the scopes: these come from several builds,
so the sum may differ from 1 by the overhead of recording. Sections:

- exposed copies: waits for copies, their issue, loads, and bodies that only store loaded data into shared memory.
Without dots also the arithmetic in a loop that loads: it waits for the loads, and scopes cannot separate the two. -
exposed dots: synchronous dots, the issue of asynchronous ones, and waits for them. - arithmetic between dots: the other
bodies. - epilogue: stores, and what comes after the main loop (the scopes with most loops around). - imbalance:
barriers among the warps of a block.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.profile.findings.defect import Defect, Finding
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.profile.kernel_profile import PassName
from pgo_agent.sandbox.profile.timeline.find_scopes import HOLDING, Kind
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline, Waves

LEAST = 0.05  # of the cycles: a section below it is not reported
STILL = 0.1  # of the SMs' time; the timer advances in steps of up to 1 us, so less of a short launch means nothing
COPIES = frozenset({Kind.COPY_WAIT, Kind.COPY, Kind.LOAD})
DOTS = frozenset({Kind.DOT, Kind.DOT_WAIT})
STAGING = frozenset({"ttg.local_alloc", "ttg.local_store"})
THROUGH_SHARED = STAGING | {"ttg.local_load", "ttg.convert_layout"}
PHRASES = {
    Defect.COPY_WAIT: "go to copies and waits for them",
    Defect.DOT_WAIT: "go to dots and waits for them, which nothing else fills",
    Defect.ARITHMETIC: "go to arithmetic",
    Defect.EPILOGUE: "go to stores and what stands behind the main loop",
    Defect.IMBALANCE: "are waits at barriers among the warps of a block",
}
MIXED = "go to loads and the arithmetic that waits for them"  # exposed copies without dots


@dataclass(frozen=True)
class Section:
    defect: Defect
    role: str
    share: float  # of the cycles of the role, 0 to 1
    scopes: tuple[ScopeTime, ...]  # the costliest first

    @property
    def line(self) -> int:
        """Return the source line of the costliest scope; 0 if unknown."""
        return source_line(self.scopes[0])

    @property
    def through_shared(self) -> bool:
        """Whether something in it goes through shared memory by plain loads and stores."""
        return any(op in THROUGH_SHARED for s in self.scopes for op in s.scope.ops)


def findings(t: Timeline, device: Device) -> tuple[Finding, ...]:
    """Return the findings: the costliest section first, then those of the waves."""
    of_sections = (_finding(s) for s in sections(t) if s.share >= LEAST)
    return (*of_sections, *(_waves(t.waves, device) if t.waves else ()))


def sections(t: Timeline) -> tuple[Section, ...]:
    """Return the sections with shares, the costliest first; each of the role where it takes most."""
    timed = [s for s in t.scopes if s.share is not None and s.scope.kind not in HOLDING]
    dots = {s.scope.role for s in timed if s.scope.kind in DOTS}
    best: dict[Defect, Section] = {}
    for role in sorted(dots or {s.scope.role for s in timed}):
        for section in _of_role(role, [s for s in timed if s.scope.role == role]):
            if section.defect not in best or best[section.defect].share < section.share:
                best[section.defect] = section
    return tuple(sorted(best.values(), key=lambda s: (-s.share, s.defect)))


def source_line(s: ScopeTime) -> int:
    """Return the line in the file of the kernel; 0 if unknown."""
    last = s.scope.source.rpartition(":")[2]
    return int(last) if last.isdecimal() else 0


def _of_role(role: str, scopes: Sequence[ScopeTime]) -> Iterator[Section]:
    grouped: dict[Defect, list[ScopeTime]] = defaultdict(list)
    for s in scopes:
        grouped[_section(s, scopes)].append(s)
    for defect, listed in grouped.items():
        ordered = tuple(sorted(listed, key=lambda s: (-(s.share or 0.0), s.scope.first)))
        yield Section(defect, role, min(1.0, sum(s.share or 0.0 for s in ordered)), ordered)


def _section(s: ScopeTime, scopes: Sequence[ScopeTime]) -> Defect:
    """The section of one scope among those of its role."""
    kind, deepest = s.scope.kind, max(o.scope.depth for o in scopes)
    last = max(o.scope.first for o in scopes if o.scope.depth == deepest)
    if kind is Kind.STORE or (s.scope.depth < deepest and s.scope.first > last):
        return Defect.EPILOGUE
    if kind is Kind.BARRIER_WAIT:
        return Defect.COPY_WAIT if "ttng.wait_barrier" in s.scope.ops else Defect.IMBALANCE
    if kind in DOTS:
        return Defect.DOT_WAIT
    return Defect.COPY_WAIT if kind in COPIES or _waits(s, scopes) else Defect.ARITHMETIC


def _waits(s: ScopeTime, scopes: Sequence[ScopeTime]) -> bool:
    """Whether the latency of a load shows in a body."""
    loads = any(o.scope.kind in COPIES and o.scope.depth == s.scope.depth for o in scopes)
    return loads and (STAGING.issuperset(s.scope.ops) or not _has_dots(scopes))


def _has_dots(scopes: Sequence[ScopeTime]) -> bool:
    return any(o.scope.kind in DOTS for o in scopes)


def _finding(s: Section) -> Finding:
    share, role = round(s.share, 3), "" if s.role == "kernel" else f" of {s.role}"
    bodies = (o.scope for o in s.scopes if o.scope.kind is Kind.BODY)
    mixed = s.defect is Defect.COPY_WAIT and not all(STAGING.issuperset(b.ops) for b in bodies)
    text = f"{share:.0%} of the cycles{role} {MIXED if mixed else PHRASES[s.defect]}"
    return Finding(s.defect, share, "of the cycles", s.line, text, PassName.TIMELINE, share)


def _waves(w: Waves, device: Device) -> Iterator[Finding]:
    """Idle SMs: because the last wave is not full, or because blocks take different times."""
    still = round(1 - w.busy * min(1.0, w.sms / device.sms), 3)
    if still < STILL:
        return
    waves = w.blocks / (device.sms * w.resident)
    whole = -(-w.blocks // (device.sms * w.resident))
    if 1 - waves / whole >= still / 2:  # even blocks would leave most of that
        text = f"{w.blocks} blocks are {waves:.2f} waves: SMs stand still for {still:.0%} of the launch"
        yield Finding(Defect.TAIL, round(waves, 3), "waves", 0, text, PassName.TIMELINE, still)
    else:
        text = f"the busiest SM works {w.imbalance:.2f} times as long as the mean, which stands still for {still:.0%}"
        yield Finding(Defect.IMBALANCE, round(w.imbalance, 3), "of the mean", 0, text, PassName.TIMELINE, still)
