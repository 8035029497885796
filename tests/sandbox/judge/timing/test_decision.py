"""judge/timing/verdict.py: what samples come to. Real arithmetic on made samples: 30 rounds, the same noise on both
sides."""

import random

import pytest
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.timing import decision as timing_verdict

FLOOR = {"it": 0.1}


def samples(speedup: float, spread: float, rounds: int = 30) -> dict[str, dict[str, list[float]]]:
    """One case: an incumbent of 1 ms, itself again, and a candidate. `spread`: of a round's noise, relative."""
    drawn = random.Random(7)

    def side(ms: float) -> list[float]:
        return [ms * (1 + drawn.gauss(0, spread)) for _ in range(rounds)]

    return {"it": {"incumbent": side(1.0), "A/A": side(1.0), "candidate": side(1.0 / speedup)}}


def verdict(speedup: float, spread: float) -> Verdict:
    return timing_verdict.on_time(samples(speedup, spread), FLOOR, "incumbent", None)[0]


def test_a_gain_beyond_the_noise_is_accepted() -> None:
    assert verdict(1.05, 0.002) == Verdict.ACCEPTED


@pytest.mark.parametrize("speedup", [0.95, 0.999])
def test_what_is_surely_no_faster_is_slower(speedup: float) -> None:
    assert verdict(speedup, 0.001) == Verdict.SLOWER


def test_what_the_samples_do_not_tell_is_undecided_and_says_so() -> None:
    found, why, told = timing_verdict.on_time(samples(1.02, 0.05), FLOOR, "incumbent", None)
    assert found == Verdict.UNDECIDED
    assert "do not tell" in why.for_person()
    assert told["speedup"][0] <= told["threshold"] < told["speedup"][2]


def test_a_gain_below_the_floor_is_none_however_sure() -> None:
    assert verdict(1.002, 0.00001) == Verdict.SLOWER


def test_a_noisy_session_asks_for_more() -> None:
    quiet, noisy = (timing_verdict.on_time(samples(1.05, s), FLOOR, "incumbent", None)[2] for s in (0.001, 0.03))
    assert noisy["threshold"] > quiet["threshold"]


def test_one_case_that_is_surely_slower_refuses_a_gain_elsewhere() -> None:
    times = {"a": samples(1.5, 0.001)["it"], "b": samples(0.9, 0.001)["it"]}
    found, why, _ = timing_verdict.on_time(times, {"a": 0.1, "b": 0.1}, "incumbent", None)
    assert (found, why.for_person()) == (Verdict.SLOWER, "b is 0.900x of the incumbent")


def test_faster_than_the_hardware_is_cheating() -> None:
    found, why, _ = timing_verdict.on_time(samples(20.0, 0.001), FLOOR, "incumbent", None)
    assert found == Verdict.CHEATING
    assert "physical floor" in why.for_person()


def test_a_floor_that_the_incumbent_itself_beats_accuses_nobody() -> None:
    times = {"it": {side: [ms / 20 for ms in listed] for side, listed in samples(1.05, 0.001)["it"].items()}}
    assert timing_verdict.on_time(times, FLOOR, "incumbent", None)[0] == Verdict.ACCEPTED


def test_a_floor_that_the_incumbent_nearly_reaches_accuses_nobody_for_the_target_says_too_much_work() -> None:
    assert timing_verdict.on_time(samples(1.2, 0.001), {"it": 0.95}, "incumbent", None)[0] == Verdict.ACCEPTED
    assert timing_verdict.on_time(samples(1.2, 0.001), {"it": 0.85}, "incumbent", None)[0] == Verdict.CHEATING


def test_a_look_among_several_has_to_be_surer() -> None:
    times = samples(1.01, 0.012)
    once, often = (timing_verdict.on_time(times, FLOOR, "incumbent", None, looks)[2]["speedup"] for looks in (1, 4))
    assert often[0] < once[0] <= once[2] < often[2]


@pytest.mark.parametrize(
    ("at", "slower", "said"), [(6, 1.2, "moved by +20 %"), (6, 0.8, "moved by -20 %"), (0, 1.1, "")]
)
def test_a_lot_in_which_the_incumbents_own_time_moved_is_useless(at: int, slower: float, said: str) -> None:
    """A step in the middle is a drift; a GPU that is slower from the first round on is the same for all sides."""
    lot = {
        "it": {
            s: [ms * (slower if i >= at else 1) for i, ms in enumerate(x)]
            for s, x in samples(1.05, 0.002, 12)["it"].items()
        }
    }
    found = timing_verdict.disturbed(lot, "incumbent")
    assert said in found and bool(said) == bool(found)


def test_a_lot_in_which_the_incumbent_differs_from_itself_is_useless() -> None:
    lot = samples(1.05, 0.002, 12)
    lot["it"]["A/A"] = [1.1 * ms for ms in lot["it"]["A/A"]]
    assert "differed from itself by +10 %" in timing_verdict.disturbed(lot, "incumbent")


@pytest.mark.parametrize(("alone", "fine"), [(1.3, True), (1.16, True), (1.1, False), (0.9, False)])
def test_a_gain_must_show_when_each_side_runs_alone(alone: float, fine: bool) -> None:
    problem, sure, told = timing_verdict.alone(samples(alone, 0.001, 4), "incumbent", 1.3, None)
    assert (problem == "") == fine and sure
    assert told["alone"][1] == pytest.approx(alone, rel=0.005)


@pytest.mark.parametrize(("gain", "sure"), [(1.2, True), (1.01, False)])
def test_bursts_that_differ_by_more_than_a_gain_are_not_sure_of_it(gain: float, sure: bool) -> None:
    assert timing_verdict.alone(samples(gain, 0.02, 4), "incumbent", gain, None)[1] == sure
