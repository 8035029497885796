"""The profile of another kernel, told as if it were this one's: an arm of ablations that is wrong on purpose.

It must not show that it is of another kernel, or whoever is told it would rightly ignore it. So its cases, kernels and
lines are called by this kernel's own: cases in their order, kernels with the one first that takes most of the time,
lines of the source and of the code by how far down they stand. Figures, findings and advice stay as they are. Relies on
both profiles in one workspace.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.rank_bottlenecks import leading
from pgo_agent.agent.profile.summarize import LINE
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.incumbent import SHIPPED
from pgo_agent.agent.run.record import profiles
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile import pseudocode
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile
from pgo_agent.sandbox.profile.static_profile import StaticProfile

_LABEL = re.compile(r"[A-Z]\d+ ")


@dataclass(frozen=True)
class OneCase:
    """A case of this kernel beside the one whose profile is told."""

    own: CaseProfile
    other: CaseProfile
    summary: str  # of the other

    @property
    def lines(self) -> list[str]:
        """The lines of the other's summary, in the words of this kernel."""
        return [self._renamed(line) for line in self.summary.splitlines()]

    def _renamed(self, line: str) -> str:
        names = [k.kernel for k in _kernels(self.own)]
        for i, k in enumerate(_kernels(self.other)):
            line = re.sub(rf"\b{re.escape(k.kernel)}\b", names[i % len(names)], line)
        here, there = _source(self.own), _source(self.other)
        return LINE.sub(lambda m: f"line {_moved(int(m[1]), there, here)}", line)


@dataclass(frozen=True)
class OtherProfile:
    cases: Mapping[str, OneCase]  # by the names of this kernel

    @property
    def lines(self) -> dict[str, list[str]]:
        return {case: c.lines for case, c in self.cases.items()}

    def statics(self, own: Sequence[JsonObject], device: Device) -> list[JsonObject]:
        """Return rows of this kernel's builds with what the other's builds take."""
        others = [_takes(s, device) for c in self.cases.values() for s in _statics(c.other)]
        return [row | others[i % len(others)] for i, row in enumerate(own)] if others else []

    def beside(self, rows: Sequence[tuple[str, str]], case: str) -> str:
        """Return rows of this kernel's code, each line with the costs of the other's line that stands as far down."""
        text = max(self.cases[case].other.code.values(), key=len, default="")
        notes = [cost for code, cost in pseudocode.apart(text) if _LABEL.match(code)]
        labelled = [i for i, (code, _) in enumerate(rows) if _LABEL.match(code)]
        costs = dict(zip(labelled, _spread(notes, len(labelled)), strict=True))
        named = text.partition("\n")[0].endswith(pseudocode.HEAD)
        return pseudocode.together([(code, costs.get(i, "")) for i, (code, _) in enumerate(rows)], named)


def of(ctx: Context, which: str) -> OtherProfile:
    """Return the profile that is told in place of that of `which`. Raises UsageFault where it is not in the
    workspace."""
    others = list(_whole(ctx, ctx.settings.profile_of, SHIPPED))
    if not others:
        problem = f"the profile of run {ctx.settings.profile_of} is not in this workspace"
        raise UsageFault(problem, "make that run again, then this one")
    own = [p for p, _ in _whole(ctx, ctx.run.id, which)]
    return OtherProfile({p.case: OneCase(p, *others[i % len(others)]) for i, p in enumerate(own)})


def _whole(ctx: Context, run: str, which: str) -> Iterator[tuple[CaseProfile, str]]:
    for k in profiles.of(ctx.store, run, which):
        if k.summary is not None and (profile := profiles.whole(ctx.store.contents, k)) is not None:
            yield profile, k.summary.text


def _statics(profile: CaseProfile) -> list[StaticProfile]:
    return [k.static for k in profile.kernels if isinstance(k.static, StaticProfile)]


def _kernels(profile: CaseProfile) -> list[KernelProfile]:
    """The one that takes most of the time first, then the others in the order of their launches."""
    first = leading(profile)
    return sorted(profile.kernels, key=lambda k: k is not first)


def _source(profile: CaseProfile) -> list[int]:
    """The lines of the source that became instructions of the kernel that takes most of the time, in order."""
    statics = (k.static for k in _kernels(profile)[:1])
    return sorted({x.line for s in statics if isinstance(s, StaticProfile) for x in s.source if x.line})


def _moved(line: int, there: Sequence[int], here: Sequence[int]) -> int:
    before = sum(n < line for n in there)
    return here[min(before * len(here) // max(len(there), 1), len(here) - 1)] if here else line


def _spread(notes: Sequence[str], length: int) -> list[str]:
    """`length` of these, each as far down as it stands among them; none twice, and nothing where there are fewer."""
    at = [i * len(notes) // length for i in range(length)]
    return [notes[n] if notes and n not in at[:i] else "" for i, n in enumerate(at)]


def _takes(s: StaticProfile, device: Device) -> JsonObject:
    r = s.resources
    row = {"registers": r.registers, "shared": r.shared_bytes, "notes": list(s.notes)}
    spills = {"spill_store_bytes": r.spill_store_bytes, "spill_load_bytes": r.spill_load_bytes}
    return row | spills | {"pipeline_depth": s.pipeline.depth} | asdict(cost_model.occupancy(row, r.warps, device))
