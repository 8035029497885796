"""Flags, locks and early launches: kernels that keep the rules pass, and each edit that breaks one is found."""

import re
from functools import cache
from typing import Any

import pytest
from pgo_agent.sandbox.gate.synchronisation import block_waits, dependent_launch, initial_memory, publication
from pgo_agent.sandbox.gate.synchronisation.dependent_launch import Text
from pgo_agent.sandbox.gate.synchronisation.finding import Finding
from pgo_agent.sandbox.gate.synchronisation.spin_loops import spins
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.dataflow import Flow

from tests.sandbox.flag_kernels import step_of, tensor, ttgir_of
from tests.sandbox.line_edits import Edit, change, move, remove

ttgir = cache(ttgir_of)
MANY = {n: n for n in range(8)}  # each argument has memory of its own


def handed_on(text: str, storages: dict[int, int] = MANY) -> list[Finding]:
    module = reader.parse(text)
    return publication.rule(module, Flow(module), storages)


def waited(text: str, step: dict[str, Any], first: dict[int, int], resident: int, cooperative: bool = False) -> Any:
    """The gravest verdict of the blocks of a launch, or None."""
    module = reader.parse(text)
    flow = Flow(module)
    found, _ = block_waits.rule(
        module, flow, spins(flow), block_waits.WaitingLaunch(step, first, resident, cooperative)
    )
    return found[0].verdict if found else None


# what is published ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lock", "last", "pair", "grid", "tiles", "early"])
def test_nothing_is_found_in_a_kernel_that_publishes_and_acquires(name: str) -> None:
    assert handed_on(ttgir(name)) == []


BARRIER = remove("gpu.barrier")
RELAXED = change("acq_rel", "relaxed", -1)
BROKEN: dict[str, tuple[str, Edit, str]] = {
    "lock given back before all threads have stored": ("lock", BARRIER, "no barrier makes all threads"),
    "lock given back by a relaxed atomic": ("lock", RELAXED, "relaxed gpu, does not release it"),
    "lock given back for the threads of the block": ("lock", change("acq_rel, gpu", "acq_rel, cta", -1), "acq_rel cta"),
    "lock never given back": ("lock", remove("tt.atomic_rmw"), "nothing behind the store says that it was made"),
    "lock taken by a relaxed atomic": ("lock", change("acq_rel", "relaxed"), "does not acquire it"),
    "counter without a barrier": ("last", BARRIER, "no barrier makes all threads"),
    "counter that acquires only": ("last", change("acq_rel", "acquire"), "acquire gpu, does not release it"),
    "counter that releases only": ("last", change("acq_rel", "release"), "does not acquire it"),
    "counted before it is stored": ("last", move("tt.atomic_rmw", 0, "tt.store", 0), "nothing behind the store says"),
    "flag raised by a plain store": (
        "pair",
        change(r"%\w+ = tt.atomic_rmw exch, acq_rel, gpu, (%\w+), (%\w+), .*", r"tt.store \1, \2 : !tt.ptr<i32>"),
        "raises the flag by a plain store",
    ),
    "flag awaited by a volatile load": (
        "pair",
        change(
            r"(%\w+) = tt.atomic_cas acq_rel, gpu, (%\w+), .*", r"\1 = tt.load \2 {isVolatile = true} : !tt.ptr<i32>"
        ),
        "a volatile load, does not acquire it",
    ),
    "barrier of the grid without one of the block": ("grid", BARRIER, "no barrier makes all threads"),
}


@pytest.mark.parametrize("bug", BROKEN)
def test_a_rule_that_is_broken_is_a_race_and_said_with_both_lines(bug: str) -> None:
    name, edit, said = BROKEN[bug]
    found = handed_on(edit(ttgir(name)))
    assert any(said in f.sentence and f.verdict is Verdict.RACE for f in found), found
    assert all(len(re.findall(r"at line \d+", f.sentence)) >= 2 for f in found)


def test_what_is_stored_and_loaded_in_different_memory_needs_no_flag() -> None:
    text = BARRIER(ttgir("last"))
    assert handed_on(text)
    assert handed_on(change(r"tt.addptr %part_ptr", "tt.addptr %x_ptr", 0)(text)) == []


def test_two_arguments_of_one_storage_are_the_same_memory() -> None:
    text = change(r"tt.addptr %part_ptr", "tt.addptr %out_ptr", 0)(BARRIER(ttgir("last")))
    assert handed_on(text) == []
    assert handed_on(text, MANY | {2: 1})


# who waits ------------------------------------------------------------------------------------------------------------


def test_blocks_that_take_turns_with_a_lock_all_end_however_few_are_resident() -> None:
    step = step_of("lock", 600, G=4)
    for resident in (1, 16, 1000):
        assert waited(ttgir("lock"), step, {2: 0}, resident) is None


def test_a_lock_that_is_never_given_back_hangs_where_two_blocks_share_it() -> None:
    text = remove("tt.atomic_rmw")(ttgir("lock"))
    assert waited(text, step_of("lock", 600, G=4), {2: 0}, 16) is Verdict.DEADLOCK
    assert waited(text, step_of("lock", 600, G=600), {2: 0}, 16) is None


