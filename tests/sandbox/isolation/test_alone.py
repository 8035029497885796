"""Each kernel by itself: bursts of one side, in turns with bursts of the other, until the samples tell."""

import random
from collections.abc import Mapping
from typing import Any, cast

import pytest
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.timing import sequential, session
from pgo_agent.sandbox.judge.timing.timer import TimedSide

CASES = ["CASES/small", "CASES/large"]


class Clock:
    """Stands for the GPU's timer: how long each side takes, with as much noise."""

    def __init__(self, ms: Mapping[str, float], noise: float) -> None:
        self.ms, self.noise, self.random = ms, noise, random.Random(7)
        self.bursts: list[tuple[str, tuple[str, ...], bool]] = []

    def __call__(
        self, bench: TargetSession, sides: Mapping[str, Pick], case: str, rounds: int, stage: str, control: bool = True
    ) -> dict[str, TimedSide]:
        self.bursts.append((case, tuple(sides), control))
        shift = self.random.gauss(1, self.noise)  # of a whole burst
        return {n: TimedSide(n, [], samples=[self.ms[n] * shift] * rounds) for n in sides}


def alone(monkeypatch: pytest.MonkeyPatch, ms: Mapping[str, float], noise: float, gain: float) -> tuple[str, Clock]:
    clock = Clock(ms, noise)
    monkeypatch.setattr(session, "time_sides", clock)
    sides: dict[str, Pick] = {"incumbent": {}, "candidate": {}}
    problem, told = sequential._alone(cast(Any, None), sides, CASES, gain, None, None)
    assert len(told["alone"]) == 3
    return problem, clock


def test_a_burst_runs_one_side_and_no_control(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, clock = alone(monkeypatch, {"incumbent": 2.0, "candidate": 1.9}, 0.001, 2.0 / 1.9)
    assert problem == ""
    turns = [("incumbent",), ("candidate",)] * sequential.BURSTS
    assert clock.bursts == [(case, side, False) for case in CASES for side in turns]


def test_noisy_bursts_are_taken_again_until_they_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    least = 2 * len(CASES) * sequential.BURSTS
    _, clock = alone(monkeypatch, {"incumbent": 2.0, "candidate": 1.9}, 0.02, 2.0 / 1.9)
    assert least < len(clock.bursts) <= sequential.ALONE * least


def test_a_gain_that_only_shows_beside_the_other_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = alone(monkeypatch, {"incumbent": 2.0, "candidate": 2.0}, 0.001, 1.05)
    assert problem == "1.050x side by side, and 1.000x when each runs alone"
