"""What a prompt tells of a profile: as much as the run may tell (`ProfileVisibility`), and nothing beside it.

Whatever of a prompt follows from a profile is made here, or hangs on the `defects` and `weights` given here. In a
controlled run these are empty: cards, Gluon and the lines of code that are shown follow from the kernel alone, so
prompts that are told more or less of a profile read alike in all else. Relies on profiles in the record.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from pgo_agent.agent import moves
from pgo_agent.agent import text as printable
from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.agent.moves import launch_config
from pgo_agent.agent.profile import cost_model, counter_figures
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.agent.profile.summarize import LINE, files_of, in_file
from pgo_agent.agent.proposal.prompt import other_profile
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import profiles
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile import pseudocode, roofline
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Roofline
from pgo_agent.sandbox.profile.static_profile import StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

_STATIC = ("registers", "shared", "spill_store_bytes", "spill_load_bytes", "notes", "pipeline_depth")


@dataclass(frozen=True)
class Told:
    lines: Sequence[str]  # of the section on the profile
    statics: Sequence[JsonObject]  # builds, with what each takes
    defects: Sequence[Defect]  # of all cases, the costliest first
    by_case: Sequence[Sequence[Defect]]
    named: Sequence[int]  # lines of the target's own file that the profile names: others are not in the prompt


def told(ctx: Context, which: str, best: Mapping[str, moves.Best]) -> Told:
    """Return what is told of the profile of `which`: `shipped` or a candidate."""
    stored = _told_of(ctx, which)
    lines = _in_lines(_by_case(ctx, stored))
    summed = [] if ctx.settings.controlled else [k for k in stored if k.summary is not None]
    statics = list[JsonObject]()
    if ctx.settings.profile_visibility is ProfileVisibility.ALL:
        statics = _statics(ctx, best)
    if ctx.settings.profile_of:
        other = other_profile.of(ctx, which)
        lines, statics = _in_lines(other.lines), other.statics(statics, ctx.device)
    named = lines_named(lines, _own_files(ctx, which)) if any(map(LINE.search, lines)) else []
    return Told(lines, statics, _defects(summed), [_defects([k]) for k in summed], named)


def lines_named(lines: Sequence[str], own_files: Collection[str]) -> list[int]:
    """Return the lines of the target's own file that are named, in order. `own_files`: whose kernels are its own."""
    found = [m for line in lines for m in LINE.finditer(line)] if own_files else []
    return list(dict.fromkeys(int(m[1]) for m in found if m[2] is None or m[2] in own_files))


def code(ctx: Context, shown: Shown, which: str) -> tuple[str, dict[str, float]]:
    """Return all lines of a kernel's code, with their costs as far as these are told, and cycles by label if they were
    timed."""
    stored = (k for k in profiles.of(ctx.store, ctx.run.id, which) if k.case == shown.case and k.taken)
    profile = next((profiles.whole(ctx.store.contents, k) for k in stored), None)
    if profile is None:
        return shown.view.text(), {}
    text = profile.code.get(shown.build) or shown.view.text()
    if not ctx.settings.controlled:
        return text, _weights(shown, profile)
    rows = pseudocode.apart(text)
    if ctx.settings.profile_of:
        return other_profile.of(ctx, which).beside(rows, shown.case), {}
    whole = ctx.settings.profile_visibility is ProfileVisibility.ALL
    return (text if whole else "".join(f"{row}\n" for row, _ in rows)), {}


def _told_of(ctx: Context, which: str) -> list[StoredProfile]:
    """The profiles that are told of: a controlled run knows what it is bound by from the kernel as shipped."""
    once = ctx.settings.controlled and ctx.settings.profile_visibility is ProfileVisibility.BOUND
    return profiles.of(ctx.store, ctx.run.id, incumbent.SHIPPED if once else which)


