"""How far the simulator's runs go into loops, and what it says where they do not; and what ends with an allocation."""

import re
from collections.abc import Callable

import pytest
from pgo_agent.sandbox.gate.barriers import launches, runs
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind, from_json
from pgo_agent.sandbox.gate.barriers.launches import LaunchFacts
from pgo_agent.sandbox.ttgir import reader

from tests.sandbox.gate.barriers.test_program import MODULE, ONE, TWO, accepted
from tests.sandbox.line_edits import INVAL, Edit, change, remove

LOOP = """%times = {times}
    scf.for %i = %c0 to %times step %c1 : i32 {{
      %odd = arith.andi %i, {parity} : i32
      ttng.arrive_barrier %x, 1 : {ONE}
      ttng.wait_barrier %x, %odd : {ONE}
    }}"""


def kernel(
    times: str = "arith.addi %n, %c0 : i32", argument: str = "%n: i32", parity: str = "%c1", before: str = ""
) -> str:
    """A loop that runs so often; with the parity %c0 its second turn goes wrong."""
    body = before + LOOP.format(times=times, parity=parity, ONE=ONE)
    text = MODULE.format(body=body, functions="", count=1, ctas=1, ONE=ONE, TWO=TWO).replace("%n: i32", argument)
    assert accepted(text)
    return text


def launched(text: str, n: int, secret: bool = False) -> Finding:
    """What is found with a launch in which the first argument is that."""
    module = reader.parse(text)
    step = {"signature": ["i32", "*i32", "*i32", "i1"], "args": [n, None, None, True], "grid": [1, 1, 1]}
    known = launches.settled_by(step, module)
    assert known is not None
    return runs.launched(module, runs.simulate(module), [LaunchFacts(known, secret)])


def test_a_launch_whose_blocks_loop_too_long_is_followed_with_more_of_them() -> None:
    right, wrong = (
        kernel("arith.divsi %n, %all : i32", parity=p, before="%all = tt.get_num_programs x : i32\n    ")
        for p in ("%c1", "%c0")
    )
    found = launched(right, 1_000_000)
    assert found.kind is Kind.NONE and not found.coverage.skipped, found.coverage
    assert launched(wrong, 1_000_000).found


@pytest.mark.parametrize("step", [16, 64])
def test_a_loop_whose_count_must_divide_by_a_number_is_entered(step: int) -> None:
    divisible = f"%n: i32 {{tt.divisibility = {step} : i32}}"
    found = runs.read_and_simulate(kernel(argument=divisible))
    assert found.kind is Kind.NONE
    assert found.coverage.counts["loop iterations"].ran == step
    assert runs.read_and_simulate(kernel(argument=divisible, parity="%c0")).found


def test_a_loop_whose_count_is_derived_from_others_is_entered() -> None:
    for times in ("arith.muli %n, %n : i32", "arith.divsi %n, %c2 : i32"):
        assert runs.read_and_simulate(kernel(times)).kind is Kind.NONE
        assert runs.read_and_simulate(kernel(times, parity="%c0")).found, times


def test_a_loop_that_no_run_goes_around_is_undecided_with_its_line_and_a_launch_of_a_case_settles_it() -> None:
    text = kernel("arith.remui %n, %c2 : i32", parity="%c0")
    found = runs.read_and_simulate(text)
    assert found.kind is Kind.UNDECIDED
    said = r"the loop at line \d+ was entered at most 1 time in all runs, and its ring has 2 slots: .* follows from n"
    assert re.fullmatch(said, found.sentence)
    assert launched(text, 3).kind is Kind.NONE  # once is how often it runs
    assert launched(text, 4).kind is Kind.NONE  # not at all, where another run went into it


def test_a_loop_that_nothing_enters_is_undecided_whatever_is_launched() -> None:
    text = kernel("arith.subi %n, %n : i32", parity="%c0")
    assert runs.read_and_simulate(text).kind is Kind.UNDECIDED
    found = launched(text, 3)
    assert found.kind is Kind.UNDECIDED and "was entered never" in found.sentence


