"""What tools answer: a frozen dataclass for each, of which the MCP SDK makes the schema; made from the record.

An agent writes candidates, so it hears what a model may hear: reasons without bounds, and of a held-out case only that
there is one. Runs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgo_agent.agent import text
from pgo_agent.agent.cli.mcp_server import built_kernels, looked_for
from pgo_agent.agent.evaluation import coverage_text
from pgo_agent.agent.evaluation.duplicates import SAME_AS
from pgo_agent.agent.run import incumbent, target_file
from pgo_agent.agent.run.record import pending, user_requests
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.candidate import Candidate, candidate_id
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.agent.run.settings import STATES
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.reason import NONE
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

SIDES = ("incumbent", "shipped", "tuned")
NO_GPU = "nothing is measured: no GPU is used"
SPILLS = "it spills: `profile` with candidate=JOB says at which lines the registers are live"


@dataclass(frozen=True)
class Ratio:
    """How many times faster, with the ends of the 95 % interval."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Job:
    """A candidate on its way. `job` names it for `status` and `result`."""

    job: str
    state: str  # queued, proposed, built, looked at, measured or done; failed: `doing` says what to fix in the target
    doing: str  # what the run does at the moment
    waiting: int  # submissions of the run that are not taken yet


@dataclass(frozen=True)
class Result:
    """The verdict on a candidate. Only `accepted` is faster: right, and beyond the noise, twice."""

    job: str
    state: str
    verdict: str | None  # None: there is none yet
    stage: str | None  # of the gate, that gave it
    reason: str
    over: dict[str, Ratio] = field(default_factory=dict)  # incumbent, shipped, tuned -> times faster, geometric mean
    by_case: dict[str, float] = field(default_factory=dict)  # public case -> how many times faster than the incumbent
    checked: str = ""  # whose results were compared, of how many
    races: str = ""  # which were looked for, and where
    kernels: list[str] = field(default_factory=list)  # what each was compiled to: registers, spilled bytes, notes
    note: str = ""


@dataclass(frozen=True)
class CaseTimes:
    case: str
    shipped: str  # configuration
    shipped_ms: float | None
    tuned: str
    tuned_ms: float | None
    how: str  # measured, recorded or estimate


@dataclass(frozen=True)
class Baselines:
    """What candidates are measured against."""

    run: str
    state: str  # working: they are being made, call again; known
    doing: str
    device: str
    cases: list[CaseTimes]
    incumbent: str  # `shipped`, or the best accepted candidate, which new ones have to beat


@dataclass(frozen=True)
class RunReport:
    """A run as a whole."""

    run: str
    target: str
    state: str
    open_to: str
    winner: str | None
    against: dict[str, Ratio]  # shipped, tuned -> how many times faster the winner is, by the last session
    candidates: list[str]  # a line each


def result(store: Store, job: str) -> Result:
    """Return what is known of a candidate. Raises UsageFault for an unknown job."""
    run, candidate = found(store, job)
    if candidate is None or candidate.verdict is None:
        so_far = status(store, job, "")
        why = so_far.doing if so_far.state == "failed" else "there is no verdict yet: call again"
        return Result(job, so_far.state, None, None, why, kernels=built_kernels.lines(candidate) if candidate else [])
    evidence = store.evidence(run.id, candidate.id)
    weights = run.baseline.weights if run.baseline else None
    measured = run.baseline is not None and run.baseline.environment is not None
    notes = _twin(store, run, evidence), "" if measured else NO_GPU, SPILLS if built_kernels.spills(candidate) else ""
    return Result(
        job,
        "done",
        candidate.verdict,
        candidate.stage,
        (candidate.why or NONE).for_model(hidden(run)),
        {side: ratio for side in SIDES if (ratio := _over(evidence, side, weights))},
        {case.split("/", 1)[1]: round(x, 4) for case, x in incumbent.gains(evidence).items()},
        coverage_text.of(evidence).public.said(),
        looked_for.races(evidence),
        built_kernels.lines(candidate),
        "; ".join(filter(None, notes)),
    )


def status(store: Store, job: str, doing: str) -> Job:
    """Return how far a candidate is. Raises UsageFault for an unknown job."""
    run, candidate = found(store, job)
    waiting = len(user_requests.waiting(store, run.id, Kind.SUBMIT))
    if candidate is None or run.error:
        ended = run.error or run.state in STATES  # then nobody takes it any more
        return Job(job, "failed" if ended else "queued", _doing(run, doing), waiting)
    far = pending.progress(store, run.id).get(candidate.id, ("",))[0]
    state = "done" if candidate.verdict else far or ("built" if candidate.built else "proposed")
    return Job(job, state, "" if candidate.verdict else _doing(run, doing), waiting)


