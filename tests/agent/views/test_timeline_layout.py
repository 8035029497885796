"""Lanes: every scope of a role is in its lane once, in the order of the program, as long as what it took."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.views.profile.timeline_layout import FAMILIES, REST, Bar, Lane, lanes
from pgo_agent.sandbox.profile.static_profile import Problem
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Spread, Timeline

from tests.agent import timelines

NO_STATIC = Problem("", "nvidia", "not compiled here")
KERNELS = ("attention", "cp_async", "persistent_specialized")
CYCLES = st.lists(st.floats(0, 1e6), min_size=3, max_size=3).map(sorted).map(lambda x: Spread(*x))


def of(times: tuple[ScopeTime, ...]) -> tuple[Lane, ...]:
    t = timelines.timeline(())
    timed = replace(t.passes[0].timed, scopes=times)
    return lanes(replace(t, passes=(replace(t.passes[0], timed=timed),)), NO_STATIC)


@st.composite
def made_up(draw: st.DrawFn) -> tuple[ScopeTime, ...]:
    """The scopes of a compiled kernel, some left out, with any times and counts at all."""
    found = timelines.timed(timelines.scopes(draw(st.sampled_from(KERNELS))))
    kept = [t for t in found if draw(st.booleans())] or list(found)
    return tuple(replace(t, cycles=draw(CYCLES), count=float(draw(st.integers(1, 500)))) for t in kept)


@settings(max_examples=80)
@given(made_up())
def test_every_scope_is_in_the_lane_of_its_role_once_in_the_order_of_the_text(times: tuple[ScopeTime, ...]) -> None:
    found = of(times)
    for lane in found:
        mine = [t for t in times if t.scope.role == lane.role and t.scope.kind in FAMILIES]
        assert [b.time for b in lane.bars if b.time] == mine
    assert {lane.role for lane in found} == {t.scope.role for t in times}


@settings(max_examples=80)
@given(made_up())
def test_bars_follow_one_another_in_their_lane_or_their_loop_and_none_ends_behind_it(
    times: tuple[ScopeTime, ...],
) -> None:
    for lane in of(times):
        _apart(list(lane.bars), lane.cycles)


def _apart(bars: list[Bar], end: float) -> None:
    top = [i for i, b in enumerate(bars) if b.depth == min(x.depth for x in bars)]
    for at, after in pairwise([*top, len(bars)]):
        inside = bars[at + 1 : after]
        assert all(b.begin >= bars[at].begin for b in inside)
        if inside:
            assert bars[at].name == "loop"
            _apart(inside, end)
        if after < len(bars):
            assert bars[after].begin == pytest.approx(max(b.end for b in bars[at:after]))
    assert all(b.end <= end * (1 + 1e-9) for b in bars)


@pytest.mark.parametrize("name", KERNELS)
def test_a_role_is_as_long_as_it_took_and_the_bars_in_no_scope_are_the_rest_of_it(name: str) -> None:
    for lane in of(timelines.timed(timelines.scopes(name))):
        assert lane.whole is not None
        if lane.bars:
            outer = [b for b in lane.bars if b.depth == 0]
            assert sum(b.cycles for b in outer) == pytest.approx(lane.whole.cycles.p50) == lane.cycles
            assert outer[-1].name == REST


def test_parts_that_add_up_to_more_than_their_role_make_the_lane_longer() -> None:
    found = timelines.timed(timelines.scopes("cp_async"))
    short = tuple(replace(t, cycles=Spread(1, 2, 3)) if t.scope.kind is Kind.ROLE else t for t in found)
    (lane,) = of(short)
    assert lane.cycles == max(b.end for b in lane.bars) > 2
    assert not any(b.name == REST and b.depth == 0 for b in lane.bars)


def test_a_loop_says_how_often_it_turns_and_holds_its_body_once() -> None:
    (lane,) = of(timelines.timed(timelines.scopes("cp_async"), turns=32))
    (loop,) = [b for b in lane.bars if b.name == "loop"]
    body = [b for b in lane.bars if b.depth == 1 and b.time]
    assert loop.turns == 32
    assert [b.name for b in body] == ["copy wait", "dot", "dot wait", "copy"]
    assert all(b.cycles == 32 * b.time.cycles.p50 for b in body if b.time)


def test_lines_are_those_of_the_source_where_the_text_says_so_and_else_of_the_text_itself() -> None:
    found = timelines.timed(timelines.scopes("cp_async"))
    unknown = tuple(replace(t, scope=replace(t.scope, source="")) for t in found)
    other = replace(found[1], scope=replace(found[1].scope, source="other.py:7"))
    assert all(b.line.isdigit() for b in of(found)[0].bars if b.time)
    assert {b.line for b in of(unknown)[0].bars if b.time} == {
        f"TTGIR {t.scope.first}" for t in found if t.scope.kind is not Kind.ROLE
    }
    assert "other.py:7" in {b.line for b in of((found[0], other, *found[2:]))[0].bars}


def test_a_timeline_without_scopes_has_no_lanes() -> None:
    empty = Timeline((), {}, None, (), (), {})
    assert lanes(empty, NO_STATIC) == ()