def test_a_count_that_the_text_fixes_needs_no_more_iterations_than_it_has() -> None:
    assert runs.read_and_simulate(kernel("arith.addi %c1, %c0 : i32")).kind is Kind.NONE


def test_the_arguments_of_a_launch_are_simulated_and_those_of_a_held_out_case_are_told_to_nobody() -> None:
    one_square = """%square = arith.constant 1002001 : i32
    %of = arith.muli %n, %n : i32
    %is = arith.cmpi eq, %of, %square : i32
    %times = arith.select %is, %c2, %c1 : i32"""
    text = kernel("arith.addi %n, %c0 : i32", parity="%c0").replace("%times = arith.addi %n, %c0 : i32", one_square)
    assert not runs.read_and_simulate(text).found
    told, secret = launched(text, 1001), launched(text, 1001, secret=True)
    assert told.found and secret.found
    assert any("n = 1001" in line for line in told.trace)
    assert "1001" not in " ".join((secret.sentence, *secret.trace))


def test_a_finding_is_the_same_after_json() -> None:
    found = runs.read_and_simulate(kernel())
    assert from_json(found.as_json()) == found


def test_a_ring_of_one_dimensional_tiles_is_gone_around() -> None:
    ring, slot = "!ttg.memdesc<4x128xi32, #shared, #smem, mutable>", "!ttg.memdesc<128xi32, #shared, #smem, mutable>"
    body = f"""%m = ttg.local_alloc : () -> {ring}
    %from = tt.splat %p : !tt.ptr<i32> -> tensor<128x!tt.ptr<i32>, #blocked>
    scf.for %i = %c0 to %n step %c1 : i32 {{
      %at = arith.remui %i, %c4 : i32
      %s = ttg.memdesc_index %m[%at] : {ring} -> {slot}
      %t = ttg.async_copy_global_to_local %from, %s : tensor<128x!tt.ptr<i32>, #blocked> -> {slot[12:]}
      %g = ttg.async_commit_group tokens %t
      %w = ttg.async_wait {{num = 3 : i32}}
    }}"""
    text = MODULE.format(body=f"%c4 = arith.constant 4 : i32\n {body}", functions="", count=1, ctas=1, ONE=ONE, TWO=TWO)
    assert accepted(text)
    found = runs.read_and_simulate(text)
    assert found.kind is Kind.NONE
    assert max(seen.most for seen in found.loops.values()) == 9


ENDS: dict[str, tuple[str, Edit, str]] = {
    "TMA store without a fence": ("gemm", remove("ttng.fence_async_shared"), "may not see what the store at"),
    "TMA store in a loop without a fence": (
        "persistent_flattened",
        remove("ttng.fence_async_shared", -1),
        "no fence stands between",
    ),
    "TMA store not awaited": ("gemm", remove("ttng.async_tma_store_wait"), "nobody waits for the TMA store"),
    "TMA store overwritten": (
        "persistent_flattened",
        change(r"(async_tma_store_wait \{pendings = )0", r"\g<1>1", -2),
        "while the TMA store at",
    ),
    "barrier given back": ("gemm", remove(INVAL, 1), "which was not invalidated"),
    "copies under way when their memory is given back": ("cp_async", remove("ttg.async_wait", -1), "dealloc at"),
}


@pytest.mark.parametrize("bug", ENDS)
def test_what_is_left_open_at_the_end_of_an_allocation_or_a_kernel_is_found(
    bug: str, ttgir: Callable[[str], str]
) -> None:
    name, edit, said = ENDS[bug]
    found = runs.read_and_simulate(edit(ttgir(name)))
    assert found.kind in (Kind.MEMORY, Kind.GROUPS, Kind.LIFETIME), found
    assert said in found.sentence
