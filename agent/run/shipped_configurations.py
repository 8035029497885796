"""The configurations of the file's own list: which one `triton.autotune` picks, and which are unfit.

The autotuner goes by time alone, so a user runs the fastest of the list today, right or not; *as shipped* is the
fastest right one. If these differ, a person decides before anything is optimized. It measures nothing itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pgo_agent.agent.run.record.baseline import Baseline, BaselinePoint, Best, Unfit
from pgo_agent.agent.run.record.run_summary import MeasuredRun, Picked
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.build.result import Failure
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.json_codec import JsonObject

AUTOTUNED = "autotuned"  # the baseline that the autotuner picks, as the record and sides are called
OPTION = "--drop-wrong"
MOST = 6  # configurations that one note names


def autotuned(points: Iterable[BaselinePoint], cases: Sequence[str], own_plans: set[str]) -> Best:
    """Return case -> the fastest of the file's own list, right or not; a case without any time is left out."""
    listed = [p for p in points if p.plan_id in own_plans and p.ms is not None]
    by_case = {case: [p for p in listed if p.case == case] for case in cases}
    return {c: replace(min(ps, key=lambda p: p.rank), statics=()) for c, ps in by_case.items() if ps}


def unfit(points: Iterable[BaselinePoint], own_plans: set[str], failures: Iterable[Failure]) -> list[Unfit]:
    """Return the configurations of the file's own list that are wrong, end badly or do not build. The reason of a
    failed build names its configuration.
    """
    wrong = [Unfit(p.case, p.said, p.problem, p.ms) for p in points if p.problem and p.plan_id in own_plans]
    kinds = {"build_error": "does not build"}
    return wrong + [
        Unfit(f.case, kinds.get(f.kind, f.kind), f.message.strip().splitlines()[0][:300], None)
        for f in failures
        if f.message.strip()
    ]


def lines(listed: Sequence[Unfit]) -> Iterator[str]:
    """Yield a line for each configuration and problem, with all its cases."""
    cases: dict[tuple[str, str], list[str]] = {}
    for u in listed:
        cases.setdefault((u.said, u.why), []).append(u.case.split("/", 1)[-1])
    for (configuration, why), names in cases.items():
        where = f" on {', '.join(names)}" if any(names) else ""
        yield f"{configuration}{where}: {why}"


def note(listed: Sequence[Unfit]) -> str:
    """Return all of them as a few lines; empty if there are none."""
    text = list(lines(listed))
    more = [f"and {len(text) - MOST} more: pgo-agent show"] if len(text) > MOST else []
    head = "configurations of the file's own list that no baseline is made of:"
    return "\n    ".join([head, *text[:MOST], *more]) if text else ""


def question(path: object, wrong: Best, shipped: Best, held_out: Sequence[BaselinePoint]) -> TargetFault:
    """Return the error for a run whose autotuner picks `wrong` configurations: the kernel as shipped would then differ
    from what a user runs today, and may be slower by more than a candidate gains. `held_out`: what these
    configurations do wrong on held-out cases.
    """
    case, p = next(iter(wrong.items()))
    right = shipped[case]
    more = f"; so it is on {len(wrong) - 1} more cases" if len(wrong) > 1 else ""
    return TargetFault(
        f"{path}: on {case.split('/', 1)[-1]} triton.autotune picks {p.said} ({p.time:.4g} ms), and that is not "
        f"right: {p.problem}; the fastest right one, {right.said}, takes {right.time:.4g} ms{more}",
        f"{advice([*wrong.values(), *held_out])}take it out of the list, or say {OPTION} to go on without it",
    )


def advice(wrong: Iterable[BaselinePoint]) -> str:
    """Return the TOLERANCE that admits all of these, as the start of a sentence; empty if none does."""
    return admitting(p.check for p in wrong)


def admitting(checks: Iterable[JsonObject | None]) -> str:
    """Return the TOLERANCE that admits what these comparisons found, as `advice` does."""
    tolerances = [json_codec.from_json(dict[str, float] | None, (c or {}).get("admits")) for c in checks]
    known = [t for t in tolerances if t]
    if not known or len(known) < len(tolerances):
        return ""
    most = ", ".join(f"{n}={max(t[n] for t in known):g}" for n in known[0])
    return f"if such errors are what you accept, TOLERANCE = dict({most}) in the file admits it; else "


def differ(base: Baseline) -> bool:
    """Whether the autotuner picks other code than the kernel as shipped in any case."""
    picked, cases = base.autotuned, base.cases
    return set(picked) == set(cases) and any(picked[c].plan_id != base.shipped[c].plan_id for c in cases)


def lost(summary: MeasuredRun) -> str:
    """Return the warning for a run whose result is slower than what a user runs today; empty if it is not."""
    result, name = ("winner", "the winner") if summary.winner else ("tuned", "the best that is right")
    slower = []
    for case, row in summary.cases.items():
        picked, sides = summary.autotuned.get(case), row.sides
        if picked is None or AUTOTUNED not in sides or result not in sides:
            continue
        now, then = sides[AUTOTUNED], sides[result]
        if now.ms < then.ms:
            figures = f"{now.ms:.4g} ms ({now.rate:.0f} {now.unit}) by {picked.said}, {then.ms:.4g} ms by {name}"
            slower.append(f"{case.split('/', 1)[-1]}: {figures}; {_why(picked)}")
    head = "Nothing was gained against what triton.autotune picks today, which is faster:"
    return "\n".join([head, *(f"  {line}" for line in slower)]) if slower else ""


def _why(p: Picked) -> str:
    return f"it was left out, for it is not right by the rule here: {p.problem}" if p.problem else "it is right"
