"""execution: shared memory, asynchronous copies, mbarriers and partitions of warps, in TTGIR as Triton prints it."""

import time
from typing import Any

import pytest
import torch
from pgo_agent.sandbox.execution.errors import KernelFault, NotModelled
from pgo_agent.sandbox.execution.memory import Memory
from pgo_agent.sandbox.execution.program import Program
from torch.testing import assert_close

BUFFER = "!ttg.memdesc<2x4xf32, #shared, #smem, mutable>"
PLACE = "!ttg.memdesc<4xf32, #shared, #smem, mutable>"
BARRIER = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
BEGIN = f"""    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %true = arith.constant true
    %i = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<4xi32, #blocked>
    %p = tt.splat %P : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>, #blocked>
    %q = tt.addptr %p, %i : tensor<4x!tt.ptr<f32>, #blocked>, tensor<4xi32, #blocked>
    %o = tt.splat %O : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>, #blocked>
    %r = tt.addptr %o, %i : tensor<4x!tt.ptr<f32>, #blocked>, tensor<4xi32, #blocked>
    %ring = ttg.local_alloc : () -> {BUFFER}
"""


def run(body: str, x: Any, out: Any, seconds: float = 60.0, early: bool = False) -> None:
    text = f"""module attributes {{"ttg.num-warps" = 4 : i32}} {{
  tt.func public @k(%P: !tt.ptr<f32>, %O: !tt.ptr<f32>) attributes {{noinline = false}} {{
{BEGIN}{body}    tt.return
  }}
}}
"""
    held = [(1 << 20, x.view(-1).view(torch.uint8), "x"), (2 << 20, out.view(-1).view(torch.uint8), "out")]
    given = [torch.tensor(1 << 20), torch.tensor(2 << 20)]
    Program(text).run(Memory(held), (1, 1, 1), given, [0], time.monotonic() + seconds, early)


def place(name: str, index: str) -> str:
    return f"    {name} = ttg.memdesc_index %ring[{index}] : {BUFFER} -> {PLACE}\n"


LOADED = f"""    %v = ttg.local_load %b token %w : {PLACE} -> tensor<4xf32, #blocked>
    tt.store %r, %v : tensor<4x!tt.ptr<f32>, #blocked>
"""


def test_an_asynchronous_copy_comes_to_its_place_and_masked_lanes_are_zero_there() -> None:
    body = (
        place("%b", "%one")
        + f"""    %three = arith.constant dense<3> : tensor<4xi32, #blocked>
    %m = arith.cmpi slt, %i, %three : tensor<4xi32, #blocked>
    %c = ttg.async_copy_global_to_local %q, %b mask %m : tensor<4x!tt.ptr<f32>, #blocked> -> <4xf32, #shared, #smem>
    %g = ttg.async_commit_group tokens %c
    %w = ttg.async_wait %g {{num = 0 : i32}}
{LOADED}"""
    )
    x, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.ones(4)
    run(body, x, out)
    assert_close(out, torch.tensor([1.0, 2.0, 3.0, 0.0]))


def test_shared_memory_that_nothing_wrote_is_not_a_number() -> None:
    out = torch.zeros(4)
    run(place("%b", "%zero") + "    %w = ttg.async_wait {num = 0 : i32}\n" + LOADED, torch.ones(4), out)
    assert bool(out.isnan().all())


def test_a_place_outside_of_a_ring_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="place 2 of a ring of 2"):
        run(
            place("%b", "%two").replace("    %b", "    %two = arith.constant 2 : i32\n    %b"),
            torch.ones(4),
            torch.zeros(4),
        )


