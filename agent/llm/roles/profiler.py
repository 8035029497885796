"""The profiler as a model: the values of its prompt, and the form of its reply. The rules are in `pass_policy.py`.

Its reply is a JSON object: `passes`, some of those offered, in order, an empty list to end; `reason`, a sentence.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pgo_agent.agent.profile.findings.static import of_code
from pgo_agent.agent.profile.findings.timeline import sections
from pgo_agent.agent.profile.format import percent
from pgo_agent.agent.profile.pass_policy import Choice, Situation
from pgo_agent.agent.text import line
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import PassName
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

TEMPLATE = "profiler"
DESCRIPTIONS = {
    PassName.TIMELINE: "clocks inside of the kernel: where its cycles go, wait by wait, and how blocks fill the SMs",
    PassName.COUNTERS: "Nsight Compute: units against their peaks, stall reasons, bank conflicts, cache hits",
}
LONGEST = 300  # characters of a reason
MOST = 12  # findings in the prompt


def facts(case: str, kernel: str, s: Situation) -> JsonObject:
    """Return the values of the template."""
    offered = [{"name": n.value, "tells": DESCRIPTIONS[n], "seconds": f"{cost:.1f}"} for n, cost in s.offered.items()]
    return {"case": case, "kernel": kernel, "known": list(answers(s)), "offered": offered, "left": f"{s.left:.1f}"}


def schema(s: Situation) -> JsonObject:
    """Return the JSON schema of the reply."""
    names = {"type": "array", "items": {"type": "string", "enum": [n.value for n in s.offered]}}
    properties = {"passes": names, "reason": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class Chosen:
    """Reads a reply: `passes` and `why` afterwards, `valid` if it was one."""

    def __init__(self, s: Situation) -> None:
        self.situation, self.valid, self.passes, self.why = s, False, tuple[PassName, ...](), ""

    def read(self, reply: Mapping[str, Any]) -> str:
        """Read a reply; return what is wrong with it, empty if nothing is."""
        names, reason = reply.get("passes"), reply.get("reason")
        offered = {n.value: n for n in self.situation.offered}
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            return "'passes' is no list of names"
        if strange := [n for n in names if n not in offered]:
            return f"'{line(strange[0])[:40]}' is none of the passes that can be taken: {', '.join(offered)}"
        if not isinstance(reason, str) or not line(reason):
            return "'reason' is no sentence"
        passes = tuple(dict.fromkeys(offered[n] for n in names))
        cost = sum(self.situation.offered[n] for n in passes)
        if cost > self.situation.left:
            return f"they take about {cost:.1f} s of the GPU, and {self.situation.left:.1f} s are left"
        self.valid, self.passes, self.why = True, passes, line(reason, LONGEST)
        return ""

    def choice(self, by: str) -> Choice | None:
        """Return the choice; None if no reply was valid."""
        return Choice(self.passes, self.why, by) if self.valid else None


def answers(s: Situation) -> Iterator[str]:
    """Yield the results of the passes so far as short lines."""
    if isinstance(s.static, StaticProfile):
        yield from _static(s.static)
    else:
        yield f"static: none: {line(s.static.reason)}"
    for name, answer in s.answers.items():
        if isinstance(answer, Timeline):
            shares = ", ".join(f"{x.defect} {percent(x.share)}" for x in sections(answer)[:MOST])
            yield f"timeline: cycles by section: {shares or 'it has no shares'}"
        elif isinstance(answer, Counters):
            units = ", ".join(f"{unit} {percent(share)}" for unit, share in answer.speed_of_light.items())
            yield f"counters: units against their peaks: {units or 'none'}"
        else:
            yield f"{name}: none: {line(answer.why)}"


def _static(k: StaticProfile) -> Iterator[str]:
    r, fits, pipe = k.resources, k.occupancy, k.pipeline
    yield (
        f"static: {r.registers} registers of a thread, {r.spill_store_bytes} B spilled, {r.shared_bytes} B of shared "
        f"memory, {fits.warps} of {fits.most_warps} warps of an SM, {pipe.dots} dots, pipeline {pipe.depth} deep"
    )
    hot = max((m for m in k.loops if not m.waits), key=lambda m: (m.depth, m.instructions), default=None)
    if hot is not None:
        mix = ", ".join(f"{n} {kind}" for kind, n in sorted(hot.kinds.items(), key=lambda item: -item[1]))
        yield f"static: {hot.instructions} instructions in the innermost loop: {mix}"
    for f in list(of_code(k))[:MOST]:
        yield f"static: {f.defect}: {line(f.told)}"
