"""The embedded summarizer: the profile of a case in short, within a budget of tokens, with numbers of the profile only.

`rank_bottlenecks.py` ranks the bottlenecks, `compare.py` compares with an earlier profile, `advice.py` gives the
advice. Without a roofline the summary claims no bound: it gives the mix of instructions, or the busiest unit by the
counters.

A text that is too long loses whole sentences, in this order: advice beyond the first, what varies, the bottlenecks
after the third, the critical path, what changed, the other bottlenecks but the first and the time of launches, the
first advice; of several of a kind the last one first. The bound and the first bottleneck stay, even if they alone are
too long.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.profile.advice import ADVICE, NEAR_THE_ROOF
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.compare import changed
from pgo_agent.agent.profile.findings.timeline import source_line
from pgo_agent.agent.profile.format import figure, percent, printed
from pgo_agent.agent.profile.rank_bottlenecks import Ranked, launch_ns, leading, ranked
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
OUTSIDE = 0.2  # of a call: where so much is outside of kernels, it is said
KINDS = 4  # of instructions that are named if nothing was timed, tensor instructions first
LINE = re.compile(r"\bline (\d+)\b(?: of ([\w.-]+\.py))?")  # of the source, with its file where that is said


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
    files, first = files_of(case), leading(case)
    of_path = files.get(first.kernel, "") if first else ""
    tries = _tries(listed, reached, {k.kernel for k in case.kernels if _dots(k)})
    lines = [
        _Line(bound),
        *(_Line(sentence, 2) for sentence in _spent(case)),
        *_bottlenecks(listed, len(case.kernels) > 1, files),
        *(_Line(f"Critical path: {in_file(sentence, of_path)}", 4) for sentence in _path_text(case)),
        *([_Line(f"Varies most: {varies}", 6)] if varies else []),
        *(_Line(f"Since the last profile: {sentence}", 3) for sentence in differs),
        *(_Line(f"Try: {sentence}", 7 if i else 1) for i, sentence in enumerate(tries)),
    ]
    text = _fitted(lines, budget)
    return Summary(case.case, bound, reached, tuple(r.bottleneck for r in listed), path, varies, differs, tries, text)


def files_of(case: CaseProfile) -> dict[str, str]:
    """Return kernel -> the file that its lines are of, where the kernels of a case stand in several."""
    files = {k.kernel: k.static.file for k in case.kernels if isinstance(k.static, StaticProfile)}
    return files if len(set(files.values())) > 1 else {}


def in_file(text: str, file: str) -> str:
    """Return a text with the file beside each line of the source that it names; as it is without a file."""
    if not re.fullmatch(r"[\w.-]+\.py", file):
        return text
    return LINE.sub(lambda m: m[0] if m[2] else f"{m[0]} of {file}", text)


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
        reached = f"{percent(r.reached)} of the roof is reached, with {ms} ms a call ({r.how})"
        return f"Bound by {r.bound}: {reached}; the roof is {_peak(r)}, as measured on this GPU.{over}"
    if k is None:
        return f"Not timed ({r.why}), and torch operators alone: there is no kernel to look at."
    if case.floor:
        least = f"{printed(case.floor.seconds * 1e3)} ms at least, bound by {case.floor.bound}"
        return f"Not timed ({r.why}). An estimate by the contract and the data sheet: {least}; {_unbound(k)}."
    return f"Not timed ({r.why}), so no bound is known; {_unbound(k)}."


def _peak(r: Roofline) -> str:
    """The peak that was measured, in the unit of what a case is bound by."""
    return f"{r.peak_flops / 1e12:.0f} TFLOP/s" if r.bound == "compute" else f"{r.peak_bytes / 1e9:.0f} GB/s"


def _spent(case: CaseProfile) -> Iterator[str]:
    """Where the time of a call goes: to which kernel, and whether much of it to none."""
    how, of_launch = launch_ns(case)
    total, r = sum(of_launch[k.build] * k.launch.count for k in case.kernels if of_launch), case.roofline
    outside = bool(total) and isinstance(r, Roofline) and total < (1.0 - OUTSIDE) * r.seconds * 1e9
    if outside or len(of_launch) > 1:
        ordered = sorted(case.kernels, key=lambda k: -of_launch[k.build] * k.launch.count)
        times = ", ".join(f"{k.kernel} {printed(of_launch[k.build] / 1e6)} ms{_launched(k)}" for k in ordered)
        rest = "; the rest of a call is torch operators, and gaps between launches" if outside else ""
        yield f"A launch of each kernel, {how}: {times}{rest}."


def _launched(k: KernelProfile) -> str:
    return f", {k.launch.count} times" if k.launch.count > 1 else ""


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


def _bottlenecks(listed: Sequence[Ranked], several: bool, files: Mapping[str, str]) -> Iterator[_Line]:
    """Each defect of a kernel once, by its costliest finding. `files`: kernel -> its file, where that must be said."""
    kinds = defaultdict[tuple[str, str], list[Ranked]](list)
    for r in listed:
        kinds[r.bottleneck.kernel, r.bottleneck.finding.defect].append(r)
    if not kinds:
        yield _Line("No known defect stands out.")
    for i, (first, *others) in enumerate(kinds.values()):
        more = " There are others of its kind." if others else ""
        text = in_file(_describe(first, several), files.get(first.bottleneck.kernel, ""))
        yield _Line(f"- {text}{more}", (0, 2, 2)[i] if i < 3 else 5)


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
    timed = [(k.kernel, s) for k in case.kernels if isinstance(k.timeline, Timeline) for s in k.timeline.scopes]
    named = [(kernel, s) for kernel, s in timed if s.scope.kind not in HOLDING]
    kernel, most = max(named, key=lambda x: x[1].variation, default=("", None))
    if most is None or not most.variation:
        return ""
    low, high = printed(most.cycles.p20), printed(most.cycles.p80)
    where = in_file(_where(most), files_of(case).get(kernel, ""))
    return f"{where} takes {low} (P20) to {high} (P80) cycles, {printed(most.count)} times in a block."


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
