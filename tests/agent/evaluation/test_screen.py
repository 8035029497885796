"""The reason of a failed build names its cause, also where the compiler itself gave up."""

import pytest
from pgo_agent.agent.evaluation import screen
from pgo_agent.sandbox.build.result import Failure
from pgo_agent.sandbox.gate.reason import FAILS

GAVE_UP = """as written: python: NVGPUToLLVMPass.cpp:461: std::string WGMMAOpPattern::getPtxAsm(ttn::WGMMAOp) const: \
Assertion `supported && "WGMMA type or shape is not supported"' failed.
module attributes {"ttg.num-warps" = 4 : i32} {
/box/in/x.ttgir:9:1: error: A signal was caught while processing the MLIR module:reproducer generated at `std::errs`
"""
REFUSED = "as written: error: out of shared memory: 294968 bytes, the device has 232448\nmore"


@pytest.mark.parametrize(("message", "named"), [(GAVE_UP, "WGMMA type or shape"), (REFUSED, "out of shared memory")])
def test_the_cause_is_in_the_reason(message: str, named: str) -> None:
    assert named in screen._first_line(message)


@pytest.mark.parametrize("case", ["HELD_OUT/odd", "HELD_OUT/"])
def test_a_launcher_that_failed_on_a_held_out_case_has_no_say_in_the_reason(case: str) -> None:
    said = screen._failed(Failure("raised", "ValueError: 0x6f6464", case=case))
    assert "6f6464" not in said.for_person() and said.for_model(["odd"]) == FAILS
