"""The bottlenecks of a source, for the moves to answer, and the text of one that a candidate cites.

For the incumbent they come from the summaries in the record. Other parents are not profiled: theirs come from the
static profiles of their builds. It runs no pass and does not order moves: `agent/moves/catalogue.py` does.
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
    """Return the bottlenecks that moves may answer in `which`: `shipped` or the id of a candidate."""
    if ctx.settings.profile_visibility is ProfileVisibility.NONE:
        return NO_PROFILE
    stored = profiles.of(ctx.store, ctx.run.id, which)
    by_case = {k.case: k.summary.bottlenecks for k in stored if k.summary is not None}
    if by_case or stored:
        return ProfileEvidence(by_case or None)
    if ctx.settings.profile_visibility is not ProfileVisibility.ALL:
        return NO_PROFILE
    return ProfileEvidence({case: tuple(_of_builds(b)) for case, b in best.items()})


def _of_builds(best: Best) -> Iterator[Bottleneck]:
    """Spills and serialized dots of the kernels at a configuration: ptxas reports them for every build."""
    for name, static in best.profiles.items():
        yield from (Bottleneck(name, finding, None) for finding in _of_build(static))


def _of_build(static: Mapping[str, Any]) -> Iterator[Finding]:
    if spilled := static["spill_store_bytes"]:
        yield Finding(Defect.SPILL, float(spilled), "B", 0, f"{spilled} B of registers spill to local memory")
    if notes := sorted(SERIALIZED & set(static["notes"])):
        text = f"ptxas serializes the tensor instructions ({', '.join(notes)}): none runs beside another"
        yield Finding(Defect.SERIALIZED, float(len(notes)), "notes", 0, text)


def because(cites: Bottleneck | None) -> str:
    """Return the text of the bottleneck that a candidate cites; empty if it cites none."""
    if cites is None:
        return ""
    finding = cites.finding
    share = f", {cites.share:.0%} of its time" if cites.share is not None else ""
    line = f" (line {finding.line})" if finding.line else ""
    return f"{finding.found_by}: {finding.told}{share}{line}"


def one_line(stored: StoredProfile) -> str:
    """Return a profile of the record as one line."""
    of = f"profile of {stored.candidate[:8]}, {stored.case.split('/', 1)[1]}"
    if stored.summary is None:
        return f"{of}: none: {'; '.join(why for why in stored.passes.values() if why) or 'not summarized'}"
    first = next(iter(stored.summary.bottlenecks), None)
    passes = " and ".join(stored.taken) + (f", in short by {stored.author}" if stored.author else "")
    return f"{of}, by {passes}: {stored.summary.bound}; first: {because(first) or 'nothing stands out'}"