def _doing(run: Run, doing: str) -> str:
    if run.error:
        return f"the run failed: {run.error}"
    return f"the run has ended ({run.state}): submit again" if run.state in STATES else doing


def found(store: Store, job: str) -> tuple[Run, Candidate | None]:
    """Return the run and the candidate of a job; None: it waits for its generation. Raises UsageFault for no job."""
    of, _, name = job.partition("/")
    run = next((r for r in store.runs() if r.id == of), None)
    candidate = next((c for c in store.candidates(run.id) if c.id == name), None) if run else None
    asked = user_requests.of(store, run.id, Kind.SUBMIT) if run and candidate is None else []
    if run is None or (candidate is None and name not in {candidate_id(s.body["source"]) for s in asked}):
        raise UsageFault(f"there is no job '{text.line(job, 80)}'", "take it from the answer of `submit`")
    return run, candidate


def target_of(store: Store, job: str) -> Path:
    """Return the target of a candidate that was proposed. Raises UsageFault for no such candidate, and for one that
    waits; TargetMoved where the file is another one now."""
    run, candidate = found(store, job)
    if candidate is None:
        raise UsageFault("that candidate is not proposed yet", "ask for its status first")
    return target_file.unmoved(run).path


def job_of(run: Run, source: str) -> str:
    return f"{run.id}/{candidate_id(source)}"


def hidden(run: Run) -> list[str]:
    """Return the names of the held-out cases of a run, which an agent never hears."""
    return [c.split("/", 1)[1] for c in run.baseline.held_out] if run.baseline else []


def baselines(run: Run, doing: str, best: str) -> Baselines:
    """Return the baselines of a run, or that they are being made."""
    base = run.baseline
    cases = [_times(base, case) for case in base.cases] if base else []
    state = "known" if base else "failed" if run.error else "working"
    return Baselines(run.id, state, "" if base else _doing(run, doing), run.device, cases, best)


def _times(base: Baseline, case: str) -> CaseTimes:
    shipped, tuned = base.shipped[case], base.tuned[case]
    return CaseTimes(case.split("/", 1)[1], shipped.said, shipped.ms, tuned.said, tuned.ms, str(tuned.how))


def report(store: Store, run: Run) -> RunReport:
    summary = run.summary
    against, winner = dict[str, Ratio](), None
    if isinstance(summary, MeasuredRun):
        winner = summary.winner
        against = {name: Ratio(*(round(x, 4) for x in bounds)) for name, bounds in summary.against.items()}
    lines = [line(c, hidden(run)) for c in store.candidates(run.id)]
    return RunReport(run.id, Path(run.target).name, run.state, run.facts.open_to, winner, against, lines)


def line(c: Candidate, not_told: list[str]) -> str:
    """Return a candidate as one line, as an agent may see it."""
    ratio = f" {c.speedup:.3f}x of the incumbent" if c.speedup else ""
    why = (c.why or NONE).for_model(not_told)
    said = f"{c.move}, {text.quoted(text.line(c.rationale, 400))}"
    return text.line(f"{c.run}/{c.id} by {c.by}: {said}: {c.verdict or 'not judged'}{ratio}: {why}", 2000)


def as_text(report: RunReport) -> str:
    """Return a run as text."""
    over = [f"{r.middle:.3f}x [{r.low:.3f}, {r.high:.3f}] of {name}" for name, r in report.against.items()]
    gained = f"winner {report.winner}: {', '.join(over)}" if report.winner else "no winner so far"
    return "\n".join([f"run {report.run} of {report.target}: {report.state}", gained, *report.candidates]) + "\n"


def _twin(store: Store, run: Run, evidence: Mapping[str, Any]) -> str:
    """Return what became of the candidate whose code one has; empty where it has its own."""
    name = next((body[SAME_AS] for body in evidence.values() if SAME_AS in body), None)
    twin = next((c for c in store.candidates(run.id) if c.id == name), None)
    if twin is None:
        return ""
    why = (twin.why or NONE).for_model(hidden(run))
    return f"of {run.id}/{twin.id}, whose code it is: {twin.verdict or 'no verdict yet'}: {why}"


def _over(evidence: Mapping[str, Any], side: str, weights: Mapping[str, float] | None) -> Ratio | None:
    """Return the ratio by the samples of the last stage that timed the candidate beside a side."""
    samples = evidence.get("samples", {})
    times = samples.get("time") or samples.get("quick") or {}
    pairs = {case: (t[side], t["candidate"]) for case, t in times.items() if side in t and "candidate" in t}
    return _rounded(bootstrap.geomean(pairs, weights)) if pairs else None


def _rounded(of: Interval) -> Ratio:
    return Ratio(round(of.low, 4), round(of.mid, 4), round(of.high, 4))
