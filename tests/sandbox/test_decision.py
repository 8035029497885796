"""judge/decision.py: what samples come to. Real arithmetic on made samples: 30 rounds, the same noise on both sides."""

import random

import pytest
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import decision

FLOOR = {"it": 0.1}


def samples(speedup: float, spread: float, rounds: int = 30) -> dict[str, dict[str, list[float]]]:
    """One case: an incumbent of 1 ms, itself again, and a candidate. `spread`: of a round's noise, relative."""
    drawn = random.Random(7)

    def side(ms: float) -> list[float]:
        return [ms * (1 + drawn.gauss(0, spread)) for _ in range(rounds)]

    return {"it": {"incumbent": side(1.0), "A/A": side(1.0), "candidate": side(1.0 / speedup)}}


def verdict(speedup: float, spread: float) -> Verdict:
    return decision.on_time(samples(speedup, spread), FLOOR, "incumbent", None)[0]


def test_a_gain_beyond_the_noise_is_accepted() -> None:
    assert verdict(1.05, 0.002) == Verdict.ACCEPTED


@pytest.mark.parametrize("speedup", [0.95, 0.999])
def test_what_is_surely_no_faster_is_slower(speedup: float) -> None:
    assert verdict(speedup, 0.001) == Verdict.SLOWER


def test_what_the_samples_do_not_tell_is_undecided_and_says_so() -> None:
    found, reason, told = decision.on_time(samples(1.02, 0.05), FLOOR, "incumbent", None)
    assert found == Verdict.UNDECIDED
    assert "do not tell" in reason
    assert told["speedup"][0] <= told["threshold"] < told["speedup"][2]


def test_a_gain_below_the_floor_is_none_however_sure() -> None:
    assert verdict(1.002, 0.00001) == Verdict.SLOWER


def test_a_noisy_session_asks_for_more() -> None:
    quiet, noisy = (decision.on_time(samples(1.05, s), FLOOR, "incumbent", None)[2] for s in (0.001, 0.03))
    assert noisy["threshold"] > quiet["threshold"]


def test_one_case_that_is_surely_slower_refuses_a_gain_elsewhere() -> None:
    times = {"a": samples(1.5, 0.001)["it"], "b": samples(0.9, 0.001)["it"]}
    found, reason, _ = decision.on_time(times, {"a": 0.1, "b": 0.1}, "incumbent", None)
    assert (found, reason) == (Verdict.SLOWER, "b is 0.900x of the incumbent")


def test_faster_than_the_hardware_is_cheating() -> None:
    found, reason, _ = decision.on_time(samples(20.0, 0.001), FLOOR, "incumbent", None)
    assert found == Verdict.CHEATING
    assert "physical floor" in reason
