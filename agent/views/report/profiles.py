"""The profiles that a run kept of what it began with and of its winner, read again for a person.

Nothing is run for it: answers of passes come off the content store, under the keys of the machine and the compiler that
the run names. What is no longer there, or was kept by a version whose keys differ, is a reason and not a fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgo_agent.agent.profile.case_profile import CaseProfile, Means, Wanted, case_profile
from pgo_agent.agent.profile.pass_runner import Gpu
from pgo_agent.agent.run import incumbent, profile_targets
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles as profile_record
from pgo_agent.agent.run.record.profiles import Kept
from pgo_agent.agent.run.record.store import Run, Store
from pgo_agent.agent.views.report.timings import short
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore, canonical
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation.box import Box, Ran
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.profile.gpu_passes import GpuPassContext
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing, PassName
from pgo_agent.sandbox.profile.timeline.types import Timeline
from pgo_agent.sandbox.target import Target

BEFORE, AFTER = "as it began", "winner"
GONE = "it was not taken, its answer is not in the workspace any more, or another version of pgo-agent kept it"


@dataclass(frozen=True)
class Profiled:
    """One case: what the run began with beside its winner."""

    case: str
    before: CaseProfile | None
    after: CaseProfile | None
    reasons: tuple[str, ...]  # why something is not there, of either side

    @property
    def timed(self) -> bool:
        """Whether there is anything to draw."""
        return any(isinstance(k.timeline, Timeline) for p in (self.before, self.after) if p for k in p.kernels)

    @property
    def kernels(self) -> list[tuple[str, KernelProfile | None, KernelProfile | None]]:
        """By name, before and after."""
        sides = [{k.kernel: k for k in (p.kernels if p else ())} for p in (self.before, self.after)]
        names = dict.fromkeys([*sides[0], *sides[1]])
        return [(name, sides[0].get(name), sides[1].get(name)) for name in names]


Found = tuple[CaseProfile | None, tuple[str, ...]]  # a profile, and why something is not there
NOTHING: Found = (None, ("it was not profiled",))


class NotKept(EnvironmentFault):
    """A pass that would have to be taken again."""


@dataclass(frozen=True)
class Closed(Box):
    """A box in which nothing runs."""

    def admit(self, foreign: bool) -> None:
        """Whatever is asked for is not run."""

    def run(
        self, module: str, folder: Path, seconds: float, args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Ran:
        raise NotKept(GONE, "")


@dataclass(frozen=True)
class Figures(ContentStore):
    """A content store from which nobody reads what blocks recorded: a timeline's figures stand without that."""

    def get(self, digest: str, suffix: str) -> bytes:
        return b"" if suffix == RECORDS else super().get(digest, suffix)


@dataclass(frozen=True)
class Place(GpuPassContext):
    """The seat that a run's passes had, wherever this is."""

    triton: str = ""

    @property
    def identity(self) -> str:
        return canonical([repr(self.builder.device), self.triton]).decode()


@dataclass(frozen=True)
class Reading(Means):
    """Means to read what is kept, and to take nothing."""

    triton: str = field(kw_only=True)

    @property
    def context(self) -> GpuPassContext:
        return Place(self.builder, self.gpu.held, self.triton)


def profiles(store: Store, run: Run, winner: str | None) -> tuple[Profiled, ...]:
    """Of every public case. Raises UsageFault where the run has no baseline."""
    if run.baseline is None:
        raise UsageFault(f"run {run.id} has no baseline", "")
    ctx = _context(store, run)
    try:
        sides = {side: _side(ctx, which) for side, which in ((BEFORE, incumbent.SHIPPED), (AFTER, winner)) if which}
    finally:
        ctx.close()
    return tuple(
        _case(case, {side: found.get(case, NOTHING) for side, found in sides.items()}) for case in run.baseline.cases
    )


def _case(case: str, sides: Mapping[str, Found]) -> Profiled:
    told = [f"{side}: {why}" for side, (_, reasons) in sides.items() for why in reasons]
    before, after = (sides.get(side, NOTHING)[0] for side in (BEFORE, AFTER))
    return Profiled(short(case), before, after, tuple(told))


def _side(ctx: Context, which: str) -> dict[str, Found]:
    """Of each case that was profiled."""
    known = {k.case: k for k in profile_record.of(ctx.store, ctx.run.id, which)}
    try:
        places = {w.case: w for w in profile_targets.wanted(ctx, which)} if known else {}
    except Exception as e:  # the record of its builds may be of another version, too
        return dict.fromkeys(known, (None, (f"its build cannot be read ({type(e).__name__}: {e})",)))
    return {case: _read(ctx, places[case], k) for case, k in known.items() if case in places}


def _read(ctx: Context, w: Wanted, kept: Kept) -> Found:
    absent = tuple(f"no {name}: {why}" for name, why in kept.passes.items() if why)
    if not kept.taken:
        return None, absent
    wanted = frozenset(PassName(n) for n in kept.taken if n in list(PassName))
    means = Reading(ctx.builder, Gpu(None, 0.0, GONE), wanted, triton=str(ctx.settings.get("triton", "")))
    try:
        found = case_profile(means, w)
    except EnvironmentFault as e:
        return None, (f"no profile: {e.message}", *absent)
    except Exception as e:  # an answer of another version may break anything that reads it
        return None, (f"no profile: {GONE} ({type(e).__name__}: {e})", *absent)
    there = {name for k in found.kernels for name in PassName if not isinstance(getattr(k, name), Missing)}
    lost = (m for k in found.kernels for m in k.missing if m.why == GONE and m.name not in there)
    return found, tuple(dict.fromkeys([*(f"no {m.name}: {m.why}" for m in lost), *absent]))


def _context(store: Store, run: Run) -> Context:
    found, device = _target(run), devices.find(run.device)
    builder = Builder(
        found, device, Closed("bubblewrap", str(run.settings.get("python", ""))), Figures(store.contents.root), 1
    )
    return Context(store, run, found, device, builder, None, None, GpuJudge(found, gpu=None), lambda _: None)


def _target(run: Run) -> Target:
    """As the run had it. A contract in a file beside it is only known as that stands today."""
    path = Path(run.target)
    try:
        found = target.read(path)
    except UsageFault:
        return Target(path, run.source, path, run.source)
    return found if found.digest == run.digest else Target(path, run.source, path, run.source)