def _by_case(ctx: Context, stored: Sequence[StoredProfile]) -> dict[str, list[str]]:
    """Case -> lines, by what may be told."""
    told = ctx.settings.profile_visibility
    if told is ProfileVisibility.NONE:
        return {}
    if told is ProfileVisibility.ALL:
        return {k.case: k.summary.text.splitlines() for k in stored if k.summary is not None}
    wholes = [p for k in stored if k.taken and (p := profiles.whole(ctx.store.contents, k)) is not None]
    if told is ProfileVisibility.COUNTERS:
        return {p.case: _counted(p) for p in wholes}
    return {p.case: [f"Bound by {bound}."] for p in wholes if (bound := bound_by(ctx.baseline(), p, ctx.device))}


def _own_files(ctx: Context, which: str) -> set[str]:
    """The files of kernels that the source of `which` defines: as a rule one."""
    source = incumbent.python(ctx, which)
    stored = (k for k in profiles.of(ctx.store, ctx.run.id, which) if k.taken)
    wholes = (profiles.whole(ctx.store.contents, k) for k in stored)
    kernels = [k for p in wholes if p is not None for k in p.kernels if isinstance(k.static, StaticProfile)]
    own = [k for k in kernels if re.search(rf"^\s*def {re.escape(k.kernel)}\b", source, re.M)]
    return {k.static.file for k in own if isinstance(k.static, StaticProfile)}


def _counted(profile: CaseProfile) -> list[str]:
    """The figures of all kernels, of the one first that takes most of the time."""
    files = files_of(profile)
    counted = [(k.kernel, k.counters, k.launch.count) for k in profile.kernels if isinstance(k.counters, Counters)]
    counted.sort(key=lambda x: -x[1].duration_ns * x[2])
    return [in_file(line, files.get(name, "")) for name, c, _ in counted for line in counter_figures.told(c)]


def bound_by(base: Baseline, profile: CaseProfile, device: Device) -> str:
    """Return what the work of a case is bound by: by peaks that were measured, or without a time by the data sheet;
    empty where the target tells no work."""
    if isinstance(profile.roofline, Roofline):
        return profile.roofline.bound
    work = base.work_of(profile.case)
    least = roofline.floor(roofline.Work(work.flops, work.bytes), device)
    return least.bound if least else ""


def _in_lines(by_case: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of every public case; one that several cases share stands once."""
    cases_by_line: dict[str, list[str]] = {}
    for case, lines in by_case.items():
        for line in filter(str.strip, lines):
            cases_by_line.setdefault(line.strip().removeprefix("- "), []).append(case.split("/", 1)[1])
    return [printable.line(f"{', '.join(cases)}: {line}") for line, cases in cases_by_line.items()]


def _defects(stored: Sequence[StoredProfile]) -> list[Defect]:
    """The defects of all cases, the costliest first."""
    ranked = [(i, b.finding.defect) for k in stored if k.summary for i, b in enumerate(k.summary.bottlenecks)]
    return list(dict.fromkeys(defect for _, defect in sorted(ranked, key=lambda f: f[0])))


def _statics(ctx: Context, best: Mapping[str, moves.Best]) -> list[JsonObject]:
    """Each build once, with the cases for which it is the best known."""
    rows: list[JsonObject] = []
    cases = list[list[str]]()
    for case, b in best.items():
        fits = cost_model.occupancy(b.static, b.config.get("num_warps", 4), ctx.device)
        row = {k: b.static[k] for k in _STATIC} | asdict(fits) | {"choice": launch_config.said(b.config)}
        if row not in rows:
            rows.append(row)
            cases.append([])
        cases[rows.index(row)].append(case.split("/", 1)[1])
    return [row | {"cases": of_row} for row, of_row in zip(rows, cases, strict=True)]


def _weights(shown: Shown, profile: CaseProfile) -> dict[str, float]:
    timelines = [k.timeline for k in profile.kernels if k.build == shown.build and isinstance(k.timeline, Timeline)]
    labels, weights = shown.view.labels(), dict[str, float]()
    for scope in (s for t in timelines for s in t.scopes):
        if label := next((labels[n] for n in range(scope.scope.first, scope.scope.last + 1) if n in labels), None):
            weights[label] = weights.get(label, 0.0) + scope.count * scope.cycles.p50
    return weights