def test_a_barrier_of_the_grid_hangs_when_not_all_blocks_are_resident() -> None:
    text, first = ttgir("grid"), {2: 0}
    assert waited(text, step_of("grid", 200), first, 132) is Verdict.DEADLOCK
    assert waited(text, step_of("grid", 100), first, 132) is Verdict.UNDECIDED  # nothing promises that they all are
    assert waited(text, step_of("grid", 100), first, 132, cooperative=True) is None


def test_a_flag_that_a_later_block_raises_rests_on_both_being_resident() -> None:
    assert waited(ttgir("pair"), step_of("pair", 64), {3: 0}, 132) is Verdict.UNDECIDED
    assert waited(ttgir("pair"), step_of("pair", 64), {3: 0}, 1) is Verdict.DEADLOCK
    earlier = change("arith.cmpi eq", "arith.cmpi ne")(ttgir("pair"))  # the first of two raises it
    assert waited(earlier, step_of("pair", 64), {3: 0}, 1) is None


def test_a_flag_that_nobody_raises_hangs_and_one_of_unknown_memory_is_undecided() -> None:
    text = remove("tt.atomic_rmw")(ttgir("pair"))
    assert waited(text, step_of("pair", 64), {3: 0}, 132) is Verdict.DEADLOCK
    assert waited(ttgir("pair"), step_of("pair", 64), {}, 132) is Verdict.UNDECIDED


def test_memory_begins_as_the_steps_before_leave_it() -> None:
    zeros = {"op": "aten.zeros.default", "args": [[8]], "kwargs": {}, "out": [tensor(2)]}
    twos = {"op": "aten.full.default", "args": [[8], 2], "kwargs": {}, "out": [tensor(3)]}
    steps = [
        zeros,
        twos,
        step_of("early", 4),
        {"op": "aten.zero_.default", "args": [tensor(3)], "kwargs": {}, "out": []},
    ]
    assert initial_memory.before(steps, 2) == {2: 0, 3: 2}
    assert initial_memory.before([*steps, step_of("grid", 4)], 5) == {3: 0}  # a kernel was given storage 2


# who starts early -----------------------------------------------------------------------------------------------------


def overlapping(*steps: dict[str, Any], edit: Edit = str, early: bool = True) -> list[Finding]:
    """What is found in a plan of launches of one kernel, which may start early."""
    module = reader.parse(edit(ttgir("early")))
    text = Text("early", module, Flow(module), early)
    return list(dependent_launch.rule({"steps": list(steps)}, {"early": text}))


def early(source: int, result: int) -> dict[str, Any]:
    return {
        "kernel": "early",
        "grid": [4, 1, 1],
        "signature": ["*fp32", "*fp32", "i32"],
        "args": [tensor(source), tensor(result), 128],
    }


WAIT = "tt.elementwise_inline_asm"
NO_WAIT, LATE = remove(WAIT), move(WAIT, 0, "tt.store", 0)


def test_a_launch_that_waits_for_those_before_it_is_in_order() -> None:
    assert overlapping(early(0, 1), early(1, 2), early(2, 3)) == []


@pytest.mark.parametrize("edit", [NO_WAIT, LATE])
def test_a_launch_that_reads_before_it_waits_is_a_race_with_who_wrote_it(edit: Edit) -> None:
    found = overlapping(early(0, 1), early(1, 2), edit=edit)
    assert Verdict.RACE in {f.verdict for f in found}
    assert overlapping(early(0, 1), early(1, 2), edit=edit, early=False) == []
    assert Verdict.RACE not in {f.verdict for f in overlapping(early(0, 1), early(4, 2), edit=edit)}


def test_a_launch_that_does_not_wait_hides_those_before_it() -> None:
    module = reader.parse(NO_WAIT(ttgir("early")))
    hasty, patient = Text("hasty", module, Flow(module), True), reader.parse(ttgir("early"))
    texts = {"early": Text("early", patient, Flow(patient), True), "hasty": hasty}
    between = early(5, 6) | {"kernel": "hasty"}
    found = list(dependent_launch.rule({"steps": [early(0, 1), between, early(1, 2)]}, texts))
    assert [f.verdict for f in found] == [Verdict.RACE]


def test_a_wait_in_a_branch_that_may_not_be_taken_is_none() -> None:
    branch = change(
        rf"^( *)(%\w+ = {WAIT} .*)\n",
        r"\1%maybe = arith.cmpi eq, %N, %N : i32\n\1scf.if %maybe {\n\1\2\n\1}\n",
    )
    assert overlapping(early(0, 1), early(1, 2), edit=branch)


def test_a_first_launch_that_does_not_wait_for_its_caller_is_undecided() -> None:
    assert [f.verdict for f in overlapping(early(0, 1), edit=NO_WAIT)] == [Verdict.UNDECIDED]
