"""Which arguments a kernel writes and reads through, read off its TTGIR."""

import pytest
from pgo_agent.sandbox.ttgir import reader
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
    ],
    ids=["plainly", "behind an offset", "what another holds", "at a place that another says", "by an atomic",
         "in a loop", "in a loop that swaps them"],
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
