"""views/axes.py: every value has its place, and round numbers stand at theirs."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.views.charts.axes import axis

MS = st.floats(1e-4, 1e4)


@settings(max_examples=100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_an_axis_holds_its_values_and_has_few_ticks_on_it(values: list[float]) -> None:
    found = axis(values)
    assert all(-1e-6 <= found.at(v) <= 100 + 1e-6 for v in values)
    assert len(found.ticks) <= 12 and all(-1e-6 <= found.at(t) <= 100 + 1e-6 for t in found.ticks)


@settings(max_examples=200)
@given(MS, MS)
def test_ticks_are_round_numbers_at_their_places_and_there_are_a_few(a: float, b: float) -> None:
    found = axis([a, b], most=6)
    labels = found.labels()
    places = [t.at for t in labels]
    assert 3 <= len(places) <= 9 and places == sorted(places) and all(0 <= at <= 100 for at in places)
    for tick in labels:
        assert abs(found.at(float(tick.label)) - tick.at) < 0.2


@settings(max_examples=100)
@given(st.floats(0.5, 2), st.floats(0.001, 3))
def test_labels_tell_ticks_apart(low: float, wide: float) -> None:
    labels = [t.label for t in axis([low, low + wide]).labels()]
    assert labels and len(set(labels)) == len(labels)


@pytest.mark.parametrize("value", [0.0, 1e-5, 2.0, -3e4])
def test_a_value_alone_stands_in_the_middle(value: float) -> None:
    found = axis([value, value])
    assert math.isclose(found.at(value), 50.0) and len(found.ticks) > 1


def test_counts_begin_at_nothing_and_have_no_halves() -> None:
    found = axis([3.0, 4.0], whole=True)
    assert found.low == 0 and all(t == int(t) for t in found.ticks)
