"""Which trials of a candidate share a box: foreign code meets held-out cases in one of their own, after all others.

What runs in a box can read the inputs that lie there, and say what it read in the words of an exception, or by the
names and the number of its configurations. So nothing but whether its results were right leaves the second box.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.reason import of_case
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.interpreted.cases import Trial
from pgo_agent.sandbox.judge.interpreted.outcome import Covered, verdict
from pgo_agent.sandbox.judge.questions import CHECK_SECONDS, Check

OWN_SECONDS = (
    60.0  # of CHECK_SECONDS, after which no optional run begins: held-out cases, the own kernel's stress inputs
)
Attempt = Callable[[Check, list[Trial], Covered], Judgement]  # in one box
_FINE = (Verdict.CHECKED, Verdict.BUILT)


def judged(attempt: Attempt, asked: Check, trials: list[Trial], covered: Covered) -> Judgement:
    """Return the verdict on trials; note in `covered` what they cover. Raises what `attempt` raises."""
    held = [t for t in trials if t.held_out]
    if not held or not asked.foreign:
        return attempt(asked, trials, covered)
    began, shown = time.monotonic(), [t for t in trials if not t.held_out]
    first = attempt(asked, shown, covered) if shown else verdict(covered, {"numerics": []})
    taken = time.monotonic() - began
    if first.verdict not in _FINE or taken > begin_by(asked):
        return first
    apart = Covered(covered.small, covered.held_out, ())
    found = attempt(replace(asked, seconds=asked.seconds - taken), held, apart)
    if found.verdict not in _FINE:
        why = found.why if found.why.is_held_out else of_case(HELD_OUT, ": ") + found.why
        return replace(found, why=why, coverage=covered.coverage(ended=False))
    covered.add_held_out(apart)
    return verdict(covered, {**first.evidence, "numerics": [*first.compared, *found.compared]})


def begin_by(asked: Check) -> float:
    """Return the seconds after which no optional run begins."""
    return asked.seconds * OWN_SECONDS / CHECK_SECONDS
