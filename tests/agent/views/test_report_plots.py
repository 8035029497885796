"""What reports draw: every sample and every ratio at its place, and nothing where there is nothing."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.views.charts import samples
from pgo_agent.agent.views.report.timings import Case, SideTimes
from pgo_agent.sandbox.judge.timing import bootstrap
from pgo_agent.sandbox.judge.timing.bootstrap import Interval

MS = st.floats(1e-4, 1e4)
SAMPLES = st.lists(MS, min_size=1, max_size=40)


def case(*sides: list[float]) -> Case:
    found = (SideTimes(f"s{i}", "", tuple(ms), bootstrap.ratio(ms, [1.0] * len(ms)), 1.0) for i, ms in enumerate(sides))
    return Case("c", "GB/s", tuple(found), (), None)


@settings(max_examples=60)
@given(st.lists(SAMPLES, min_size=1, max_size=4))
def test_every_sample_is_drawn_within_its_strip_and_in_the_order_of_the_rounds(sides: list[list[float]]) -> None:
    drawn = samples.strips(case(*sides))
    assert drawn is not None
    for strip, ms in zip(drawn.rows, sides, strict=True):
        across, down = zip(*strip.dots, strict=True)
        assert len(across) == len(ms) and all(0 <= x <= 100 for x in across) and all(0 < y < samples.TALL for y in down)
        assert list(down) == sorted(down)
        assert 0 <= strip.low <= strip.middle + 1e-6 <= strip.low + strip.width + 2e-3


@settings(max_examples=100)
@given(MS, MS)
def test_what_takes_longer_is_further_to_the_right(a: float, b: float) -> None:
    drawn = samples.strips(case([a], [b]))
    assert drawn is not None
    one, two = (row.dots[0][0] for row in drawn.rows)
    assert (one < two) == (a < b) or math.isclose(a, b, rel_tol=1e-6)


@settings(max_examples=100)
@given(st.lists(st.lists(st.floats(0.2, 5.0), min_size=3, max_size=3).map(sorted), min_size=1, max_size=8))
def test_an_interval_holds_its_middle_and_says_on_which_side_of_one_it_is(rows: list[list[float]]) -> None:
    drawn = samples.forest([(str(i), Interval(*r), False) for i, r in enumerate(rows)])
    assert drawn is not None
    for mark, (low, _, high) in zip(drawn.rows, rows, strict=True):
        assert -0.002 <= mark.low <= mark.middle + 0.002 and mark.middle <= mark.low + mark.width + 0.004 <= 100.01
        assert mark.look == ("gain" if low > 1 else "loss" if high < 1 else "even")
        assert mark.look != "gain" or mark.low >= drawn.one - 0.002


@pytest.mark.parametrize("ms", [[], [math.nan], [math.inf, math.nan]])
def test_nothing_is_drawn_of_nothing(ms: list[float]) -> None:
    assert samples.scale(ms) is None
    assert samples.forest([]) is None


def test_equal_samples_have_a_scale_too() -> None:
    drawn = samples.strips(case([2.0] * 5))
    assert drawn is not None and {x for x, _ in drawn.rows[0].dots} == {50.0}
