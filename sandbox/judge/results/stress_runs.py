"""Stress inputs on a GPU: chooses the trials, tests them with the shipped kernel, and runs a candidate on them.

The public case with the least work is tried under every stress input, with a NaN or an infinity in each of its tensors
in turn. Small tensors suffice to show a breakdown, and every trial costs a float64 reference, which takes longer than
all launches. Other cases launch other kernels or configurations: each is tried under one random stress input, and some
further trials are drawn from the rest. A process draws once, in secret, and stores the results; the process that
confirms a candidate draws others.

A trial counts if the shipped kernel passes it with a margin (`stress_inputs.py`). Inputs of other strides or sizes are
other cases: a plan names both.
"""

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pgo_agent.sandbox import guard_zones
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.guard_zones import Fill
from pgo_agent.sandbox.judge import own_steps
from pgo_agent.sandbox.judge.launches.plan_executor import synchronize
from pgo_agent.sandbox.judge.own_steps import OwnStep
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.checks import REFERENCE_SECONDS, STEP_SECONDS, Pick, TargetSession
from pgo_agent.sandbox.judge.results.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.results.stress_inputs import LOOSER, OWN_RATIO, STRESS_INPUTS, StressInput

TURNS = 4  # tensors of the least case that are changed in turn, at most
MORE = 4  # further trials at least, one of them for each other case
MOST = 12  # further trials at most
Trial = tuple[str, StressInput]  # a case, and the stress input of its inputs


@dataclass
class StressOutcome:
    """The result of a candidate."""

    verdict: Verdict | None = None  # None: all is well
    checks: list[Comparison] = field(default_factory=list)  # up to the first that failed
    dropped: list[dict[str, str]] = field(default_factory=list)  # trials that do not count: case, stress input, why
    possible: int = 0  # number of all trials, of which some were drawn


def check_stress_inputs(bench: TargetSession, pick: Pick, shipped: Pick, stage: str) -> StressOutcome:
    """Check a candidate under the stress inputs of this process; `shipped`: the shipped kernel in some cases."""
    cases = sorted((c for c in shipped if c in pick), key=lambda c: float(bench.target.flops(bench.cases[c])))
    chosen, possible = drawn_trials(bench, cases)
    outcome = StressOutcome(possible=possible)
    for case, stress_input in chosen:
        expected = _borne(bench, shipped, case, stress_input)
        if isinstance(expected, str):
            outcome.dropped.append({"case": case, "strain": stress_input.name, "why": expected})
            continue
        outcome.checks.append(_launched(bench, pick, expected, stress_input, LOOSER, f"{stage} {case}"))
        if outcome.checks[-1].problem:
            outcome.verdict = Verdict.WRONG
            break
    return outcome


def drawn_trials(bench: TargetSession, cases: Sequence[str]) -> tuple[list[Trial], int]:
    """Return the trials of this process on these cases (least work first), and the number of possible trials."""
    key = tuple(cases)
    if key not in bench.trials:
        chance = random.SystemRandom()
        all_of = {c: list(_trials(bench, c)) for c in cases}
        least = [(cases[0], s) for stress_input in STRESS_INPUTS for s in _of_least(all_of[cases[0]], stress_input)]
        each = [chance.choice(all_of[c]) for c in chance.sample(cases[1:], len(cases) - 1)]
        left = [t for trials in all_of.values() for t in trials if t not in least and t not in each]
        more = each + chance.sample(left, min(len(left), max(0, MORE - len(each))))
        bench.trials[key] = [*least, *more[:MOST]], sum(map(len, all_of.values()))
    chosen, possible = bench.trials[key]
    return list(chosen), int(possible)


def _of_least(trials: Sequence[Trial], stress_input: StressInput) -> list[StressInput]:
    """Return the variants of one stress input for the least case: of one tensor, or of some in turn."""
    alike = [s for _, s in trials if s.change is stress_input.change and s.masks == stress_input.masks]
    return sorted(
        random.SystemRandom().sample(alike, min(len(alike), TURNS if stress_input.turns else 1)), key=alike.index
    )


def _trials(bench: TargetSession, case: str) -> Iterator[Trial]:
    """Give every stress input; one that changes one tensor is given for each tensor."""
    tensors = numerics.layout(bench.target, bench.cases[case], bench.device).tensors
    for stress_input in STRESS_INPUTS:
        for turn in range(max(1, tensors) if stress_input.draw is not None else 1):
            yield case, stress_input if stress_input.draw is None else stress_input.of_draw(turn)


def try_own(bench: TargetSession, shipped: Pick, case: str, name: str) -> None:
    """Try one stress input with the target's own code alone."""
    for _, stress_input in (t for t in _trials(bench, case) if t[1].name == name):
        _borne(bench, shipped, case, stress_input)


def _borne(bench: TargetSession, shipped: Pick, case: str, stress_input: StressInput) -> Expected | str:
    """Return what a case must give under a stress input, or why that does not count. Tested once in a process.

    Candidates get the very inputs that the shipped kernel passed.
    """
    if own_steps.is_unfit(stress_input.name, bench.unfit):
        return "it ends the process of the reference, or of the target's own kernel"
    key = case, stress_input
    if key not in bench.under_stress:
        bench.under_stress[key] = _try_shipped(bench, shipped, case, stress_input)
    return bench.under_stress[key]


def _try_shipped(bench: TargetSession, shipped: Pick, case: str, stress_input: StressInput) -> Expected | str:
    step = OwnStep(case, stress_input.name).announced
    bench.announce(step, REFERENCE_SECONDS)
    try:
        seed = secrets.randbits(48)
        expected = numerics.expect(bench.target, case, bench.cases[case], seed, bench.device, stress_input)
    except TargetFault as e:
        synchronize(bench.device)  # an assertion on the GPU shows here, and not in a candidate's step
        return e.message
    if not expected.reliable:
        return "the reference breaks down in its own precision"
    expected = numerics.forgiving(expected, bench.expect(case))
    comparison = _launched(bench, shipped, expected, stress_input, OWN_RATIO, step)
    return f"the target's own kernel: {comparison.problem}" if comparison.problem else expected


def _launched(
    bench: TargetSession, pick: Pick, expected: Expected, stress_input: StressInput, times: float, step: str
) -> Comparison:
    """Launch once on stress inputs and compare, with ratios `times` as large as usual."""
    bench.announce(step, STEP_SECONDS)
    replay = bench.replay(pick, expected.case, expected.seed, stress_input)
    try:
        replay.poison(Fill())
        bench.launch(replay, step)
        ratios = numerics.looser(getattr(bench.target, "TOLERANCE", None), times)
        comparison = numerics.check(replay.outputs, expected, ratios)
        stray = replay.stray()
        return (
            replace(comparison, why=plain(guard_zones.said(stray))) if stray and not comparison.problem else comparison
        )
    finally:
        replay.close()
