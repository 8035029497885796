"""The simulator of barrier programs against a search over all schedules, and what it says of small programs."""

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.gate.barriers import simulator
from pgo_agent.sandbox.gate.barriers.finding import Kind
from pgo_agent.sandbox.gate.barriers.program import Arrive, At, Copy, Fork, Init, Inval, Join, Program, Step, Wait

from tests.sandbox.barrier_programs import broken_pipelines, pipeline, program, random_programs, search

SMALL = st.one_of(random_programs(), broken_pipelines(), broken_pipelines())


def agrees(small: Program) -> None:
    """Nothing is found exactly where every schedule ends and takes the same course; a deadlock can be reached."""
    found, seen = simulator.run(small), search(small)
    event(str(found.kind))
    assert found.found != seen.clean, (found, seen)
    assert seen.stuck or found.kind is not Kind.DEADLOCK, (found, seen)


@settings(max_examples=150)
@given(SMALL)
def test_it_agrees_with_a_search_over_all_schedules(small: Program) -> None:
    agrees(small)


@pytest.mark.slow
@settings(max_examples=8_000, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL)
def test_it_agrees_with_a_search_over_all_schedules_of_many_programs(small: Program) -> None:
    agrees(small)


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_nothing_is_found_in_a_pipeline_of_any_length(slots: int, consumers: int) -> None:
    for trips in range(2 * slots + 2):
        for ends in (True, False):
            assert simulator.run(pipeline(slots, trips, consumers, ends=ends)) is simulator.NOTHING


def at(*steps: Step) -> list[Step]:
    """Steps with lines, from 1."""
    return [type(s)(**{**vars(s), "at": At(n)}) for n, s in enumerate(steps, 1)]


def said(kind: Kind, barriers: dict[str, int], roles: dict[str, list[Step]]) -> str:
    """What is said of roles on these barriers; it must be of this kind, and found by the search too."""
    small = program(barriers, {name: at(*steps) for name, steps in roles.items()}, ends=False)
    found, seen = simulator.run(small), search(small)
    assert found.kind is kind, found
    assert not seen.clean
    return found.sentence


def test_a_wait_for_an_arrival_that_nobody_makes_is_named_with_barrier_phase_and_line() -> None:
    sentence = said(Kind.DEADLOCK, {"b": 2}, {"r": [Wait("b", 0)], "s": [Arrive("b")]})
    assert sentence == (
        "r waits for good on b, phase 0 (parity 0), at line 1: 1 of 2 arrivals came, nobody is left to arrive"
    )


def test_a_role_that_waits_for_itself_is_told_so() -> None:
    sentence = said(Kind.DEADLOCK, {"b": 1}, {"r": [Wait("b", 0), Arrive("b")]})
    assert sentence.endswith("0 of 1 arrivals came, next would come r at line 2, it would itself have to go on first")


def test_a_circle_names_every_role_in_it_and_no_other() -> None:
    roles: dict[str, list[Step]] = {
        "r": [Wait("a", 0), Arrive("b")],
        "s": [Wait("b", 0), Arrive("c")],
        "t": [Wait("c", 0), Arrive("a")],
        "u": [Wait("c", 0)],
    }
    sentence = said(Kind.DEADLOCK, {"a": 1, "b": 1, "c": 1}, roles)
    assert [role for role in "rstu" if f"{role} waits on" in sentence] == ["r", "s", "t"]


def test_a_parity_that_does_not_alternate_is_told() -> None:
    roles: dict[str, list[Step]] = {
        "r": [Arrive("b"), Wait("b", 0), Arrive("b"), Wait("b", 1), Arrive("b"), Wait("b", 1)]
    }
    sentence = said(Kind.DEADLOCK, {"b": 1}, roles)
    assert "it asks for the same parity as its wait at line 4 before, and phase 2 in between is complete" in sentence


A_WHILE: list[Step] = [Arrive("a", expects=32), Copy("a", 32), Wait("a", 0)]  # the others go on meanwhile


def test_a_wait_that_the_next_phase_may_overtake_is_found_though_this_run_ends() -> None:
    sentence = said(Kind.OVERTAKEN, {"a": 1, "b": 1}, {"r": [Wait("b", 0)], "s": [Arrive("b"), *A_WHILE, Arrive("b")]})
    assert (
        "r's wait on b at line 1 passes when phase 0 is complete, but phase 1 may complete before it looks" in sentence
    )


def test_a_wait_that_may_pass_on_an_older_phase_is_found() -> None:
    roles: dict[str, list[Step]] = {
        "r": [Wait("a", 0), Wait("b", 1)],
        "s": [Arrive("a"), Arrive("b"), Arrive("b")],
    }
    sentence = said(Kind.EARLY, {"a": 1, "b": 1}, roles)
    assert "r's wait on b at line 2 is for phase 1, but may pass on the fresh barrier" in sentence


