"""What stands out by a GPU: sections of the cycles, SMs without blocks, conflicts in shared memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.profile.findings import Finding, standing_out
from pgo_agent.agent.profile.findings.timeline import sections
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile
from pgo_agent.sandbox.profile.timeline.types import Waves

from tests.agent import profiles
from tests.agent.profiles import EVEN, H200, counters, kernel, of_scopes, scope, static, timed, timeline

SHARES = st.dictionaries(st.sampled_from([k.value for k in profiles.OPS]), st.floats(0, 0.2), max_size=8)


def found(k: KernelProfile) -> list[tuple[str, float, str]]:
    return [(f.defect.value, f.figure, f.found_by.value) for f in standing_out(k, H200)]


def only(k: KernelProfile) -> Finding:
    (one,) = standing_out(k, H200)
    return one


def test_the_sections_of_a_multiplication_are_its_dots_its_copies_and_its_epilogue() -> None:
    clocked = timeline({"copy wait": 0.2, "dot": 0.05, "dot wait": 0.55, "store": 0.1})
    assert found(kernel(static(), clocked)) == [
        ("exposed dots", 0.6, "timeline"),
        ("exposed copies", 0.2, "timeline"),
        ("epilogue", 0.1, "timeline"),
    ]


def test_a_section_is_on_the_line_of_its_dearest_scope_and_says_its_share() -> None:
    clocked = of_scopes(timed(scope("dot", 7), 0.1), timed(scope("dot wait", 9), 0.4))
    one = only(kernel(static(), clocked))
    assert (one.line, one.share) == (9, 0.5)
    assert one.told == "50% of the cycles go to dots and waits for them, which nothing else fills"


def test_a_softmax_between_dots_is_arithmetic_and_the_division_behind_the_loop_is_epilogue() -> None:
    clocked = of_scopes(
        timed(scope("dot wait", 10), 0.3), timed(scope("body", 12), 0.4), timed(scope("body", 30, 0), 0.2)
    )
    assert [(s.defect.value, s.share, s.line) for s in sections(clocked)] == [
        ("arithmetic between dots", 0.4, 12),
        ("exposed dots", 0.3, 10),
        ("epilogue", 0.2, 30),
    ]


def test_what_only_puts_loaded_tiles_into_shared_memory_waits_for_the_load() -> None:
    staging = timed(scope("body", 11, 1, "kernel", "ttg.local_alloc", "ttg.local_alloc"), 0.4)
    clocked = of_scopes(timed(scope("load", 10), 0.1), staging, timed(scope("dot wait", 12), 0.2))
    assert found(kernel(static(), clocked))[0] == ("exposed copies", 0.5, "timeline")


def test_without_dots_arithmetic_in_a_loop_that_loads_is_not_told_from_its_loads() -> None:
    clocked = of_scopes(timed(scope("load", 10), 0.1), timed(scope("body", 11), 0.7))
    one = only(kernel(static(kinds={"float": 9}), clocked))
    assert one.told == "80% of the cycles go to loads and the arithmetic that waits for them"
    alone = of_scopes(timed(scope("body", 11), 0.7))
    assert found(kernel(static(), alone)) == [("arithmetic between dots", 0.7, "timeline")]


def test_a_producer_may_wait_as_long_as_it_likes() -> None:
    clocked = of_scopes(
        timed(scope("barrier wait", 5, 1, "partition0"), 0.9), timed(scope("dot wait", 9, 1, "default"), 0.4)
    )
    assert only(kernel(static(), clocked)).told == (
        "40% of the cycles of default go to dots and waits for them, which nothing else fills"
    )


def test_a_consumers_wait_for_an_mbarrier_is_for_copies_and_a_barrier_among_warps_is_not() -> None:
    clocked = of_scopes(
        timed(scope("barrier wait", 5), 0.3), timed(scope("barrier wait", 6, 1, "kernel", "gpu.barrier"), 0.2),
        timed(scope("dot wait", 9), 0.4),
    )  # fmt: skip
    assert [f[0] for f in found(kernel(static(), clocked))] == ["exposed dots", "exposed copies", "imbalance"]


def test_scopes_without_a_share_and_those_that_hold_others_count_nothing() -> None:
    clocked = of_scopes(timed(scope("loop", 4), 0.9), timed(scope("role", 1), 1.0), timed(scope("dot wait", 9), None))
    assert found(kernel(static(), clocked)) == []


@pytest.mark.parametrize(
    ("waves", "defect"),
    [
        (Waves(132, 140, 1, 100_000, 47_000, 1.9, 0.53, (), ()), "tail wave"),
        (Waves(132, 1320, 1, 100_000, 30_000, 1.4, 0.72, (), ()), "imbalance"),
        (Waves(60, 60, 1, 100_000, 1_000, 1.0, 0.99, (), ()), "tail wave"),  # most SMs have no block at all
    ],
)
def test_sms_that_stand_still_are_a_tail_where_the_waves_are_not_full_and_an_imbalance_where_they_are(
    waves: Waves, defect: str
) -> None:
    one = only(kernel(static(), timeline({}, waves)))
    assert (one.defect.value, one.share) == (defect, round(1 - waves.busy * waves.sms / 132, 3))
    assert f"{one.share:.0%}" in one.told


def test_a_tail_is_not_estimated_where_the_blocks_were_seen_to_fill_the_machine() -> None:
    assert [f[0] for f in found(kernel(static(), blocks=300))] == ["tail wave"]
    assert found(kernel(static(), timeline({}, EVEN), blocks=300)) == []


def test_bank_conflicts_stand_on_the_line_that_waits_for_shared_memory() -> None:
    one = only(kernel(static(), counted=counters(conflicts=0.62)))
    assert (one.defect.value, one.figure, one.line, one.found_by.value) == ("bank conflicts", 0.62, 12, "counters")
    assert one.share == pytest.approx(0.4 * 0.62)  # of the samples that wait for shared memory
    assert one.told == "62% of the passes through shared memory are bank conflicts"


def test_few_bank_conflicts_and_low_hit_rates_that_cost_nothing_do_not_stand_out() -> None:
    assert found(kernel(static(), counted=counters(conflicts=0.1, l2_hit=0.1))) == []
    busy = counters(l2_hit=0.1, speed_of_light={"dram": 0.8})
    assert found(kernel(static(), counted=busy)) == [("cache misses", 0.1, "counters")]
    assert found(kernel(static(kinds={"float": 9}), counted=busy)) == []


@given(SHARES)
def test_the_dearest_section_comes_first_and_no_share_is_lost_or_counted_twice(shares: dict[str, float]) -> None:
    listed = sections(timeline(shares))
    assert [s.share for s in listed] == sorted((s.share for s in listed), reverse=True)
    assert sum(s.share for s in listed) == pytest.approx(sum(shares.values()), abs=1e-6)
    assert len({s.defect for s in listed}) == len(listed)
