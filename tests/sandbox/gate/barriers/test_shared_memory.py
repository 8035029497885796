"""Who uses shared memory too soon: small programs, held to all their schedules too, and bugs edited into TTGIR."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.gate.barriers import simulator
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind
from pgo_agent.sandbox.gate.barriers.program import (
    Access,
    Arrive,
    At,
    Commit,
    Copy,
    Drain,
    Forget,
    Program,
    Queue,
    Step,
    Wait,
)
from pgo_agent.sandbox.gate.barriers.runs import read_and_simulate

from tests.sandbox.barrier_programs import broken_users, program, random_users, search, users
from tests.sandbox.gate.barriers.test_program import simulated
from tests.sandbox.line_edits import COPY, Edit, change, later, remove

SMALL = st.one_of(random_users(), broken_users())


def agrees(small: Program) -> None:
    """Of a program whose barriers are in order, two uses of a slot are found exactly where some schedule has both."""
    answer, seen = simulator.run(small), search(small)
    event(str(answer.kind))
    if answer.kind in (Kind.NONE, Kind.MEMORY):
        assert seen.clean
        assert seen.overlap == answer.found, answer
    else:
        assert not seen.clean


@settings(max_examples=150)
@given(SMALL)
def test_it_agrees_with_a_search_over_all_schedules(small: Program) -> None:
    agrees(small)


@pytest.mark.slow
@settings(max_examples=8_000, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL)
def test_it_agrees_with_a_search_over_all_schedules_of_many_programs(small: Program) -> None:
    agrees(small)


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_nothing_is_found_where_a_slot_is_freed_after_it_was_read(slots: int, late: bool, threads: bool) -> None:
    for trips in range(2 * slots + 2):
        assert simulator.run(users(slots, trips, late, threads)) is simulator.NOTHING


# rules, each with what breaks it --------------------------------------------------------------------------------------

START: dict[str, int] = {"full": 1, "free": 1}
DOT = (Access(("m",), False, "dot", Queue.DOTS), Commit(Queue.DOTS))
FILL = (Arrive("full", expects=64), Copy("full", 64, slot="m"))


def found(**roles: Sequence[Step]) -> Finding:
    """What is found in roles on two barriers, with lines from 1; a search over all schedules must find the same."""
    lines = {name: [replace(s, at=At(n)) for n, s in enumerate(steps, 1)] for name, steps in roles.items()}
    small = program(START, lines)
    said, seen = simulator.run(small), search(small)
    assert said.kind in (Kind.NONE, Kind.MEMORY), said
    assert seen.clean and seen.overlap == said.found
    return said


def test_a_dot_that_is_not_awaited_before_its_slot_is_freed_is_named_with_both_lines_and_what_was_freed() -> None:
    producer = [*FILL, Wait("free", 0), *FILL]
    consumer = [Wait("full", 0), *DOT, Arrive("free"), Drain(Queue.DOTS), Wait("full", 1)]
    said = found(producer=producer, consumer=consumer)
    assert said.sentence == (
        "the copy at line 5 may overwrite m while the dot at line 2 still reads it: "
        "consumer waits for that dot at line 5, and nothing makes producer wait for this"
    )
    assert said.trace[-1] == "the last of consumer that producer waits for is consumer's arrival on free at line 4"
    fine = [Wait("full", 0), *DOT, Drain(Queue.DOTS), Arrive("free"), Wait("full", 1)]
    assert not found(producer=producer, consumer=fine).found


def test_a_dot_that_nobody_waits_for_is_told_so() -> None:
    consumer = [Wait("full", 0), *DOT, Arrive("free"), Wait("full", 1)]
    said = found(producer=[*FILL, Wait("free", 0), *FILL], consumer=consumer)
    assert said.sentence.endswith("still reads it: nobody waits for that dot")


def test_a_wait_that_lets_dots_pending_ends_those_before_them() -> None:
    def consumer(pending: int) -> list[Step]:
        other = replace(DOT[0], slots=("n",))
        return [Wait("full", 0), *DOT, other, DOT[1], Drain(Queue.DOTS, pending), Arrive("free"), Wait("full", 1)]

    producer = [*FILL, Wait("free", 0), *FILL]
    assert not found(producer=producer, consumer=consumer(1)).found
    assert "while the dot at line 2 still reads it" in found(producer=producer, consumer=consumer(2)).sentence


def test_a_read_that_comes_after_the_start_of_a_copy_but_not_its_landing_is_found() -> None:
    producer = [*FILL, Arrive("free"), Wait("full", 0)]
    read = Access(("m",), False, "load")
    said = found(producer=producer, consumer=[Wait("free", 0), read])
    assert said.sentence == (
        "the load at line 2 may read m before the copy at line 2 has filled it: consumer has not waited for it, on full"
    )
    assert not found(producer=producer, consumer=[Wait("free", 0), Wait("full", 0), read]).found


def test_that_a_copy_has_landed_may_be_told_by_another_role() -> None:
    producer = [*FILL, Wait("full", 0), Arrive("free")]
    assert not found(producer=producer, consumer=[Wait("free", 0), Access(("m",), False, "load")]).found


def test_a_copy_over_one_that_may_still_be_under_way_is_found_with_both_lines() -> None:
    other = (Arrive("free", expects=64), Copy("free", 64, slot="m"))
    said = found(r=[*FILL, *other, Wait("full", 0), Wait("free", 0)])
    assert said.sentence == (
        "the copy at line 4 may overwrite m while the copy at line 2 still fills it: r has not waited for it, on full"
    )
    assert not found(r=[*FILL, Wait("full", 0), *other, Wait("free", 0)]).found


COPIED = (Access(("m",), True, "copy", Queue.COPIES), Commit(Queue.COPIES))


def test_a_slot_read_before_its_group_of_copies_is_awaited_is_found() -> None:
    read, later = Access(("m",), False, "load"), Commit(Queue.COPIES)
    assert not found(r=[*COPIED, later, Drain(Queue.COPIES, 1), read]).found
    said = found(r=[*COPIED, later, Drain(Queue.COPIES, 2), read, Drain(Queue.COPIES)])
    assert said.sentence == (
        "the load at line 5 may read m before the copy at line 1 has filled it: "
        "r waits for that copy only later, at line 6"
    )
    assert found(r=[COPIED[0], Drain(Queue.COPIES), read]).found  # never committed


def test_copies_that_report_to_a_barrier_are_awaited_there() -> None:
    reports, read = Copy("full", 0, 1), Access(("m",), False, "load")
    assert not found(r=[*COPIED, reports], s=[Wait("full", 0), read]).found
    assert "nobody waits for that copy" in found(r=[reports, *COPIED], s=[Wait("full", 0), read]).sentence


def test_a_copy_into_what_an_outstanding_dot_of_the_same_role_reads_is_found() -> None:
    assert not found(r=[*DOT, Drain(Queue.DOTS), *COPIED]).found
    said = found(r=[*DOT, *COPIED, Drain(Queue.DOTS)])
    assert said.sentence.endswith("r waits for that dot only later, at line 5")


def test_what_was_passed_over_may_have_waited() -> None:
    small = program(START, {"r": [*DOT, *COPIED, Drain(Queue.DOTS)]})
    assert simulator.run(small).kind is Kind.MEMORY
    small = program(START, {"r": [*DOT, Forget(), *COPIED, Drain(Queue.DOTS)]})
    assert simulator.run(small) is simulator.NOTHING


# what is followed of TTGIR --------------------------------------------------------------------------------------------

SLOT = "!ttg.memdesc<128xi32, #shared, #smem, mutable>"
SLOTS = SLOT.replace("128xi32", "2x128xi32")
COPY_INTO = f"""%m = ttg.local_alloc : () -> {SLOTS}
    %s = ttg.memdesc_index %m[%c0] : {SLOTS} -> {SLOT}
    %other = ttg.memdesc_index %m[%c1] : {SLOTS} -> {SLOT}
    %from = tt.splat %p : !tt.ptr<i32> -> tensor<128x!tt.ptr<i32>, #blocked>
    %v = tt.load %p : !tt.ptr<i32>
    %some = arith.trunci %v : i32 to i1
    %t = ttg.async_copy_global_to_local %from, %s : tensor<128x!tt.ptr<i32>, #blocked> -> {SLOT[12:]}
    %g = ttg.async_commit_group tokens %t