def partitions(signals: str, phase: str = "%z") -> str:
    """One partition stores x to shared memory and signals; the default one waits for that, and gives it on."""
    return (
        place("%b", "%zero")
        + f"""    %bar = ttg.local_alloc : () -> {BARRIER}
    ttng.init_barrier %bar, 1 : {BARRIER}
    ttg.warp_specialize(%q, %b, %bar) attributes {{requestedRegisters = array<i32: 24>}}
    default {{
      %z = arith.constant 0 : i32
      %t = arith.constant true
      ttng.wait_barrier %bar, {phase}, %t : {BARRIER}
      %v = ttg.local_load %b : {PLACE} -> tensor<4xf32, #blocked>
      tt.store %r, %v : tensor<4x!tt.ptr<f32>, #blocked>
      ttg.warp_yield
    }}
    partition0(%a0: tensor<4x!tt.ptr<f32>, #blocked>, %a1: {PLACE}, %a2: {BARRIER}) num_warps(1) {{
      %t2 = arith.constant true
      %x = tt.load %a0 : tensor<4x!tt.ptr<f32>, #blocked>
      ttg.local_store %x, %a1 : tensor<4xf32, #blocked> -> {PLACE}
      {signals}
      ttg.warp_return
    }} : (tensor<4x!tt.ptr<f32>, #blocked>, {PLACE}, {BARRIER}) -> ()
"""
    )


def test_a_partition_waits_for_what_another_signals() -> None:
    x, out = torch.arange(4.0), torch.full((4,), 9.0)
    run(partitions(f"ttng.arrive_barrier %a2, 1, %t2 : {BARRIER}"), x, out)
    assert_close(out, x)


def test_a_wait_that_nobody_can_end_is_a_fault_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(KernelFault, match="nobody can end"):
        run(partitions(""), torch.ones(4), torch.zeros(4))
    assert time.monotonic() - began < 10


def test_a_partition_without_end_is_given_up_at_the_deadline() -> None:
    forever = "scf.while : () -> () {\n        scf.condition(%t2)\n      } do {\n        scf.yield\n      }"
    with pytest.raises(NotModelled, match="ends in time"):
        run(partitions(forever), torch.ones(4), torch.zeros(4), seconds=0.3)


def test_a_tma_load_ends_the_phase_that_expects_its_bytes() -> None:
    described = "!tt.tensordesc<tensor<4xf32, #shared>>"
    body = (
        place("%b", "%zero")
        + f"""    %bar = ttg.local_alloc : () -> {BARRIER}
    ttng.init_barrier %bar, 1 : {BARRIER}
    %n = arith.constant 3 : i32
    %s = arith.constant 1 : i64
    %d = tt.make_tensor_descriptor %P, [%n], [%s] : !tt.ptr<f32>, {described}
    ttng.barrier_expect %bar, 16, %true : {BARRIER}
    ttng.async_tma_copy_global_to_local %d[%one] %b, %bar, %true : {described}, {BARRIER} -> {PLACE}
    ttng.wait_barrier %bar, %zero, %true : {BARRIER}
    %w = ttg.async_wait {{num = 0 : i32}}
{LOADED}"""
    )
    x, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.full((4,), 9.0)
    run(body, x, out)
    assert_close(out, torch.tensor([2.0, 3.0, 0.0, 0.0]))
    with pytest.raises(KernelFault, match="nobody can end"):
        run(body.replace("%bar, 16, %true", "%bar, 32, %true"), x, out)


def test_a_copy_that_nothing_waits_for_does_not_come() -> None:
    copied = (
        place("%b", "%one")
        + """    %c = ttg.async_copy_global_to_local %q, %b : tensor<4x!tt.ptr<f32>, #blocked> -> <4xf32, #shared>
    %g = ttg.async_commit_group tokens %c
    %w = ttg.async_wait %g {num = PENDING : i32}
"""
        + LOADED
    )
    x, out = torch.ones(4), torch.zeros(4)
    run(copied.replace("PENDING", "0"), x, out)
    assert_close(out, x)
    run(copied.replace("PENDING", "1"), x, out)
    assert bool(out.isnan().all())


A, B = (f"!ttg.memdesc<{n}x16xf16, #shared, #smem, mutable>" for n in (64, 16))
ACC, ROWS = "tensor<64x16xf32, #mma>", "tensor<64xf32, #ttg.slice<{dim = 1, parent = #mma}>>"
LARGEST = """({
    ^bb0(%a: f32, %b: f32):
      %m = arith.maxnumf %a, %b : f32
      tt.reduce.return %m : f32
    })"""
