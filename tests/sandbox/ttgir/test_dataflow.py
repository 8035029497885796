"""Which arguments a kernel writes and reads through, read off its TTGIR."""

import pytest
from pgo_agent.sandbox.ttgir import argument_uses, reader
from pgo_agent.sandbox.ttgir.dataflow import Flow

HEAD = """module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32} {
  tt.func public @k(%a: !tt.ptr<f32>, %n: i32, %b: !tt.ptr<f32>, %c: !tt.ptr<i32>) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %f = arith.constant 1.0 : f32
"""
LOOP = (
    "    %p:2 = scf.for %i = %c0 to %n step %c1 iter_args(%x = %a, %y = %b) -> (!tt.ptr<f32>, !tt.ptr<f32>)  : i32 {\n"
)
TAIL = """    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("    tt.store %b, %f : !tt.ptr<f32>\n", {1}),
        ("    %p = tt.addptr %a, %n : !tt.ptr<f32>, i32\n    tt.store %p, %f : !tt.ptr<f32>\n", {0}),
        ("    %v = tt.load %a : !tt.ptr<f32>\n    tt.store %b, %v : !tt.ptr<f32>\n", {1}),
        ("    %i = tt.load %c : !tt.ptr<i32>\n    %p = tt.addptr %b, %i : !tt.ptr<f32>, i32\n"
         "    tt.store %p, %f : !tt.ptr<f32>\n", {1}),
        ("    %o = tt.atomic_rmw add, acq_rel, gpu, %c, %c1 : (!tt.ptr<i32>, i32) -> i32\n", {2}),
        (LOOP +
         "      %v = tt.load %x : !tt.ptr<f32>\n"
         "      tt.store %y, %v : !tt.ptr<f32>\n"
         "      %x2 = tt.addptr %x, %c1 : !tt.ptr<f32>, i32\n"
         "      %y2 = tt.addptr %y, %c1 : !tt.ptr<f32>, i32\n"
         "      scf.yield %x2, %y2 : !tt.ptr<f32>, !tt.ptr<f32>\n"
         "    }\n", {1}),
        (LOOP +
         "      tt.store %x, %f : !tt.ptr<f32>\n"
         "      scf.yield %y, %x : !tt.ptr<f32>, !tt.ptr<f32>\n"
         "    }\n", {0, 1}),
        ("    %i = tt.load %c : !tt.ptr<i32>\n    %p = tt.int_to_ptr %i : i32 -> !tt.ptr<f32>\n"
         "    %q = tt.addptr %p, %n : !tt.ptr<f32>, i32\n    tt.store %q, %f : !tt.ptr<f32>\n", {0, 1, 2}),
        ("    %p = tt.int_to_ptr %n : i32 -> !tt.ptr<f32>\n    tt.store %p, %f : !tt.ptr<f32>\n", {0, 1, 2}),
    ],
    ids=["plainly", "behind an offset", "what another holds", "at a place that another says", "by an atomic",
         "in a loop", "in a loop that swaps them", "at an address from memory", "at an address that is an argument"],
)  # fmt: skip
def test_a_kernel_writes_through_an_argument(body: str, wanted: set[int]) -> None:
    assert set(Flow(reader.parse(HEAD + body + TAIL)).stored) == wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("    tt.store %a, %f : !tt.ptr<f32>\n", set()),
        ("    %v = tt.load %a : !tt.ptr<f32>\n    tt.store %b, %v : !tt.ptr<f32>\n", {0}),
        ("    %o = tt.atomic_rmw add, acq_rel, gpu, %c, %c1 : (!tt.ptr<i32>, i32) -> i32\n", {2}),
        (LOOP +
         "      %v = tt.load %x : !tt.ptr<f32>\n"
         "      scf.yield %y, %x : !tt.ptr<f32>, !tt.ptr<f32>\n"
         "    }\n", set()),
    ],
    ids=["that it only writes", "plainly", "by an atomic", "and not where it may be another one"],
)  # fmt: skip
def test_a_kernel_surely_reads_through_an_argument(body: str, wanted: set[int]) -> None:
    assert set(Flow(reader.parse(HEAD + body + TAIL)).loaded) == wanted


LOCK = """    scf.while : () -> () {
      %o = tt.atomic_cas acq_rel, gpu, %c, %c0, %c1 : (!tt.ptr<i32>, i32, i32) -> i32
      %w = arith.cmpi eq, %o, %c1 : i32
      scf.condition(%w)
    } do {
      scf.yield
    }
"""
ADDED = """    %v = tt.load %b : !tt.ptr<f32>
    %s = arith.addf %v, %f : f32
    tt.store %b, %s : !tt.ptr<f32>
"""


@pytest.mark.parametrize(
    ("body", "unordered"),
    [
        (ADDED, False),
        (LOCK + ADDED, True),
        (LOCK + ADDED.replace("tt.store %b", "tt.store %a"), False),
        ("    %o = tt.atomic_rmw fadd, acq_rel, gpu, %a, %f : (!tt.ptr<f32>, f32) -> f32\n", True),
        ("    %o = tt.atomic_rmw add, acq_rel, gpu, %c, %c1 : (!tt.ptr<i32>, i32) -> i32\n", False),
    ],
    ids=["by one block", "under a lock", "from one place to another", "by atomics", "whole numbers"],
)
def test_blocks_add_floats_to_memory_in_any_order(body: str, unordered: bool) -> None:
    found = argument_uses.of(HEAD + body + TAIL, ["a", "b", "c"])
    assert found is not None and found.unordered == unordered


def test_a_store_at_an_address_from_memory_is_told_apart_from_stores_through_arguments() -> None:
    body = (
        "    %i = tt.load %c : !tt.ptr<i32>\n    %p = tt.int_to_ptr %i : i32 -> !tt.ptr<f32>\n"
        "    tt.store %p, %f : !tt.ptr<f32>\n    tt.store %b, %f : !tt.ptr<f32>\n"
    )
    uses = argument_uses.of(HEAD + body + TAIL, ["a", "b", "c"])
    assert uses is not None
    assert (uses.stored, uses.behind) == (("b",), True)
