"""The gate's stage for 32-bit offsets: what overflows at a case's own size is found, and nothing honest is."""

from dataclasses import replace

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import offsets
from pgo_agent.sandbox.gate.evidence import Side, side
from pgo_agent.sandbox.gate.reason import FAILS
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

TARGET = """
import torch, triton
import triton.language as tl


@triton.jit
def rows(X, Y, stride, N, M, DO: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if DO == "wide":
        row = row.to(tl.int64)
    if DO == "in a loop":
        for k in range(0, N, BLOCK):
            i = row * stride + k + tl.arange(0, BLOCK)
            tl.store(Y + i, tl.load(X + i, mask=k + tl.arange(0, BLOCK) < N), mask=k + tl.arange(0, BLOCK) < N)
        return
    i = row * stride + tl.arange(0, BLOCK)
    keep = tl.arange(0, BLOCK) < N
    if DO == "overflows in lanes that are masked off":
        i, keep = row * 2 * stride + tl.arange(0, BLOCK), keep & (row * 4 < M)
    if DO == "hides it by its own mask":
        keep = keep & (i >= 0)
    if DO == "cuts it":
        i = (row.to(tl.int64) * stride + tl.arange(0, BLOCK)).to(tl.int32)
    if DO == "a hash":
        i = ((row * 2654435 + tl.arange(0, BLOCK)) * 40503) & 1023
    tl.store(Y + i, tl.load(X + i, mask=keep), mask=keep)


def kernel(do, x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, y, x.stride(0), x.shape[1], x.shape[0], DO=do, BLOCK=1024)
    return y


def reference(do, x):
    return x


def inputs(case, generator):
    return {"do": case["do"], "x": torch.empty(1 << 18, 10000, device=generator.device, dtype=torch.float16)}


NAMES = ("wide", "narrow", "in a loop", "overflows in lanes that are masked off", "hides it by its own mask", "cuts it",
         "a hash")
CASES = {n: dict(do=n) for n in NAMES}
SMALL, HELD_OUT = {"s": dict(do="wide")}, {"h": dict(do="narrow")}


def flops(case):
    return 1


def bytes_moved(case):
    return 1
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Side:
    path = tmp_path_factory.mktemp("offsets") / "rows.py"
    path.write_text(TARGET)
    found, contents = target.read(path), ContentStore(path.parent / "shelf")
    made = Builder(found, devices.find("h200"), box.choose(), contents).build(
        found.source, {"CASES": None, "HELD_OUT": None}, 1
    )
    assert made.ok, made.failures
    return side(contents, contents.manifest(made.bundle))


def only(built: Side, case: str) -> Side:
    return replace(built, plans={case: built.plans[case]})


@pytest.mark.parametrize("case", ["narrow", "in a loop", "hides it by its own mask", "cuts it"])
def test_an_offset_that_overflows_at_a_cases_size_is_wrong_with_its_numbers(built: Side, case: str) -> None:
    found = offsets.stage(only(built, f"CASES/{case}"), only(built, "CASES/wide"))
    assert found.verdict == Verdict.WRONG, found.reason
    last = ((1 << 18) - 1) * 10000
    assert f"block (262143, 0, 0) means element {last} and gets {last - (1 << 32)}" in found.reason


@pytest.mark.parametrize("case", ["wide", "overflows in lanes that are masked off", "a hash"])
def test_what_never_reaches_memory_is_no_overflow(built: Side, case: str) -> None:
    found = offsets.stage(only(built, f"CASES/{case}"), only(built, "CASES/wide"))
    assert found.verdict is None, found.reason
    assert found.coverage.counts["accesses"].whole and found.coverage.counts["accesses"].ran


def test_what_the_original_overflows_in_is_told_and_refuses_nothing(built: Side) -> None:
    found = offsets.stage(only(built, "CASES/in a loop"), only(built, "CASES/narrow"))
    assert found.verdict is None and "overflows as the original does" in found.reason


def test_numbers_of_a_held_out_case_are_not_told(built: Side) -> None:
    found = offsets.stage(only(built, "HELD_OUT/h"), only(built, "CASES/wide"))
    assert found.verdict == Verdict.WRONG
    assert "262143" not in found.reason and "a held-out case" in found.reason and found.why.for_model(["h"]) == FAILS
