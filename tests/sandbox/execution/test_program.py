"""execution: kernels as TTIR and TTGIR, run on the CPU. Texts are as Triton prints them."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.memory import Memory
from pgo_agent.sandbox.execution.program import Program
from torch.testing import assert_close


def run(
    text: str, buffers: Mapping[str, Any], *scalars: Any, blocks: int = 1, order: Callable[[int], Iterable[int]] = range
) -> None:
    """Run a kernel whose parameters are pointers to these buffers, then scalars."""
    program = Program(text)
    places = [(n + 1) << 20 for n in range(len(buffers))]
    held = zip(places, buffers.items(), strict=True)
    memory = Memory([(at, b.view(-1).view(torch.uint8), name) for at, (name, b) in held])
    given = [torch.tensor(at) for at in places]
    values = [torch.tensor(s, dtype=torch.int32) for s in scalars]
    program.run(memory, (blocks, 1, 1), [*given, *values], order(blocks), time.monotonic() + 60)


def kernel(parameters: str, body: str, more: str = "") -> str:
    head = f"tt.func public @k({parameters}) attributes {{noinline = false}}"
    return f"module {{\n  {head} {{\n{body}\n    tt.return\n  }}\n{more}}}\n"


# numbers --------------------------------------------------------------------------------------------------------------


def python_of(name: str, a: int, b: int, bits: int) -> int:
    """What an operation on integers gives, by its definition."""
    whole = 1 << bits
    ua, ub = a % whole, b % whole
    toward_zero = abs(a) // abs(b) * (1 if a * b >= 0 else -1) if b else 0
    found = {
        "addi": a + b, "subi": a - b, "muli": a * b, "andi": a & b, "ori": a | b, "xori": a ^ b,
        "maxsi": max(a, b), "minsi": min(a, b), "maxui": max(ua, ub), "minui": min(ua, ub),
        "divsi": toward_zero, "remsi": a - toward_zero * b if b else 0,
        "divui": ua // ub if ub else 0, "remui": ua % ub if ub else 0,
        "shli": ua << ub if ub < bits else 0, "shrui": ua >> ub if ub < bits else 0, "shrsi": a >> min(ub, bits - 1),
    }[name]  # fmt: skip
    return (found + whole // 2) % whole - whole // 2


INTEGERS = (
    *("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui", "divsi", "remsi", "divui"),
    *("remui", "shli", "shrui", "shrsi"),
)


@pytest.mark.parametrize("bits", [8, 32, 64])
@given(data=st.data())
def test_integers_are_computed_with_as_many_bits_as_they_have(bits: int, data: st.DataObject) -> None:
    number = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    name, a, b = data.draw(st.sampled_from(INTEGERS)), data.draw(number), data.draw(number | st.integers(0, 9))
    if name in ("divsi", "remsi", "divui", "remui") and not b:
        return  # undefined
    kind = {8: torch.int8, 32: torch.int32, 64: torch.int64}[bits]
    out = torch.zeros(1, dtype=kind)
    body = f"""    %a = tt.load %A : !tt.ptr<i{bits}>
    %b = tt.load %B : !tt.ptr<i{bits}>
    %c = arith.{name} %a, %b : i{bits}
    tt.store %O, %c : !tt.ptr<i{bits}>"""
    text = kernel(", ".join(f"%{n}: !tt.ptr<i{bits}>" for n in "ABO"), body)
    run(text, {"a": torch.tensor([a], dtype=kind), "b": torch.tensor([b], dtype=kind), "o": out})
    assert int(out) == python_of(name, a, b, bits), (name, a, b)


@pytest.mark.parametrize(
    ("value", "whole"), [(2.9, 2), (-2.9, -2), (3e9, 2**31 - 1), (-3e9, -(2**31)), (float("nan"), 0)]
)
def test_floats_become_integers_toward_zero_and_stay_within_them(value: float, whole: int) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    body = """    %a = tt.load %A : !tt.ptr<f32>
    %c = arith.fptosi %a : f32 to i32
    tt.store %O, %c : !tt.ptr<i32>"""
    run(kernel("%A: !tt.ptr<f32>, %O: !tt.ptr<i32>", body), {"a": torch.tensor([value]), "o": out})
    assert int(out) == whole


# memory ---------------------------------------------------------------------------------------------------------------

LANES = """    %i = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
    %p = tt.splat %P : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
