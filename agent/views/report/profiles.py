"""Reads the stored profiles of the kernel as the run began and of its winner.

They are read from the content store, by the hashes in the record; nothing is run. A missing profile is a reason, not a
fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.record import profiles as profile_record
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.report.timings import short
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

BEFORE, AFTER = "as it began", "winner"


@dataclass(frozen=True)
class Profiled:
    """One case: the kernel as the run began, and its winner."""

    case: str
    before: CaseProfile | None
    after: CaseProfile | None
    reasons: tuple[str, ...]  # why something is missing, of either side

    @property
    def timed(self) -> bool:
        """Return whether there is a timeline to draw."""
        return any(isinstance(k.timeline, Timeline) for p in (self.before, self.after) if p for k in p.kernels)

    @property
    def kernels(self) -> list[tuple[str, KernelProfile | None, KernelProfile | None]]:
        """Return name, profile before, and profile after of each kernel."""
        sides = [{k.kernel: k for k in (p.kernels if p else ())} for p in (self.before, self.after)]
        names = dict.fromkeys([*sides[0], *sides[1]])
        return [(name, sides[0].get(name), sides[1].get(name)) for name in names]


Result = tuple[CaseProfile | None, tuple[str, ...]]  # a profile, and why something is missing
NOTHING: Result = (None, ("it was not profiled",))


def profiles(store: Store, run: Run, winner: str | None) -> tuple[Profiled, ...]:
    """Return the profiles of every public case. Raises UsageFault when the run has no baseline."""
    if run.baseline is None:
        raise UsageFault(f"run {run.id} has no baseline", "")
    sides = {side: _side(store, run, which) for side, which in ((BEFORE, incumbent.SHIPPED), (AFTER, winner)) if which}
    return tuple(
        _case(case, {side: by_case.get(case, NOTHING) for side, by_case in sides.items()})
        for case in run.baseline.cases
    )


def _case(case: str, sides: Mapping[str, Result]) -> Profiled:
    reasons = [f"{side}: {why}" for side, (_, whys) in sides.items() for why in whys]
    before, after = (sides.get(side, NOTHING)[0] for side in (BEFORE, AFTER))
    return Profiled(short(case), before, after, tuple(reasons))


def _side(store: Store, run: Run, which: str) -> dict[str, Result]:
    """Return the results of each case that was profiled."""
    return {k.case: _read(store.contents, k) for k in profile_record.of(store, run.id, which)}


def _read(contents: ContentStore, stored: StoredProfile) -> Result:
    absent = tuple(f"no {name}: {why}" for name, why in stored.passes.items() if why)
    if not stored.taken:
        return None, absent
    profile = profile_record.whole(contents, stored)
    return profile, absent if profile is not None else (f"no profile: {profile_record.NOT_KEPT}", *absent)
