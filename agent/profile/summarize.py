"""The embedded summarizer: the profile of a case in short, within a budget of tokens, with numbers of the profile only.

`rank_bottlenecks.py` ranks the bottlenecks, `compare.py` compares with an earlier profile, `advice.py` gives the
advice. Without a roofline the summary claims no bound: it gives the mix of instructions, or the busiest unit by the
counters.

A text that is too long loses whole sentences, in this order: advice beyond the first, what varies, the bottlenecks
after the third, the critical path, what changed, the other bottlenecks but the first, the first advice; of several of a
kind the last one first. The bound and the first bottleneck stay, even if they alone are too long.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pgo_agent.agent.profile.advice import ADVICE, NEAR_THE_ROOF
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.compare import changed
from pgo_agent.agent.profile.findings.timeline import source_line
from pgo_agent.agent.profile.format import figure, percent, printed
from pgo_agent.agent.profile.rank_bottlenecks import Ranked, leading, ranked
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.sandbox.judge.questions import PEAK_MARGIN
from pgo_agent.sandbox.profile.kernel_profile import Chain, KernelProfile, Missing, Roofline
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.find_scopes import HOLDING
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline

BUDGET = 800  # tokens
LETTERS = 3.5  # of a token: an estimate, for text like this
STEPS = 3  # of the critical path that the text names
TRIES = 4
CLOSE = 0.9  # of the roof
OVER_THE_ROOF = "More than the peaks allow: caches serve it, or flops() or bytes_moved() say more than is needed."
KINDS = 4  # of instructions that are named if nothing was timed, tensor instructions first


@dataclass(frozen=True)
class _Line:
    text: str
    rank: int = 0  # the highest is dropped first; 0 stays


def summarize(case: CaseProfile, before: CaseProfile | None = None, budget: int = BUDGET) -> Summary:
    """Summarize a case. `before`: the last profile of the same case. `budget`: tokens of the text, by `tokens`."""
    listed = ranked(case)
    reached = case.roofline.reached if isinstance(case.roofline, Roofline) else None
    bound, varies, path = _bound(case), _varies(case), _path(case)
    differs = changed(case, before) if before else ()
    tries = _tries(listed, reached, {k.kernel for k in case.kernels if _dots(k)})
    lines = [
        _Line(bound),
        *_bottlenecks(listed, len(case.kernels) > 1),
        *(_Line(f"Critical path: {sentence}", 4) for sentence in _path_text(case)),
        *([_Line(f"Varies most: {varies}", 6)] if varies else []),
        *(_Line(f"Since the last profile: {sentence}", 3) for sentence in differs),
        *(_Line(f"Try: {sentence}", 7 if i else 1) for i, sentence in enumerate(tries)),
    ]
    text = _fitted(lines, budget)
    return Summary(case.case, bound, reached, tuple(r.bottleneck for r in listed), path, varies, differs, tries, text)


def tokens(text: str) -> int:
    """Return an estimate of the number of tokens of a text, without a tokenizer."""
    return math.ceil(len(text) / LETTERS)


def _fitted(lines: Sequence[_Line], budget: int) -> str:
    remaining = list(lines)
    while tokens(_joined(remaining)) > budget and any(x.rank for x in remaining):
        last = max(range(len(remaining)), key=lambda i: (remaining[i].rank, i))
        del remaining[last]
    return _joined(remaining)


def _joined(lines: Sequence[_Line]) -> str:
    return "\n".join(x.text for x in lines)


def _bound(case: CaseProfile) -> str:
    r, k = case.roofline, leading(case)
    if isinstance(r, Roofline):
        ms = printed(r.seconds * 1e3)
        over = f" {OVER_THE_ROOF}" if r.reached > PEAK_MARGIN else ""
        return f"Bound by {r.bound}: {percent(r.reached)} of the roof is reached, with {ms} ms a call ({r.how}).{over}"
    if k is None:
        return f"Not timed ({r.why}), and torch operators alone: there is no kernel to look at."
    if case.floor:
        least = f"{printed(case.floor.seconds * 1e3)} ms at least, bound by {case.floor.bound}"
        return f"Not timed ({r.why}). An estimate by the contract and the data sheet: {least}; {_unbound(k)}."
    return f"Not timed ({r.why}), so no bound is known; {_unbound(k)}."


def _unbound(k: KernelProfile) -> str:
    """What is known about a kernel without a roofline."""
    if not isinstance(k.counters, Missing) and k.counters.speed_of_light:
        unit, share = max(k.counters.speed_of_light.items(), key=lambda item: item[1])
        return f"by counters the busiest unit of {k.kernel} is {unit}, at {percent(share)} of its peak"
    if not isinstance(k.static, StaticProfile):
        return f"{k.kernel} has no static profile ({k.static.reason})"
    where, kinds = _hottest(k.static)
    most = sorted((n for n in kinds if kinds[n]), key=lambda kind: (kind != "tensor", -kinds[kind], kind))[:KINDS]
    mix = ", ".join(f"{kinds[kind]} {kind}" for kind in most) or "nothing"
    return f"by its instructions {where} of {k.kernel} is {mix}"


def _hottest(k: StaticProfile) -> tuple[str, dict[str, int]]:
    """The innermost loop with most tensor instructions, then most of all; the whole kernel if it has no loops."""
    loops = [m for m in k.loops if not m.waits]
    hot = max(loops, key=lambda m: (m.depth, m.kinds.get("tensor", 0), m.instructions), default=None)
    return ("the innermost loop", hot.kinds) if hot else ("the text", k.kinds)


def _bottlenecks(listed: Sequence[Ranked], several: bool) -> Iterator[_Line]:
    """Each defect of a kernel once, by its costliest finding."""
    kinds = defaultdict[tuple[str, str], list[Ranked]](list)
    for r in listed:
        kinds[r.bottleneck.kernel, r.bottleneck.finding.defect].append(r)
    if not kinds:
        yield _Line("No known defect stands out.")
    for i, (first, *others) in enumerate(kinds.values()):
        more = " There are others of its kind." if others else ""
        yield _Line(f"- {_describe(first, several)}{more}", (0, 2, 2)[i] if i < 3 else 5)


def _describe(r: Ranked, several: bool) -> str:
    """One bottleneck with its number, its pass, and its share by the timeline."""
    f, share = r.bottleneck.finding, r.bottleneck.share
    named = f"{f.defect} in {r.bottleneck.kernel}" if several else str(f.defect)
    where = f", line {f.line}" if f.line else ""
    number = figure(f)
    counted = "" if number in f.told else f"{number} {f.unit}: "
    if r.section:
        also = f"; the timeline has {percent(share or 0.0)} of the cycles in {r.section.defect}"
    else:
        also = f"; about {percent(share)} of the time" if share is not None and percent(share) not in f.told else ""
    return f"{named} ({f.found_by}{where}): {counted}{f.told}{also}."


def _chains(case: CaseProfile) -> tuple[KernelProfile, Chain] | None:
    k = leading(case)
    return (k, k.chain) if k and isinstance(k.chain, Chain) else None


def _path(case: CaseProfile) -> tuple[str, ...]:
    chain_of_kernel = _chains(case)
    return tuple(s.scope for s in chain_of_kernel[1].scopes if s.on_path and s.scope) if chain_of_kernel else ()


def _path_text(case: CaseProfile) -> Iterator[str]:
    chain_of_kernel = _chains(case)
    if chain_of_kernel:
        k, chain = chain_of_kernel
        steps = [s for s in chain.scopes if s.on_path and s.scope][:STEPS]
        places = ", ".join(f"{_place(k, s.scope)} {printed(s.cycles)}" for s in steps)
        yield f"{printed(chain.length)} cycles in {chain.iterations} iterations, most of them in {places}."


def _place(k: KernelProfile, name: str) -> str:
    """A scope by its kind and line of the source, else by its name."""
    scopes = k.timeline.scopes if isinstance(k.timeline, Timeline) else ()
    return next((_where(s) for s in scopes if s.scope.name == name), name)


def _where(s: ScopeTime) -> str:
    line, role = source_line(s), "" if s.scope.role == "kernel" else f" of {s.scope.role}"
    return f"{s.scope.kind}{role} (line {line})" if line else s.scope.name


def _varies(case: CaseProfile) -> str:
    """The scope with the highest variation, of those that hold no others; empty if there is none."""
    timed = [s for k in case.kernels if isinstance(k.timeline, Timeline) for s in k.timeline.scopes]
    most = max((s for s in timed if s.scope.kind not in HOLDING), key=lambda s: s.variation, default=None)
    if most is None or not most.variation:
        return ""
    low, high = printed(most.cycles.p20), printed(most.cycles.p80)
    return f"{_where(most)} takes {low} (P20) to {high} (P80) cycles, {printed(most.count)} times in a block."


def _tries(listed: Sequence[Ranked], reached: float | None, with_dots: Collection[str]) -> tuple[str, ...]:
    """Advice for the first bottlenecks, each once, and for the sections that they explain, by what a kernel can do."""
    found = [
        (f.defect, r.bottleneck.kernel in with_dots) for r in listed for f in (r.bottleneck.finding, r.section) if f
    ]
    first = [NEAR_THE_ROOF] if reached is not None and reached >= CLOSE else []
    return (*first, *list(dict.fromkeys(ADVICE[d].text(dots) for d, dots in found))[:TRIES])


def _dots(k: KernelProfile) -> bool:
    """Whether a kernel has dots, or nobody knows."""
    return not isinstance(k.static, StaticProfile) or bool(k.static.pipeline.dots or k.static.kinds.get("tensor"))
