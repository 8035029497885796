"""Kernels whose programs hand something on to one another: the interpreter's order of them proves nothing."""

import pytest
from pgo_agent.sandbox.gate.program_order import handing_on

TEXT = """module {{
  tt.func public @k(%arg0: !tt.ptr<f32>, %arg1: f32, %arg2: !tt.ptr<i32>, %arg3: i32) {{
    {}
    tt.return
  }}
}}
"""
ADDED = "%0 = tt.atomic_rmw fadd, acq_rel, gpu, %arg0, %arg1 : (!tt.ptr<f32>, f32) -> f32"
HANDED_ON = {
    "a lock": "%0 = tt.atomic_cas acquire, gpu, %arg2, %arg3, %arg3 : (!tt.ptr<i32>, i32, i32) -> i32",
    "a flag": "%0 = tt.atomic_rmw exch, release, gpu, %arg2, %arg3 : (!tt.ptr<i32>, i32) -> i32",
    "a count that is used": f"{ADDED}\n    %1 = arith.addf %0, %arg1 : f32",
}


@pytest.mark.parametrize("what", HANDED_ON)
def test_is_handed_on(what: str) -> None:
    assert "hand on values or locks (tt.atomic_" in handing_on(
        [TEXT.format("%9 = arith.addf %arg1, %arg1 : f32"), TEXT.format(HANDED_ON[what])]
    )


@pytest.mark.parametrize("ops", [ADDED, "tt.store %arg0, %arg1 : !tt.ptr<f32>"])
def test_programs_that_only_add_and_store_hand_nothing_on(ops: str) -> None:
    assert handing_on([TEXT.format(ops)]) == ""


def test_what_cannot_be_read_is_said() -> None:
    assert "cannot be read" in handing_on(["no module, with a tt.atomic_rmw in it"])
