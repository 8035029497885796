"""The summarizer as a model: the values of its prompt about an incumbent's profile, and the form of its reply.

It starts from the embedded summaries (`summarize.py`) and the figures of the passes. Its reply is a JSON object:
`cases`, an entry for each with its name, `text`, and `order`, the labels of its bottlenecks, the costliest first. A
text is accepted if it keeps within the budget and the profile has every number in it (`quoted_numbers.py`). Omitted
labels follow in the embedded order. A case that is not accepted keeps its embedded summary.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.format import percent, printed
from pgo_agent.agent.profile.quoted_numbers import unfounded
from pgo_agent.agent.profile.summarize import BUDGET, tokens
from pgo_agent.agent.profile.summary import Bottleneck, Summary
from pgo_agent.agent.text import line
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Roofline
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline

TEMPLATE = "summarizer"
LISTED = 24  # bottlenecks of a case in the prompt
SCOPES, STALLS, LINES = 10, 6, 5  # of a kernel, in the prompt


@dataclass(frozen=True)
class Short:
    """One case: its profile, that of the previous incumbent, and the embedded summary of both."""

    profile: CaseProfile
    before: CaseProfile | None
    summary: Summary

    @property
    def name(self) -> str:
        return self.summary.case.split("/", 1)[-1]

    @property
    def labels(self) -> dict[str, Bottleneck]:
        return {f"B{i}": b for i, b in enumerate(self.summary.bottlenecks[:LISTED], 1)}


def facts(shorts: Sequence[Short]) -> JsonObject:
    """Return the values of the template."""
    return {"cases": [_case(s) for s in shorts], "budget": BUDGET}


def schema(shorts: Sequence[Short]) -> JsonObject:
    """Return the JSON schema of the reply."""
    order = {"type": "array", "items": {"type": "string"}}
    name = {"type": "string", "enum": [s.name for s in shorts]}
    case = _object({"case": name, "text": {"type": "string"}, "order": order})
    return _object({"cases": {"type": "array", "items": case}})


class Written:
    """Reads replies: `summaries` holds the accepted ones, by the name of their case."""

    def __init__(self, shorts: Sequence[Short]) -> None:
        self.shorts = {s.name: s for s in shorts}
        self.summaries: dict[str, Summary] = {}
        self.problems = dict.fromkeys(self.shorts, "the reply does not name it")

    def read(self, reply: Mapping[str, Any]) -> str:
        """Accept the valid entries; return what is wrong with the others, empty if nothing is."""
        listed = reply.get("cases")
        for entry in listed if isinstance(listed, list) else ():
            name = entry.get("case") if isinstance(entry, dict) else None
            if isinstance(name, str) and name in self.problems:
                self._take(self.shorts[name], entry)
        return "; ".join(f"{name}: {why}" for name, why in self.problems.items())

    def _take(self, short: Short, entry: Mapping[str, Any]) -> None:
        text, order = entry.get("text"), entry.get("order")
        if why := _wrong(short, text, order):
            self.problems[short.name] = why
            return
        del self.problems[short.name]
        first = [short.labels[label] for label in dict.fromkeys(order or ())]
        rest = [b for b in short.summary.bottlenecks if b not in first]
        self.summaries[short.name] = replace(short.summary, text=_plain(str(text)), bottlenecks=(*first, *rest))


def _wrong(short: Short, text: object, order: object) -> str:
    """Why the entry of a case is not accepted; empty if it is."""
    if not isinstance(text, str) or not _plain(text):
        return "'text' is no text"
    if tokens(_plain(text)) > BUDGET:
        return f"'text' is longer than {BUDGET} tokens"
    if not isinstance(order, list) or not all(isinstance(x, str) for x in order):
        return "'order' is no list of labels"
    if strange := [x for x in order if x not in short.labels]:
        return f"'{line(strange[0])[:40]}' is no label of its bottlenecks"
    made_up = unfounded(_plain(text), short.profile, *([short.before] if short.before else []), short.summary)
    return f"no profile has the numbers {', '.join(made_up[:LINES])}" if made_up else ""


def _plain(text: str) -> str:
    """Its lines without unprintable characters, and without empty lines."""
    return "\n".join(filter(None, (line(t, None) for t in text.splitlines())))


def _object(properties: Mapping[str, Any]) -> JsonObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


# the prompt -----------------------------------------------------------------------------------------------------------


def _case(s: Short) -> JsonObject:
    bottlenecks = [f"{label}: {_describe(b)}" for label, b in s.labels.items()]
    figures = [*_roof(s.profile), *(f for k in s.profile.kernels for f in _figures(k))]
    return {
        "name": s.name,
        "configuration": line(s.profile.configuration),
        "text": _plain(s.summary.text),
        "bottlenecks": bottlenecks,
        "figures": [line(f) for f in figures],
    }


def _describe(b: Bottleneck) -> str:
    f = b.finding
    share = f", {percent(b.share)} of the kernel's time" if b.share is not None else ""
    where = f", line {f.line}" if f.line else ""
    return line(f"{f.defect} in {b.kernel} (by {f.found_by}{where}{share}): {f.told}")


def _roof(case: CaseProfile) -> Iterator[str]:
    r = case.roofline
    if isinstance(r, Roofline):
        yield f"a call takes {printed(r.seconds * 1e3)} ms: {percent(r.reached)} of the {r.bound} roof"


def _figures(k: KernelProfile) -> Iterator[str]:
    for missing in k.missing:
        yield f"{k.kernel}: no {missing.name}: {missing.why}"
    if isinstance(k.timeline, Timeline):
        yield from (f"{k.kernel}: {_scope(s)}" for s in _dearest(k.timeline))
    if isinstance(k.counters, Counters):
        yield from _counted(k.kernel, k.counters)


def _dearest(t: Timeline) -> list[ScopeTime]:
    return sorted((s for s in t.scopes if s.share is not None), key=lambda s: -(s.share or 0.0))[:SCOPES]


def _scope(s: ScopeTime) -> str:
    low, middle, high = (printed(c) for c in (s.cycles.p20, s.cycles.p50, s.cycles.p80))
    share = percent(s.share or 0.0)
    return f"{s.scope.name}: {share} of the cycles, {middle} each (P20 {low}, P80 {high}), {printed(s.count)} times"


def _counted(kernel: str, c: Counters) -> Iterator[str]:
    stalls = sorted(c.stalls.items(), key=lambda item: -item[1])[:STALLS]
    yield f"{kernel}: units against their peaks: {', '.join(f'{u} {percent(x)}' for u, x in c.speed_of_light.items())}"
    yield f"{kernel}: samples of warps: {', '.join(f'{reason} {percent(x)}' for reason, x in stalls)}"
    for at in sorted(c.source, key=lambda x: -x.samples)[:LINES]:
        yield f"{kernel}: line {at.line}: {at.samples} samples, {at.executed} instructions"