DOT = f"""    %h = arith.constant dense<1.000000e+00> : tensor<64x16xf16, #blocked>
    %k = arith.constant dense<2.000000e+00> : tensor<16x16xf16, #blocked>
    %acc = arith.constant dense<0.000000e+00> : {ACC}
    %sa = ttg.local_alloc %h : (tensor<64x16xf16, #blocked>) -> {A}
    %sb = ttg.local_alloc %k : (tensor<16x16xf16, #blocked>) -> {B}
    %d = ttng.warp_group_dot %sa, %sb, %acc {{inputPrecision = 0 : i32, isAsync = true}} : {A} * {B} -> {ACC}
    OVERWRITES
    %e = ttng.warp_group_dot_wait %d {{pendings = PENDING : i32}} : {ACC}
    %f = arith.addf %e, %e : {ACC}
    %rows = "tt.reduce"(%f) <{{axis = 1 : i32}}> {LARGEST} : ({ACC}) -> {ROWS}
    %s = "tt.reduce"(%rows) <{{axis = 0 : i32}}> {LARGEST} : ({ROWS}) -> f32
    tt.store %O, %s : !tt.ptr<f32>
"""
OVERWRITTEN = f"ttg.local_store %h, %sa : tensor<64x16xf16, #blocked> -> {A}"


def test_a_dot_has_its_value_once_it_is_waited_for_and_reads_its_operands_until_then() -> None:
    out = torch.zeros(1)
    text = DOT.replace("PENDING", "0")
    run(text.replace("OVERWRITES", ""), torch.ones(1), out)
    assert float(out) == 64.0
    doubled = "%h2 = arith.addf %h, %h : tensor<64x16xf16, #blocked>\n    " + OVERWRITTEN.replace("%h,", "%h2,")
    run(text.replace("OVERWRITES", doubled), torch.ones(1), out)
    assert float(out) == 128.0


def test_a_dot_that_nothing_waited_for_may_not_be_used() -> None:
    with pytest.raises(KernelFault, match="a dot that nothing waited for"):
        run(DOT.replace("OVERWRITES", "").replace("PENDING", "1"), torch.ones(1), torch.zeros(1))


FREES = DOT.replace("    %d = ", f"""    %bar = ttg.local_alloc : () -> {BARRIER}
    ttng.init_barrier %bar, 1 : {BARRIER}
    ttg.warp_specialize(%sa, %h, %bar) attributes {{requestedRegisters = array<i32: 24>}}
    default {{
      %t = arith.constant true
      %d = """).replace("    OVERWRITES\n", f"    ttng.arrive_barrier %bar, 1, %t : {BARRIER}\n").replace(
    "    tt.store %O, %s : !tt.ptr<f32>\n", f"""    tt.store %O, %s : !tt.ptr<f32>
      ttg.warp_yield
    }}
    partition0(%b0: {A}, %b1: tensor<64x16xf16, #blocked>, %b2: {BARRIER}) num_warps(4) {{
      %z = arith.constant 0 : i32
      %t2 = arith.constant true
      ttng.wait_barrier %b2, %z, %t2 : {BARRIER}
      %h2 = arith.addf %b1, %b1 : tensor<64x16xf16, #blocked>
      ttg.local_store %h2, %b0 : tensor<64x16xf16, #blocked> -> {A}
      ttg.warp_return
    }} : ({A}, tensor<64x16xf16, #blocked>, {BARRIER}) -> ()
"""
)  # fmt: skip


def test_a_buffer_that_is_given_back_before_its_dot_is_waited_for_shows_in_an_early_run() -> None:
    out = torch.zeros(1)
    text = FREES.replace("PENDING", "0")
    run(text, torch.ones(1), out, early=True)
    assert float(out) == 128.0  # the other partition has doubled an operand meanwhile
    arrives = f"    ttng.arrive_barrier %bar, 1, %t : {BARRIER}\n"
    right = text.replace(arrives, "").replace("    %f = arith.addf", f"{arrives}    %f = arith.addf")
    for early in (False, True):
        run(right, torch.ones(1), out, early=early)
        assert float(out) == 64.0
