"""Which stress inputs a candidate gets, on which cases: those that the target's own kernel passed there.

Each stress input is tried with the own kernel on one case, those of EVERYWHERE on all. One that it does not pass is
tried on another case too. Holds their seeds, for candidates get the very inputs that the own kernel passed, and why the
others do not count. Runs nothing.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgo_agent.sandbox.judge.results.stress_inputs import LAUNCHER_STRESS_INPUTS, SCALED, STRIDED, StressInput

Pair = tuple[str, StressInput]  # a case, and a stress input for it
EVERYWHERE = (SCALED, STRIDED)  # tried on all cases: of the strides, only a case with several batches tells some apart


@dataclass
class StressTrials:
    """What is known of the stress inputs of one target."""

    passed: list[Pair] | None = None  # by the target's own kernel; None: not tested
    dropped: list[dict[str, str]] = field(default_factory=list)  # the others: case, name, why
    seeds: dict[Pair, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget what is known: the own kernel is tested anew."""
        self.passed, self.dropped = [], []

    def first(self, cases: Sequence[str]) -> list[Pair]:
        """Return the first trials of the own kernel: each stress input on another case, some on all."""
        return [
            _pair(cases, k + n, stress_input)
            for k, stress_input in enumerate(LAUNCHER_STRESS_INPUTS)
            for n in range(len(cases) if stress_input in EVERYWHERE else min(1, len(cases)))
        ]

    def second(self, cases: Sequence[str]) -> list[Pair]:
        """Return a trial on one more case of each stress input that the own kernel did not pass."""
        if len(cases) < 2:
            return []
        settled = {s.name for s in (*EVERYWHERE, *(s for _, s in self.passed or ()))}
        return [
            _pair(cases, k + 1, stress_input)
            for k, stress_input in enumerate(LAUNCHER_STRESS_INPUTS)
            if stress_input.name not in settled
        ]

    def of_candidate(self) -> list[Pair]:
        """Return the trials of a candidate: each stress input where it passed first, some wherever they passed."""
        chosen: dict[tuple[str, str], Pair] = {}
        for case, stress_input in self.passed or ():
            chosen.setdefault((stress_input.name, case if stress_input in EVERYWHERE else ""), (case, stress_input))
        return list(chosen.values())

    def seed(self, case: str, stress_input: StressInput) -> int:
        return self.seeds.setdefault((case, stress_input), secrets.randbits(48))

    def passes(self, case: str, stress_input: StressInput) -> None:
        self.passed = [*(self.passed or []), (case, stress_input)]

    def drop(self, case: str, stress_input: StressInput, why: str) -> None:
        self.dropped.append({"case": case, "strain": stress_input.name, "why": why})


def _pair(cases: Sequence[str], turn: int, stress_input: StressInput) -> Pair:
    turn %= len(cases)
    return cases[turn], stress_input.as_turn(turn)
