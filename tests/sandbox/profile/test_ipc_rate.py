"""The IPC of scopes follows from counts and records: which instructions, how many turns, whose cycles, or why not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.profile import instruction_path, instructions_per_cycle
from pgo_agent.sandbox.profile.instructions_per_cycle import Count, Counts
from pgo_agent.sandbox.profile.kernel_profile import Missing, ScopeIpc
from pgo_agent.sandbox.profile.timeline import scope_sets
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import Lost, Pass, ScopeTime, Spread, Timed, Timeline

SCOPES = {
    s.name: s
    for s in (
        scope_sets.Scope("kernel role 1", Kind.ROLE, "kernel", 1, 9, "", ("scf.for",), 0),
        scope_sets.Scope("kernel loop 2", Kind.LOOP, "kernel", 2, 2, "", ("scf.for",), 0),
        scope_sets.Scope("kernel dot 3", Kind.DOT, "kernel", 3, 3, "", ("tt.dot",), 1),
        scope_sets.Scope("kernel barrier wait 4", Kind.BARRIER_WAIT, "kernel", 4, 4, "", ("ttng.wait_barrier",), 1),
    )
}
DOT = Count("kernel dot 3", {"HGMMA": 4, "UMOV": 6}, {}, (), "")
LOOP = Count("kernel loop 2", {"MOV": 5}, {"HGMMA": 4, "BRA": 16}, ("kernel dot 3",), "")
WAIT = Count("kernel barrier wait 4", {}, {}, (), instruction_path.WAITS)
BUILD = Counts("b", (LOOP, DOT, WAIT), "")


def timed(name: str, p50: float, count: float = 1.0) -> ScopeTime:
    return ScopeTime(SCOPES[name], Spread(p50, p50, p50), count, 0.0, None, 5)


def passed(*found: ScopeTime, build: str = BUILD.build, overhead: float = 1.0, lost: Lost | None = None) -> Pass:
    numbers = {str(n): s.scope.name for n, s in enumerate(found)}
    return Pass(Timed(found, lost or Lost(), ()), overhead, True, {}, (), 0, 4, numbers, build)


def timeline(*found: Pass) -> Timeline:
    return Timeline(found, {}, None, (), (), {})


def of_build(loop: float = 700.0, turns: float = 7.0, lost: Lost | None = None, overhead: float = 1.0) -> Pass:
    found = (
        timed("kernel loop 2", loop),
        timed("kernel dot 3", 40.0, turns),
        timed("kernel barrier wait 4", 9.0, turns),
    )
    return passed(*found, lost=lost, overhead=overhead)


def test_a_straight_scope_has_its_instructions_over_its_cycles() -> None:
    found = instructions_per_cycle.ipc([BUILD], timeline(of_build()))
    assert isinstance(found, tuple)
    assert found[1] == ScopeIpc("kernel dot 3", 10, 40, 0.25)


@given(st.integers(1, 1000), st.integers(1, 10), st.floats(1, 1e9))
def test_a_loop_turns_as_often_as_the_scope_inside_of_it_was_recorded(turns: int, times: int, cycles: float) -> None:
    """The loop itself may be executed several times by a warp."""
    loop, dot = timed("kernel loop 2", cycles, times), timed("kernel dot 3", 40.0, turns * times)
    found = instructions_per_cycle.ipc([BUILD], timeline(passed(loop, dot)))
    assert isinstance(found, tuple)
    assert found[0].instructions == pytest.approx(5 + 20 * turns)
    assert found[0].ipc == pytest.approx((5 + 20 * turns) / cycles)


def test_a_loop_of_which_records_were_lost_has_no_figure() -> None:
    found = instructions_per_cycle.ipc([BUILD], timeline(of_build(lost=Lost(overwritten=1))))
    assert [s.scope for s in found if isinstance(s, ScopeIpc)] == ["kernel dot 3"]


ALONE = Counts("c", (replace(LOOP, inside=()),), "")  # the loop in one build, what is inside of it in another
INSIDE = Counts("d", (DOT, WAIT), "")


def apart(turns: float, lost: Lost | None = None) -> Timeline:
    inner = (timed("kernel dot 3", 40.0, turns), timed("kernel barrier wait 4", 9.0, turns))
    return timeline(
        passed(timed("kernel loop 2", 700.0), build=ALONE.build), passed(*inner, build=INSIDE.build, lost=lost)
    )


def test_a_loops_turns_may_be_of_another_build_if_that_lost_no_records() -> None:
    found = instructions_per_cycle.ipc([ALONE, INSIDE], apart(7.0))
    assert isinstance(found, tuple)
    assert found[0] == ScopeIpc("kernel loop 2", 145, 700, pytest.approx(145 / 700))
    lossy = instructions_per_cycle.ipc([ALONE, INSIDE], apart(7.0, Lost(overwritten=3)))
    assert [s.scope for s in lossy if isinstance(s, ScopeIpc)] == ["kernel dot 3"]


@pytest.mark.parametrize("turn", [{"HGMMA": 8, "BRA": 32}, {"BRA": 16}, {"HGMMA": 4, "LDG": 1}])
def test_a_loop_that_is_not_its_scopes_once_has_no_turns_of_another_build(turn: dict[str, int]) -> None:
    """Unrolled, without anything that tells, or with loads that no scope has."""
    other = replace(ALONE, scopes=(replace(ALONE.scopes[0], turn=turn),))
    found = instructions_per_cycle.ipc([other, INSIDE], apart(7.0))
    assert [s.scope for s in found if isinstance(s, ScopeIpc)] == ["kernel dot 3"]


def test_scopes_that_took_no_time_or_have_no_count_are_left_out() -> None:
    found = instructions_per_cycle.ipc(
        [BUILD], timeline(passed(timed("kernel dot 3", 0.0), timed("kernel barrier wait 4", 5.0)))
    )
    assert found == Missing("ipc", f"kernel barrier wait 4: {instruction_path.WAITS}")


def test_of_two_builds_the_least_disturbed_is_taken() -> None:
    found = instructions_per_cycle.ipc(
        [BUILD], timeline(of_build(loop=900.0, overhead=1.5), of_build(loop=700.0, overhead=1.1))
    )
    assert isinstance(found, tuple)
    assert found[0].cycles == 700.0


def test_counts_of_another_build_than_that_of_the_pass_are_not_used() -> None:
    other = replace(BUILD, build="e", scopes=(DOT,))
    why = "no instrumented build of this timeline was disassembled"
    assert instructions_per_cycle.ipc([other], timeline(of_build())) == Missing("ipc", why)


def test_nothing_timed_and_nothing_compiled_are_reasons() -> None:
    assert instructions_per_cycle.ipc([BUILD], timeline()) == Missing("ipc", "no scope was timed")
    assert instructions_per_cycle.ipc([Counts("b", (), "ptxas died")], timeline(of_build())) == Missing(
        "ipc", "ptxas died"
    )