"""
ZEROS = "%zeros = arith.constant dense<0> : tensor<128xi32, #blocked>\n"
INTO_OTHER = f"ttg.local_store %zeros, %other : tensor<128xi32, #blocked> -> {SLOT}\n"
AWAIT = "%w = ttg.async_wait {num = 0 : i32}\n"


def load(slot: str, type_: str = SLOT, of: str = "128xi32") -> str:
    return f"%l = ttg.local_load {slot} : {type_} -> tensor<{of}, #blocked>\n"


def copied(body: str) -> Kind:
    """What is found where threads copy into slot 0 of an array and then do this."""
    return simulated(COPY_INTO + body).kind


def test_a_load_before_the_wait_is_found_and_one_after_it_or_of_another_slot_is_not() -> None:
    assert copied(load("%s")) is Kind.MEMORY
    assert copied(AWAIT + load("%s")) is Kind.NONE
    assert copied(ZEROS + INTO_OTHER + load("%other")) is Kind.NONE


def test_a_load_of_a_slot_that_nothing_has_filled_is_found_where_every_write_is_known() -> None:
    anywhere = f"%r = ttg.memdesc_index %m[%v] : {SLOTS} -> {SLOT}\n" + INTO_OTHER.replace("%other", "%r")
    assert copied(load("%other")) is Kind.MEMORY
    assert copied(ZEROS + anywhere + load("%other")) is Kind.NONE
    assert copied(ZEROS + "scf.if %some {\n" + INTO_OTHER + "}\n" + load("%other")) is Kind.NONE
    loop = "scf.for %i = %c0 to %n step %c1 : i32 {\n"
    assert copied(ZEROS + loop + INTO_OTHER + "}\n" + load("%other")) is Kind.NONE
    either = f"%r = scf.if %some -> ({SLOT}) {{\nscf.yield %s : {SLOT}\n}} else {{\nscf.yield %other : {SLOT}\n}}\n"
    assert copied(ZEROS + either + INTO_OTHER.replace("%other", "%r") + load("%other")) is Kind.NONE


def test_a_store_into_a_slot_that_is_being_filled_is_found() -> None:
    store = ZEROS + INTO_OTHER.replace("%other", "{}")
    assert copied(store.format("%s")) is Kind.MEMORY
    assert copied(AWAIT + store.format("%s")) is Kind.NONE
    assert copied(store.format("%other")) is Kind.NONE


def test_another_shape_of_a_slot_is_that_slot_and_a_part_of_it_accuses_nobody() -> None:
    wide, part = SLOT.replace("128xi32", "256xi16"), SLOT.replace("128xi32", "64xi32").replace(">", ", 128>")
    shape = f"%r = ttg.memdesc_reinterpret %s : {SLOT} -> {wide}\n"
    assert copied(shape + load("%r", wide, "256xi16")) is Kind.MEMORY
    assert copied(AWAIT + shape + load("%r", wide, "256xi16")) is Kind.NONE
    assert copied(f"%r = ttg.memdesc_subslice %s[0] : {SLOT} -> {part}\n" + load("%r", part, "64xi32")) is Kind.NONE


def test_a_slot_of_unknown_number_accuses_nobody() -> None:
    assert copied(f"%r = ttg.memdesc_index %m[%v] : {SLOTS} -> {SLOT}\n" + load("%r")) is Kind.NONE


def test_a_branch_that_may_not_be_taken_accuses_nobody_and_may_have_waited() -> None:
    assert copied("scf.if %some {\n" + load("%s") + "}\n") is Kind.NONE
    assert copied("scf.if %some {\n" + AWAIT + "}\n" + load("%s")) is Kind.NONE
    assert copied("scf.if %on {\n" + AWAIT + "}\n" + load("%s")) is Kind.NONE
    assert copied("scf.if %true {\n" + load("%s") + "}\n") is Kind.MEMORY


def test_a_loop_that_is_passed_over_accuses_nobody() -> None:
    assert copied("scf.for %i = %c0 to %n step %c1 : i32 {\n" + load("%s") + "}\n") is Kind.NONE


def test_assembly_may_have_waited() -> None:
    assembly = (
        '%r = tt.elementwise_inline_asm "{}; mov.b32 $0, $1;" '
        '{{constraints = "=r,r", packed_element = 1 : i32, pure = false}} %n : i32 -> i32\n'
    )
    assert copied(assembly.format("cp.async.wait_group 0") + load("%s")) is Kind.NONE
    assert copied(assembly.format("prefetch.global.L2 [$2]") + load("%s")) is Kind.MEMORY


# bugs edited into real TTGIR ------------------------------------------------------------------------------------------

DOTS_WAIT, FREE = "ttng.warp_group_dot_wait", "ttng.arrive_barrier"
BUGS: dict[str, tuple[str, Edit, tuple[str, ...]]] = {
    "slot freed before the dot is awaited": (
        "two_consumers",
        later(DOTS_WAIT, FREE, 0),
        ("may overwrite %a_mem[0] while the dot at", "default waits for that dot at", "nothing makes partition1 wait"),
    ),
    "V freed before the dot is awaited": (
        "attention",
        later(DOTS_WAIT, FREE, 1),
        ("may overwrite %v_mem[0] while the dot at", "default waits for that dot at", "nothing makes partition1 wait"),
    ),
    "wait lets the dot pending": (
        "attention",
        change("pendings = 0", "pendings = 1"),
        ("may overwrite %k_mem[0] while the dot at", "default waits for that dot at"),
    ),
    "reads the slot that is filled next": (
        "two_consumers",
        change(r"(%\w+ = ttg.memdesc_index %b_mem)\[%s\]", r"\1[%c1_i32]"),
        ("may read %b_mem[1], which nothing has filled",),
    ),
    "copies all go into one slot": (
        "two_consumers",
        change(rf"(ttg.memdesc_index %\w+)\[%s\](.*\n.*{COPY} %\w+\[)(%c0\w+),", r"\1[\3]\2\3,"),
        ("may overwrite %a_mem[0] while the same copy, a turn before, still fills it",),
    ),
    "copies of a pipelined loop not awaited": (
        "cp_async",
        remove("ttg.async_wait"),
        ("the dot at", "may read %acc_23[0] before the copy at"),
    ),
    "wait lets too many groups pending and does not say for what": (
        "cp_async",
        change(r"async_wait %\w+, %\w+ \{num = 2", "async_wait {num = 3"),
        ("may read %acc_24[0] before the copy at",),
    ),
    "copies into what a dot still reads": (
        "cp_async",
        change("pendings = 1", "pendings = 2"),
        ("may overwrite %acc_23[0] while the dot at", "kernel waits for that dot only later"),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_edited_into_real_ttgir_is_found_and_said(bug: str, ttgir: Callable[[str], str]) -> None:
    kernel, edit, said = BUGS[bug]
    answer = read_and_simulate(edit(ttgir(kernel)))
    assert (answer.kind, [s for s in said if s not in answer.sentence]) == (Kind.MEMORY, []), answer
    assert re.search(r"at line \d+ \(barrier_kernels.py:\d+\)", answer.sentence), answer
