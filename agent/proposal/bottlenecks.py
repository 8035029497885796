"""What profiles ask for: the bottlenecks of a source, for the moves to answer, and the words for one that was answered.

Of the incumbent they come from the summaries in the record; of another parent, which is not profiled, from what its
build tells by itself. Takes no pass and makes no order of moves: `agent/moves/catalogue.py` does.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pgo_agent.agent.moves import Best
from pgo_agent.agent.moves.priority import NO_PROFILE, ProfileEvidence
from pgo_agent.agent.profile.cost_model import SERIALIZED
from pgo_agent.agent.profile.findings import Defect, Finding
from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.settings import ProfileVisibility


def asked(ctx: Context, which: str, best: Mapping[str, Best]) -> ProfileEvidence:
    """What moves may answer in `shipped` or a candidate."""
    if ctx.settings.profile_visibility is ProfileVisibility.NONE:
        return NO_PROFILE
    kept = profiles.of(ctx.store, ctx.run.id, which)
    said = {k.case: k.summary.bottlenecks for k in kept if k.summary is not None}
    if said or kept:
        return ProfileEvidence(said or None)
    if ctx.settings.profile_visibility is not ProfileVisibility.ALL:
        return NO_PROFILE
    return ProfileEvidence({case: tuple(_of_builds(b)) for case, b in best.items()})


def _of_builds(best: Best) -> Iterator[Bottleneck]:
    """Spills and serialized dots of the kernels at a configuration: ptxas says so of every build."""
    for name, static in best.profiles.items():
        yield from (Bottleneck(name, finding, None) for finding in _of_build(static))


def _of_build(static: Mapping[str, Any]) -> Iterator[Finding]:
    if spilled := static["spill_store_bytes"]:
        yield Finding(Defect.SPILL, float(spilled), "B", 0, f"{spilled} B of registers spill to local memory")
    if notes := sorted(SERIALIZED & set(static["notes"])):
        told = f"ptxas serializes the tensor instructions ({', '.join(notes)}): none runs beside another"
        yield Finding(Defect.SERIALIZED, float(len(notes)), "notes", 0, told)


def because(cites: Bottleneck | None) -> str:
    """What a candidate cites, in words; empty where it cites nothing."""
    if cites is None:
        return ""
    finding = cites.finding
    share = f", {cites.share:.0%} of its time" if cites.share is not None else ""
    line = f" (line {finding.line})" if finding.line else ""
    return f"{finding.found_by}: {finding.told}{share}{line}"


def told(kept: StoredProfile) -> str:
    """A profile of the record in one line."""
    of = f"profile of {kept.candidate[:8]}, {kept.case.split('/', 1)[1]}"
    if kept.summary is None:
        return f"{of}: none: {'; '.join(why for why in kept.passes.values() if why) or 'not summarized'}"
    first = next(iter(kept.summary.bottlenecks), None)
    passes = " and ".join(kept.taken) + (f", in short by {kept.author}" if kept.author else "")
    return f"{of}, by {passes}: {kept.summary.bound}; first: {because(first) or 'nothing stands out'}"