def test_an_arrival_too_many_is_found_with_those_before_it() -> None:
    roles: dict[str, list[Step]] = {"r": [Arrive("b", expects=32), Arrive("b"), Copy("b", 32), Wait("b", 0)]}
    sentence = said(Kind.ARRIVALS, {"b": 1}, roles)
    assert sentence == (
        "more arrivals than the count of b: r arrives 1 at line 2, "
        "while in phase 0 1 of 1 arrivals came, 32 of the expected bytes are missing"
    )


def test_an_arrival_that_may_count_for_the_phase_before_is_found() -> None:
    roles: dict[str, list[Step]] = {"r": [Arrive("b"), Wait("b", 0), Arrive("b")], "s": [Arrive("b"), Arrive("b")]}
    assert "arrival may count for phase 0" in said(Kind.ARRIVALS, {"b": 2}, roles)


def test_arrivals_where_nobody_waits_may_count_for_any_phase() -> None:
    """As of the consumers of a warp-specialized GEMM whose inner dimension is empty: its producer waits for none."""
    small = program({"b": 2}, {"r": at(*[Arrive("b")] * 3), "s": at(*[Arrive("b")] * 3)})
    assert simulator.run(small) is simulator.NOTHING and search(small).clean
    more = program({"b": 2}, {"r": at(Arrive("b", 2), Arrive("b")), "s": at(Arrive("b"))})
    assert simulator.run(more).kind is Kind.ARRIVALS and search(more).broken


def test_a_copy_that_may_land_in_the_phase_before_is_found() -> None:
    roles: dict[str, list[Step]] = {
        "r": [
            Arrive("b", expects=32),
            Copy("b", 32),
            Copy("b", 32),
            Wait("b", 0),
            Arrive("b", expects=32),
            Wait("b", 1),
        ]
    }
    sentence = said(Kind.BYTES, {"b": 1}, roles)
    assert "the copy at line 3 (32 bytes) is one too many for phase 0 of b" in sentence


def test_bytes_that_never_come_are_found_where_nobody_waits_for_them() -> None:
    sentence = said(Kind.BYTES, {"b": 1}, {"r": [Arrive("b", expects=32)]})
    assert sentence == "at the end of the program 32 bytes are expected that no copy brings, in phase 0 of b"


def test_bytes_that_nobody_expects_are_found_where_nobody_waits_for_them() -> None:
    assert "copies bring 32 bytes that nobody expects" in said(Kind.BYTES, {"b": 1}, {"r": [Copy("b", 32)]})


def test_a_copy_that_nobody_waits_for_is_found() -> None:
    sentence = said(Kind.BYTES, {"b": 1}, {"r": [Arrive("b", expects=32), Copy("b", 32)]})
    assert sentence == "nobody waits for the copy at line 2 on b: the program may end while it is under way"


def test_a_barrier_invalidated_while_somebody_may_still_wait_is_found() -> None:
    roles: dict[str, list[Step]] = {"r": [Wait("b", 0)], "s": [Arrive("b"), *A_WHILE, Inval("b")]}
    assert "s invalidates b at line 5 while it may be in use" in said(Kind.LIFETIME, {"a": 1, "b": 1}, roles)


def test_a_barrier_used_after_it_was_invalidated_is_found() -> None:
    sentence = said(Kind.LIFETIME, {"b": 1}, {"r": [Inval("b"), Arrive("b")]})
    assert sentence == "r uses b at line 2, but the barrier was invalidated by r at line 1"


def test_a_barrier_that_another_role_initialises_meanwhile_is_found() -> None:
    steps = (Fork(("r", "s")), Join(("r", "s")))
    small = Program({"kernel": steps, "r": (Init("b", 1, At(1)),), "s": (Arrive("b", at=At(2)),)})
    found = simulator.run(small)
    assert found.kind is Kind.LIFETIME
    assert found.sentence == "s uses b at line 2, and nothing makes it wait for r to initialise it"


def test_a_barrier_initialised_anew_under_a_role_that_waits_is_found() -> None:
    sentence = said(Kind.LIFETIME, {"b": 1}, {"r": [Wait("b", 0)], "s": [Init("b", 2), Arrive("b", 2)]})
    assert sentence == "r uses b at line 1, and nothing makes it wait for s to initialise it"


def test_a_barrier_may_be_initialised_again_once_all_is_quiet() -> None:
    roles: dict[str, list[Step]] = {"r": [Arrive("b"), Wait("b", 0), Init("b", 2), Arrive("b", 2), Wait("b", 0)]}
    assert simulator.run(program({"b": 1}, roles)) is simulator.NOTHING


def test_all_of_a_role_that_is_stuck_is_in_the_trace() -> None:
    roles: dict[str, list[Step]] = {"r": [Wait("b", 0)], "s": [Arrive("b", expects=64), Copy("b", 32)]}
    small = program({"b": 1}, {name: at(*steps) for name, steps in roles.items()})
    assert simulator.run(small).trace == (
        "r waits for good on b, phase 0 (parity 0), at line 1: "
        "1 of 1 arrivals came, 32 of the expected bytes are missing, nobody is left to bring them",
        "  s arrived 1 and expected 64 bytes at line 1",
        "  s brought 32 bytes at line 2",
        "kernel waits for r, s to end",
    )
