"""Statistics of records: what they say follows from the cycles that were recorded, and from nothing else."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.profile.timeline import summary
from pgo_agent.sandbox.profile.timeline.decode import Block, Decoded, decode
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, Unsupported, Why
from pgo_agent.sandbox.profile.timeline.sm_waves import SLICES, waves
from pgo_agent.sandbox.profile.timeline.types import Pass, Timed, Timeline, Waves

from tests.sandbox.profile.test_timeline_decode import Encoder

ROLE = Scope("kernel role 1", Kind.ROLE, "kernel", 1, 9, "", ("scf.for",), 0)
DOT = Scope("kernel dot 5", Kind.DOT, "kernel", 5, 5, "a.py:7", ("ttng.warp_group_dot",), 1)
NOTHING = Scope("kernel empty 5", Kind.EMPTY, "kernel", 5, 5, "", (), 1)
NUMBERS = {0: ROLE, 1: DOT, 2: NOTHING}


def launched(dots: list[list[int]], around: int = 100, empty: int = 0, warps: int = 2) -> Decoded:
    """A launch: for each block the cycles of its executions of DOT in every warp, `around` more in the whole role."""
    raw = b""
    for number, cycles in enumerate(dots):
        block = Encoder(number, warps, 64)
        for warp in range(warps):
            clock = 1000 * warp
            block.record(warp, (0, False, clock))
            for c in cycles:
                block.record(warp, (1, False, clock))
                block.record(warp, (1, True, clock + c))
                clock += c
            if empty:
                block.record(warp, (2, False, clock))
                block.record(warp, (2, True, clock + empty))
            block.record(warp, (0, True, clock + around))
        raw += block.raw()
    return decode(raw, len(raw) // len(dots), warps)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 500), min_size=3, max_size=3), min_size=1, max_size=3), st.integers(0, 30))
def test_percentiles_counts_and_variation_are_those_of_all_executions(dots: list[list[int]], cost: int) -> None:
    repeats = [launched(dots), launched(dots)]
    timed = summary.summarize(repeats, NUMBERS, {"kernel": float(cost)})
    role, dot = timed.scopes
    cycles = [c for block in dots for c in block]
    low, mid, high = np.percentile(cycles * 4, (20, 50, 80))  # two launches of two warps
    assert dot.cycles.p50 == pytest.approx(max(0, mid - cost))
    assert dot.cycles.p20 <= dot.cycles.p50 <= dot.cycles.p80
    assert (dot.count, dot.samples) == (3, len(cycles) * 2 * 2)
    assert dot.variation == pytest.approx((high - low) * 3)
    whole = sum(sum(block) + 100 - cost for block in dots)
    assert dot.share == pytest.approx(sum(max(0, c - cost) for c in cycles) / whole)
    assert role.share == pytest.approx(1.0)


def test_the_cost_of_a_record_is_that_of_an_empty_scope_in_the_same_role() -> None:
    assert summary.calibration([launched([[50]], empty=21), launched([[70]], empty=23)], NUMBERS) == {"kernel": 22.0}
    assert summary.calibration([launched([[50]])], NUMBERS) == {}


def test_a_role_that_was_not_recorded_as_a_whole_gives_no_shares() -> None:
    (dot,) = summary.summarize([launched([[50]])], {1: DOT, 3: ROLE}, {}).scopes[-1:]
    assert (dot.scope, dot.share) == (DOT, None)


def test_what_was_lost_and_what_does_not_fit_is_told() -> None:
    full = launched([[1] * 40])
    timed = summary.summarize([full, full], {0: ROLE}, {})
    assert timed.lost.overwritten == 2 * 2 * (82 - 64)
    assert timed.problems == ("records of scopes that the build does not have: [1]",)
    assert summary.summarize([], NUMBERS, {}).scopes == ()


def test_an_overhead_is_a_ratio_of_medians_and_needs_times() -> None:
    assert summary.overhead([1.0, 2.0, 9.0], [3.0, 3.0, 2.0]) == 1.5
    for plain, instrumented in (([], [1.0]), ([1.0], []), ([0.0], [1.0])):
        with pytest.raises(ValueError):
            summary.overhead(plain, instrumented)


# waves ----------------------------------------------------------------------------------------------------------------


def test_two_waves_with_a_tail_are_seen() -> None:
    blocks = [Block(0, 0, 100, 200), Block(1, 1, 100, 180), Block(2, 1, 180, 300)]
    found = waves(blocks)
    assert found is not None
    assert (found.sms, found.blocks, found.resident, found.span_ns, found.tail_ns) == (2, 3, 1, 200, 100)
    assert found.busy == (0.5 + 1.0) / 2
    assert found.imbalance == pytest.approx(200 / 150)
    assert [(w.blocks, w.begin_ns, w.end_ns) for w in found.waves] == [(2, 0, 100), (1, 80, 200)]
    assert found.running == pytest.approx([2] * 30 + [1] * 30)  # two until one ends in the middle of the launch


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=12))
def test_waves_are_what_counting_every_nanosecond_gives(spans: list[tuple[int, int, int]]) -> None:
    blocks = [Block(i, sm, begin, begin + ns) for i, (sm, begin, ns) in enumerate(spans)]
    found = waves(blocks)
    assert found is not None
    sms = {b.sm for b in blocks}
    at = {sm: [sum(b.begin_ns <= t < b.end_ns for b in blocks if b.sm == sm) for t in range(81)] for sm in sms}
    assert found.resident == max(1, *(n for counts in at.values() for n in counts))
    busy = [sum(map(bool, counts)) for counts in at.values()]
    span = max(b.end_ns for b in blocks) - min(b.begin_ns for b in blocks)
    assert found.busy == pytest.approx(sum(busy) / len(busy) / span if span else 1.0)
    assert sum(w.blocks for w in found.waves) == len(blocks)
    assert sum(found.running) * span / SLICES == pytest.approx(sum(b.ns for b in blocks) if span else 0)
    assert Waves.from_json(found.as_json()) == found


def test_no_blocks_and_clocks_that_run_backwards_have_no_waves() -> None:
    assert waves([]) is None
    assert waves([Block(0, 0, 10, 5)]) is None


def test_a_timeline_is_the_same_after_a_trip_through_json() -> None:
    timed = summary.summarize([launched([[5, 6], [7, 8]])], NUMBERS, {"kernel": 2.0})
    found = waves([Block(0, 0, 100, 200)])
    whole = Timeline(
        (Pass(timed, 1.02, True, {"registers": 40}, (), 4096, 4, {"0": "scope"}, "b"),),
        {"kernel": 2.0},
        found,
        (Unsupported(Why.BUILD, "x"),),
        (1.5, 1.6),
        {"gpu": "NVIDIA H200"},
    )
    assert Timeline.from_json(json.loads(json.dumps(whole.as_json()))) == whole
    assert Timed.from_json(timed.as_json()) == timed


def test_scopes_without_a_place_get_that_of_their_first_line_that_has_one() -> None:
    timed = summary.summarize([launched([[5, 6], [7, 8]])], NUMBERS, {})
    one = Pass(timed, 1.0, True, {}, (), 4096, 4, {}, "b")
    told = {s.scope.name: s.scope.source for s in timed.scopes}
    placed = Timeline((one,), {}, None, (), (), {}).placed("k.py", {s.scope.last: 7 for s in timed.scopes})
    assert placed.scopes
    for s in placed.scopes:
        assert s.scope.source == (told[s.scope.name] or "k.py:7")
    assert any(not told[s.scope.name] for s in placed.scopes)
