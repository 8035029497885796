"""judge/bootstrap.py: what a ratio of paired samples must be, whatever the samples are; and how often it is right."""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.judge.timing import bootstrap, timer
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

times = st.floats(min_value=1e-3, max_value=1e3)
several = settings(max_examples=40)  # each draws thousands of resamples
samples = st.lists(times, min_size=1, max_size=40)
pairs = st.lists(st.tuples(times, times), min_size=1, max_size=40).map(lambda p: tuple(map(list, zip(*p, strict=True))))
ONE = Interval(1.0, 1.0, 1.0)


def bounds(i: Interval) -> tuple[float, float, float]:
    return i.low, i.mid, i.high


# one case -------------------------------------------------------------------------------------------------------------


@given(samples)
def test_a_side_is_exactly_as_fast_as_itself(side: list[float]) -> None:
    assert bootstrap.ratio(side, side) == ONE


@several
@given(pairs)
def test_the_same_samples_give_the_same_interval(pair: tuple[list[float], list[float]]) -> None:
    assert bootstrap.ratio(*pair) == bootstrap.ratio(*pair)


@several
@given(pairs, st.integers(-8, 8))
def test_a_side_scaled_by_a_power_of_two_scales_the_interval(
    pair: tuple[list[float], list[float]], exponent: int
) -> None:
    base, other = pair
    plain, scaled = bootstrap.ratio(base, other), bootstrap.ratio([2.0**exponent * x for x in base], other)
    assert bounds(scaled) == pytest.approx([2.0**exponent * x for x in bounds(plain)], rel=1e-12)


@several
@given(pairs)
def test_the_middle_is_the_median_of_the_ratios(pair: tuple[list[float], list[float]]) -> None:
    wanted = statistics.median(b / o for b, o in zip(*pair, strict=True))
    assert bootstrap.ratio(*pair).mid == pytest.approx(wanted, rel=1e-12)


@several
@given(pairs)
def test_the_middle_lies_in_the_interval_and_the_interval_among_the_ratios(
    pair: tuple[list[float], list[float]],
) -> None:
    ratios = [b / o for b, o in zip(*pair, strict=True)]
    found = bootstrap.ratio(*pair)
    slack = 1 + 1e-12
    assert min(ratios) / slack <= found.low <= found.mid * slack <= found.high * slack * slack
    assert found.high <= max(ratios) * slack


@several
@given(pairs)
def test_the_middle_of_swapped_sides_is_the_reciprocal_for_odd_numbers_of_rounds(
    pair: tuple[list[float], list[float]],
) -> None:
    base, other = (side[: len(side) - 1 + len(side) % 2] for side in pair)
    assert bootstrap.ratio(other, base).mid == pytest.approx(1 / bootstrap.ratio(base, other).mid, rel=1e-12)


def test_a_side_that_is_twice_as_fast_has_a_ratio_of_two() -> None:
    assert bounds(bootstrap.ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])) == pytest.approx((2.0, 2.0, 2.0))


def test_one_wild_round_does_not_move_the_middle() -> None:
    base = [1.1] * 24
    assert bootstrap.ratio(base, [1.0] * 23 + [50.0]).mid == pytest.approx(1.1)


def test_sides_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        bootstrap.ratio([1.0, 2.0], [1.0, 2.0, 3.0])


# coverage -------------------------------------------------------------------------------------------------------------


def noisy(rng: np.random.Generator, mean: float, rounds: int = 24, noise: float = 0.02) -> list[float]:
    return list(mean * (1 + noise * rng.standard_normal(rounds)))


def test_the_interval_holds_the_true_ratio_in_nine_runs_of_ten() -> None:
    """24 rounds, 2 % noise on both sides. Of a hundred runs alone, 4 % of all seeds would give fewer than 90."""
    rng, truth, runs = np.random.default_rng(7), 1.05, 300
    intervals = [bootstrap.ratio(noisy(rng, truth), noisy(rng, 1.0)) for _ in range(runs)]
    held = sum(i.low <= truth <= i.high for i in intervals) / runs
    assert 0.90 <= held <= 0.98  # 0.942 in 20 000 runs; an interval that always holds it would say nothing either
    assert statistics.median(i.high - i.low for i in intervals) < 0.04


def test_more_rounds_give_a_narrower_interval() -> None:
    rng = np.random.default_rng(7)
    few, many = (bootstrap.ratio(noisy(rng, 1.0, n), noisy(rng, 1.0, n)) for n in (24, 24 * 16))
    assert many.high - many.low < (few.high - few.low) / 2


# several cases --------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=3), st.tuples(times, times), min_size=1, max_size=6), st.data())
def test_the_middle_of_cases_is_their_weighted_geometric_mean(
    cases: dict[str, tuple[float, float]], data: st.DataObject
) -> None:
    weights = data.draw(st.fixed_dictionaries({c: st.floats(0.1, 10) for c in cases}))
    found = bootstrap.geomean({c: ([b] * 5, [o] * 5) for c, (b, o) in cases.items()}, weights)
    wanted = math.exp(
        math.fsum(w * math.log(cases[c][0] / cases[c][1]) for c, w in weights.items()) / sum(weights.values())
    )
    assert bounds(found) == pytest.approx((wanted,) * 3, rel=1e-9)


