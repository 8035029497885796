"""The reason of a failed build names its cause, also where the compiler itself gave up."""

import pytest
from pgo_agent.agent.evaluation import screen

GAVE_UP = """as written: python: NVGPUToLLVMPass.cpp:461: std::string WGMMAOpPattern::getPtxAsm(ttn::WGMMAOp) const: \
Assertion `supported && "WGMMA type or shape is not supported"' failed.
module attributes {"ttg.num-warps" = 4 : i32} {
/box/in/x.ttgir:9:1: error: A signal was caught while processing the MLIR module:reproducer generated at `std::errs`
"""
REFUSED = "as written: error: out of shared memory: 294968 bytes, the device has 232448\nmore"


@pytest.mark.parametrize(("message", "named"), [(GAVE_UP, "WGMMA type or shape"), (REFUSED, "out of shared memory")])
def test_the_cause_is_in_the_reason(message: str, named: str) -> None:
    assert named in screen._first_line(message)
