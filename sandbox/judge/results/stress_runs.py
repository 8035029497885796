"""Stress inputs on a GPU: which cases are tried under which stress input, what they must give, and what a candidate
gives.

The public case with the least work is tried under every stress input, a NaN or an infinity in each of its tensors in
turn: a breakdown needs no large tensors to show, and every stress input costs a reference in float64, which takes
longer than all launches together. The other cases launch other kernels, or other configurations: each is tried under
one stress input that was drawn for it, and some more are drawn from all that is left. A process draws once, in secret,
and keeps what it found out; the process that confirms a candidate draws others.

What counts is what the target's own kernel, as shipped, bears with room to spare (`stress_inputs.py`). Inputs of other
strides or sizes are other cases: a plan names both.
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
from pgo_agent.sandbox.judge.results import numerics, stress_inputs
from pgo_agent.sandbox.judge.results.checks import REFERENCE_SECONDS, STEP_SECONDS, Pick, TargetSession
from pgo_agent.sandbox.judge.results.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.results.stress_inputs import LOOSER, OWN_RATIO, STRESS_INPUTS, StressInput

TURNS = 4  # tensors of the least case that are changed in turn, drawn where there are more
MORE = 4  # further trials of any case at least; one of each case in any event
MOST = 12  # further trials at most
Trial = tuple[str, StressInput]  # a case, and what its inputs are under


@dataclass
class StressOutcome:
    """What became of a candidate."""

    verdict: Verdict | None = None  # None: all is well
    checks: list[Comparison] = field(default_factory=list)  # up to the first that failed
    dropped: list[dict[str, str]] = field(default_factory=list)  # trials that do not count: case, stress input, why
    possible: int = 0  # trials that there are, of which some were drawn


def check_stress_inputs(bench: TargetSession, pick: Pick, own: Pick, stage: str) -> StressOutcome:
    """A candidate under the stress inputs that this process tries; `own` is the target's kernel as shipped, in some
    cases."""
    cases = sorted((c for c in own if c in pick), key=lambda c: float(bench.target.flops(bench.cases[c])))
    chosen, possible = drawn_trials(bench, cases)
    found = StressOutcome(possible=possible)
    for case, stress_input in chosen:
        expected = _borne(bench, own, case, stress_input, stage)
        if isinstance(expected, str):
            found.dropped.append({"case": case, "strain": stress_input.name, "why": expected})
            continue
        found.checks.append(_launched(bench, pick, expected, stress_input, LOOSER, stage))
        if found.checks[-1].problem:
            found.verdict = Verdict.WRONG
            break
    return found


def drawn_trials(bench: TargetSession, cases: Sequence[str]) -> tuple[list[Trial], int]:
    """What this process tries of these cases, that with the least work first; and how many trials there are."""
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
    """One stress input of the least case: with one of its tensors, or some in turn."""
    alike = [s for _, s in trials if s.change is stress_input.change and s.masks == stress_input.masks]
    return sorted(
        random.SystemRandom().sample(alike, min(len(alike), TURNS if stress_input.turns else 1)), key=alike.index
    )


def _trials(bench: TargetSession, case: str) -> Iterator[Trial]:
    """Every stress input, with each tensor of the case in turn where it changes one."""
    draws = stress_inputs.draws(lambda g: bench.target.inputs(bench.cases[case], g), bench.device)
    for stress_input in STRESS_INPUTS:
        for turn in range(max(1, draws) if stress_input.draw is not None else 1):
            yield case, stress_input if stress_input.draw is None else stress_input.of_draw(turn)


def _borne(bench: TargetSession, own: Pick, case: str, stress_input: StressInput, stage: str) -> Expected | str:
    """What a case must give under a stress input, or why that does not count. Found out once in a process.

    Candidates get the very inputs that the own kernel bore: on others it might not have borne it.
    """
    key = case, stress_input
    if key not in bench.under_stress:
        bench.under_stress[key] = _find_out(bench, own, case, stress_input, stage)
    return bench.under_stress[key]


def _find_out(bench: TargetSession, own: Pick, case: str, stress_input: StressInput, stage: str) -> Expected | str:
    bench.announce(f"reference {case}", REFERENCE_SECONDS)
    try:
        seed = secrets.randbits(48)
        expected = numerics.expect(bench.target, case, bench.cases[case], seed, bench.device, stress_input)
    except TargetFault as e:
        return e.message
    if not expected.reliable:
        return "the reference breaks down in its own precision"
    expected = numerics.forgiving(expected, bench.expect(case))
    found = _launched(bench, own, expected, stress_input, OWN_RATIO, stage)
    return f"the target's own kernel: {found.problem}" if found.problem else expected


def _launched(
    bench: TargetSession, pick: Pick, expected: Expected, stress_input: StressInput, times: float, stage: str
) -> Comparison:
    """One launch on stress inputs, with the usual ratios `times` as large."""
    step = f"{stage} {expected.case}"
    bench.announce(step, STEP_SECONDS)
    replay = bench.replay(pick, expected.case, expected.seed, stress_input)
    try:
        replay.poison(Fill())
        bench.launch(replay, step)
        ratios = numerics.looser(getattr(bench.target, "TOLERANCE", None), times)
        found = numerics.check(replay.outputs, expected, ratios)
        stray = replay.stray()
        return replace(found, why=plain(guard_zones.said(stray))) if stray and not found.problem else found
    finally:
        replay.close()