@several
@given(pairs, pairs)
def test_without_weights_every_case_counts_the_same(
    a: tuple[list[float], list[float]], b: tuple[list[float], list[float]]
) -> None:
    assert bootstrap.geomean({"a": a, "b": b}) == bootstrap.geomean({"a": a, "b": b}, {"a": 1.0, "b": 1.0})


@several
@given(pairs, pairs, st.integers(-4, 4))
def test_only_the_proportion_of_weights_matters(
    a: tuple[list[float], list[float]], b: tuple[list[float], list[float]], exponent: int
) -> None:
    one = bootstrap.geomean({"a": a, "b": b}, {"a": 1.0, "b": 3.0})
    other = bootstrap.geomean({"a": a, "b": b}, {"a": 2.0**exponent, "b": 3 * 2.0**exponent})
    assert bounds(other) == pytest.approx(bounds(one), rel=1e-12)


def test_a_case_without_a_weight_of_its_own_weighs_one() -> None:
    cases = {"a": ([4.0], [1.0]), "b": ([1.0], [1.0])}
    assert bootstrap.geomean(cases, {"a": 3.0}).mid == pytest.approx(4**0.75)


def test_a_gain_in_one_case_does_not_hide_behind_a_loss_in_another() -> None:
    found = bootstrap.geomean({"gains": ([2.0] * 9, [1.0] * 9), "loses": ([1.0] * 9, [2.0] * 9)})
    assert bounds(found) == pytest.approx((1.0, 1.0, 1.0))


def test_an_interval_is_written_down_to_six_places() -> None:
    assert Interval(0.12345678, 1.0, 1.00000049).as_json() == [0.123457, 1.0, 1.0]


# the order of visits --------------------------------------------------------------------------------------------------

Clock = Callable[[int], float]  # what a launch of one millisecond takes when it is the n-th


def visited(orders: Iterable[Sequence[int]], costs: Sequence[float], clock: Clock) -> list[list[float]]:
    """Samples of each side, when the rounds visit the sides in these orders: the mean of a side's visits in a round."""
    found: list[list[float]] = [[] for _ in costs]
    n = 0
    for order in orders:
        visits = [(s, costs[s] * clock(n + i)) for i, s in enumerate(order)]
        n += len(order)
        for s, own in enumerate(found):
            own.append(statistics.mean(t for side, t in visits if side == s))
    return found


def drawn(sides: int, rounds: int, seed: int = 3) -> list[list[int]]:
    """The orders of judge/timer.py: of chance in each round, and there and back."""
    rng = random.Random(seed)
    return [timer.there_and_back(range(sides), rng) for _ in range(rounds)]


@given(st.integers(2, 5), st.integers(1, 30), st.floats(-1e-4, 1e-2))
@settings(max_examples=50)
def test_the_mirrored_order_cancels_a_linear_drift(sides: int, rounds: int, slope: float) -> None:
    found = visited(drawn(sides, rounds), [1.0] * sides, lambda n: 1 + slope * n)
    for side in found[1:]:
        assert bounds(bootstrap.ratio(found[0], side)) == pytest.approx((1.0, 1.0, 1.0), rel=1e-12)


def test_the_same_order_every_time_would_not_cancel_it() -> None:
    first, second = visited([[0, 1, 0, 1]] * 24, [1.0, 1.0], lambda n: 1 + 1e-3 * n)
    assert bootstrap.ratio(first, second).high < 0.9999


def test_a_true_difference_is_seen_through_a_drift() -> None:
    slow, fast = visited(drawn(2, 24), [1.1, 1.0], lambda n: 1 + 1e-2 * n)
    assert bounds(bootstrap.ratio(slow, fast)) == pytest.approx((1.1, 1.1, 1.1), rel=1e-12)


def beaten(orders: Callable[[int], list[list[int]]]) -> float:
    """How often the interval of a side against itself holds 1, when two launches of four take a little more."""
    noise = np.random.default_rng(11)
    held = 0
    for seed in range(40):
        found = visited(orders(seed), [1.0] * 4, lambda n: 1 + 2e-3 * (n % 4 in (0, 3)) + 1e-3 * float(noise.normal()))
        low, _, high = bounds(bootstrap.ratio(found[0], found[1]))
        held += low <= 1 <= high
    return held / 40


def test_a_beat_of_the_launches_passes_for_a_difference_in_one_order_and_not_in_orders_of_chance() -> None:
    assert beaten(lambda seed: [[0, 1, 2, 3, 3, 2, 1, 0]] * 30) < 0.1
    assert beaten(lambda seed: drawn(4, 30, seed)) > 0.85


def test_every_order_of_the_sides_comes_up() -> None:
    assert {tuple(order[:3]) for order in drawn(3, 200)} == set(itertools.permutations(range(3)))