"""
COPY = (
    LANES
    + """    %q = tt.addptr %p, %i : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
    %x = tt.load %q : tensor<4x!tt.ptr<f32>>
    %o = tt.splat %O : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
    %r = tt.addptr %o, %i : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
    tt.store %r, %x : tensor<4x!tt.ptr<f32>>"""
)
TWO = "%P: !tt.ptr<f32>, %O: !tt.ptr<f32>"


def test_a_lane_outside_of_every_buffer_is_a_fault_and_nothing_is_touched() -> None:
    out = torch.zeros(4)
    with pytest.raises(KernelFault, match="reads 4 bytes past the end of x"):
        run(kernel(TWO, COPY), {"x": torch.ones(7)[:3].clone(), "o": out})
    assert not out.any()


def test_an_address_that_its_type_does_not_divide_is_a_fault() -> None:
    moved = COPY.replace("%x = tt.load %q", "%x = tt.load %h").replace(
        "    %x =", "    %n = tt.bitcast %q : tensor<4x!tt.ptr<f32>> -> tensor<4x!tt.ptr<i8>>\n"
        "    %one = arith.constant dense<1> : tensor<4xi32>\n"
        "    %m = tt.addptr %n, %one : tensor<4x!tt.ptr<i8>>, tensor<4xi32>\n"
        "    %h = tt.bitcast %m : tensor<4x!tt.ptr<i8>> -> tensor<4x!tt.ptr<f32>>\n    %x =")  # fmt: skip
    with pytest.raises(KernelFault, match="not a multiple of 4"):
        run(kernel(TWO, moved), {"x": torch.ones(8), "o": torch.zeros(4)})


@pytest.mark.parametrize("equal", [True, False])
def test_two_lanes_may_write_one_place_only_where_they_write_the_same(equal: bool) -> None:
    same = COPY.replace("tt.store %r, %x", "tt.store %o, %x")
    x, out = torch.ones(4) if equal else torch.arange(4.0), torch.zeros(1)
    if equal:
        run(kernel(TWO, same), {"x": x, "o": out})
        assert out.tolist() == [1.0]
        return
    with pytest.raises(KernelFault, match="different values to one place"):
        run(kernel(TWO, same), {"x": x, "o": out})


def test_atomics_of_lanes_to_one_place_add_up_and_each_gets_what_was_there() -> None:
    body = COPY.replace(
        "tt.store %r, %x : tensor<4x!tt.ptr<f32>>",
        "%t = arith.constant dense<true> : tensor<4xi1>\n    %w = tt.atomic_rmw fadd, acq_rel, gpu, %o, %x, %t : "
        "(tensor<4x!tt.ptr<f32>>, tensor<4xf32>, tensor<4xi1>) -> tensor<4xf32>\n"
        "    tt.store %q, %w : tensor<4x!tt.ptr<f32>>",
    )
    x, out = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.full((1,), 100.0)
    run(kernel(TWO, body), {"x": x, "o": out})
    assert (out.tolist(), x.tolist()) == ([115.0], [100.0, 101.0, 103.0, 107.0])


# control --------------------------------------------------------------------------------------------------------------

COUNTS = """    %one = arith.constant 1 : i32
    %zero = arith.constant 0 : i32
    %skip = arith.cmpi slt, %n, %zero : i32
    cf.cond_br %skip, ^bb1, ^bb2
  ^bb1:  // pred: ^bb0
    cf.br ^bb3(%n : i32)
  ^bb2:  // pred: ^bb0
    %sum = scf.for %i = %zero to %n step %one iter_args(%at = %zero) -> (i32)  : i32 {
      %odd = arith.andi %i, %one : i32
      %is = arith.cmpi eq, %odd, %one : i32
      %next = scf.if %is -> (i32) {
        %a = tt.call @twice(%i) : (i32) -> i32
        %b = arith.addi %at, %a : i32
        scf.yield %b : i32
      } else {
        scf.yield %at : i32
      }
      scf.yield %next : i32
    }
    %halved:2 = scf.while (%w = %sum, %c = %zero) : (i32, i32) -> (i32, i32) {
      %go = arith.cmpi sgt, %w, %one : i32
      scf.condition(%go) %w, %c : i32, i32
    } do {
    ^bb0(%w: i32, %c: i32):
      %h = arith.shrsi %w, %one : i32
      %m = arith.addi %c, %one : i32
      scf.yield %h, %m : i32, i32
    }
    cf.br ^bb3(%halved#1 : i32)
  ^bb3(%found: i32):  // 2 preds: ^bb1, ^bb2
    tt.store %O, %found : !tt.ptr<i32>"""
TWICE = """  tt.func private @twice(%x: i32) -> i32 attributes {noinline = true} {
    %y = arith.addi %x, %x : i32
    tt.return %y : i32
  }
"""


@pytest.mark.parametrize(("n", "found"), [(-3, -3), (0, 0), (10, 5)])
def test_loops_branches_calls_and_early_returns_go_where_they_should(n: int, found: int) -> None:
    out = torch.zeros(1, dtype=torch.int32)  # twice 1 + 3 + 5 + 7 + 9 is 50, which can be halved five times
    run(kernel("%O: !tt.ptr<i32>, %n: i32", COUNTS, TWICE), {"o": out}, n)
    assert int(out) == found


def test_blocks_run_in_the_order_that_is_asked_for() -> None:
    body = """    %p = tt.get_program_id x : i32
    tt.store %O, %p : !tt.ptr<i32>"""
    seen = []
    for order in (range, lambda n: reversed(range(n))):
        out = torch.zeros(1, dtype=torch.int32)
        run(kernel("%O: !tt.ptr<i32>", body), {"o": out}, blocks=5, order=order)
        seen.append(int(out))
    assert seen == [4, 0]


def test_a_loop_without_end_is_given_up_at_the_deadline() -> None:
    body = """    %true = arith.constant true
    scf.while : () -> () {
      scf.condition(%true)
    } do {
      scf.yield
    }"""
    with pytest.raises(NotModelled, match="ends in time"):
        Program(kernel("%O: !tt.ptr<i32>", body)).run(
            Memory([]), (1, 1, 1), [torch.tensor(0)], [0], time.monotonic() + 0.2
        )


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(NotModelled, match="inline assembly"):
        body = '    %x = tt.elementwise_inline_asm "nop;" {constraints = "=r", packed_element = 1 : i32} -> i32'
        run(kernel("%O: !tt.ptr<i32>", body), {"o": torch.zeros(1, dtype=torch.int32)})


def test_what_stands_in_a_string_is_no_part_of_a_constant() -> None:
    out = torch.zeros(1)
    body = """    %c = arith.constant {x = "} 1.0 : f32 loc("} 2.000000e+00 : f32
    tt.store %O, %c : !tt.ptr<f32>"""
    run(kernel("%O: !tt.ptr<f32>", body), {"o": out})
    assert out.tolist() == [2.0]


SUMS = """    %p = tt.get_program_id x : i32
    %q = tt.addptr %O, WHERE : !tt.ptr<i32>, i32
    %v = tt.load %q : !tt.ptr<i32>
    %w = arith.addi %v, %p : i32
    tt.store %q, %w : !tt.ptr<i32>"""


@pytest.mark.parametrize("order", [range, lambda n: reversed(range(n))])
def test_blocks_may_not_touch_what_another_one_writes(order: Callable[[int], Iterable[int]]) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    run(kernel("%O: !tt.ptr<i32>", SUMS.replace("WHERE", "%p")), {"o": out}, blocks=4, order=order)
    assert out.tolist() == [0, 1, 2, 3]
    with pytest.raises(KernelFault, match="another block of the same launch"):
        zero = "    %z = arith.constant 0 : i32\n"
        run(kernel("%O: !tt.ptr<i32>", zero + SUMS.replace("WHERE", "%z")), {"o": out}, blocks=4, order=order)


# whole tensors --------------------------------------------------------------------------------------------------------


def combined(op: str, more: str = "") -> str:
    """A kernel that reduces or scans four numbers by a function that is not associative: half of their sum."""
    gives = "f32" if op == "reduce" else "tensor<4xf32>"
    store = "tt.store %O, %s : !tt.ptr<f32>" if op == "reduce" else "tt.store %r, %s : tensor<4x!tt.ptr<f32>>"
    region = f""""tt.{op}"(%x) <{{axis = 0 : i32{more}}}> ({{
    ^bb0(%a: f32, %b: f32):
      %h = arith.constant 5.000000e-01 : f32
      %t = arith.addf %a, %b : f32
      %m = arith.mulf %t, %h : f32
      tt.{op}.return %m : f32
    }}) : (tensor<4xf32>) -> {gives}"""
    return kernel(TWO, COPY.replace("tt.store %r, %x : tensor<4x!tt.ptr<f32>>", f"%s = {region}\n    {store}"))


def test_a_reduction_that_is_not_associative_comes_out_in_another_order_than_the_interpreters() -> None:
    out = torch.zeros(1)
    run(combined("reduce"), {"x": torch.tensor([8.0, 0.0, 0.0, 0.0]), "o": out})
    assert float(out) == 2.0  # from the first to the last it would be 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_goes_along_its_axis_from_either_end(reverse: bool) -> None:
    x, out = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.zeros(4)
    text = combined("scan", f", reverse = {str(reverse).lower()}").replace(
        "%m = arith.mulf %t, %h", "%m = arith.addf %a, %b"
    )
    run(text, {"x": x, "o": out})
    assert_close(out, x.flip(0).cumsum(0).flip(0) if reverse else x.cumsum(0))


def test_a_block_of_a_descriptor_ends_where_its_tensor_does() -> None:
    body = """    %rows = arith.constant 3 : i32
    %columns = arith.constant 5 : i32
    %stride = arith.constant 5 : i64
    %one = arith.constant 1 : i64
    %two = arith.constant 2 : i32
    %from = tt.make_tensor_descriptor %P, [%rows, %columns], [%stride, %one] : !tt.ptr<f32>, !tt.tensordesc<2x4xf32>
    %to = tt.make_tensor_descriptor %O, [%rows, %columns], [%stride, %one] : !tt.ptr<f32>, !tt.tensordesc<2x4xf32>
    %x = tt.descriptor_load %from[%two, %two] : !tt.tensordesc<2x4xf32> -> tensor<2x4xf32>
    %h = arith.constant dense<1.000000e+00> : tensor<2x4xf32>
    %y = arith.addf %x, %h : tensor<2x4xf32>
    tt.descriptor_store %to[%two, %two], %y : !tt.tensordesc<2x4xf32>, tensor<2x4xf32>"""
    x, out = torch.arange(15.0).reshape(3, 5), torch.zeros(3, 5)
    run(kernel(TWO, body), {"x": x, "o": out})
    expected = torch.zeros(3, 5)
    expected[2, 2:] = x[2, 2:] + 1
    assert_close(out, expected)


# promises to the compiler ---------------------------------------------------------------------------------------------


def test_an_argument_that_the_code_takes_for_a_multiple_must_be_one() -> None:
    text = kernel("%O: !tt.ptr<i32>, %n: i32 {tt.divisibility = 16 : i32}", "")
    run(text, {"o": torch.zeros(1)}, 32)
    with pytest.raises(KernelFault, match="an argument that 16 divides"):
        run(text, {"o": torch.zeros(1)}, 40)


def test_what_a_kernel_assumes_must_be_so() -> None:
    body = """    %c4 = arith.constant 4 : i32
    %c = arith.cmpi sgt, %n, %c4 : i32
    llvm.intr.assume %c : i1"""
    run(kernel("%O: !tt.ptr<i32>, %n: i32", body), {"o": torch.zeros(1)}, 5)
    with pytest.raises(KernelFault, match="assumes what is not so"):
        run(kernel("%O: !tt.ptr<i32>, %n: i32", body), {"o": torch.zeros(1)}, 4)
