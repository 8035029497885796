"""Launchers that do something else when they are called again. Real launchers, traced and built; no GPU."""

from pathlib import Path

import pytest
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.gate import plan_rules
from pgo_agent.sandbox.gate.evidence import Evidence, side
from pgo_agent.sandbox.gate.reason import FAILS
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.sandbox.gate.test_plan_rules import Workshop

TARGET = """
import functools
import random
import torch
import triton
import triton.language as tl

KEPT = {}


@triton.jit
def _double(x, z, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@functools.lru_cache
def blocks(n):
    KEPT.setdefault("asked", []).append(n)
    return triton.cdiv(n, 256)


def kernel(x):
    n, seed = x.numel(), 0
    z = torch.empty_like(x)
    grid = blocks(n)
    # here
    _double[(grid,)](x, z, n, seed, BLOCK=256)
    return z


def reference(x):
    return x * 2


def inputs(case, generator):
    return {"x": torch.randn(case["n"], generator=generator, device=generator.device)}


CASES = {"long": dict(n=4096), "short": dict(n=1024)}
SMALL = {"small": dict(n=256)}
HELD_OUT = {"odd": dict(n=999)}
flops = bytes_moved = len
"""
COUNTS = "KEPT['calls'] = KEPT.get('calls', 0) + 1"
SEED = "seed = random.randrange(1 << 30)"
AGAIN = {
    f"{COUNTS}\n    grid = grid - (KEPT['calls'] > 2)": "has the grid",
    "grid = KEPT.setdefault('grid', grid)": "long: when kernel() is called again, in another order of the cases, "
    "step 1 has the grid 1 x 1 x 1, and not 16 x 1 x 1",
    "z = KEPT.setdefault(n, z)": "it fails: line 28: a tensor that this call neither received nor made (kept from an "
    "earlier call)",
    f"{COUNTS}\n    n = n - (KEPT['calls'] > 2)": "step 1 has other arguments",
    f"{COUNTS}\n    if KEPT['calls'] > 2:\n        return z": "it makes 0 launches and operations, and not 1",
    SEED: "step 1 has other arguments",
}


def built(folder: Path, line: str, workers: int = 1) -> tuple[Workshop, Built]:
    workshop = Workshop(folder, TARGET.replace("# here", line))
    cases = {"CASES": ["long", "short"]}
    return workshop, workshop.builder.build(workshop.builder.target.source, cases, 1, workers, again=True)


def said(folder: Path, line: str, original: str = "", workers: int = 1) -> Evidence:
    workshop, candidate = built(folder, line, workers)
    contents, manifest = workshop.contents, workshop.contents.manifest(candidate.bundle)
    again = built(folder, original)[1].again if original else {}
    return plan_rules.stage(side(contents, manifest, again=candidate.again), side(contents, manifest, again=again))


@pytest.mark.parametrize(("line", "why"), AGAIN.items())
def test_a_launcher_that_does_something_else_when_it_is_called_again_is_rejected(
    tmp_path: Path, line: str, why: str
) -> None:
    found = said(tmp_path, line)
    assert found.verdict == Verdict.REJECTED and why in found.reason


def test_a_single_case_is_called_after_calls_of_other_sizes(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, TARGET.replace("# here", "grid = KEPT.setdefault('grid', grid)"))
    candidate = workshop.builder.build(workshop.builder.target.source, {"CASES": ["long"]}, 1, again=True)
    assert candidate.again is not None
    assert [d.said for d in candidate.again["CASES/long"]] == ["step 1 has the grid 1 x 1 x 1, and not 16 x 1 x 1"]


def test_words_that_no_file_takes_end_no_build(tmp_path: Path) -> None:
    line = f"{COUNTS}\n    if KEPT['calls'] > 2:\n        raise ValueError(chr(0xd800))"
    assert said(tmp_path, line).reason.endswith("it fails: ?")


def test_however_many_processes_trace_it(tmp_path: Path) -> None:
    assert said(tmp_path, next(iter(AGAIN)), workers=8).verdict == Verdict.REJECTED


@pytest.mark.parametrize("line", ["", COUNTS, "KEPT[n] = grid", "with torch.no_grad():\n        z = z.view(-1)"])
def test_one_that_counts_or_keeps_what_changes_nothing_is_not(tmp_path: Path, line: str) -> None:
    assert said(tmp_path, line).verdict is None


def test_where_the_kernel_as_shipped_draws_a_seed_a_candidate_may_and_no_more_than_that(tmp_path: Path) -> None:
    assert said(tmp_path, SEED, SEED).verdict is None
    ends = f"{SEED}\n    {COUNTS}\n    if KEPT['calls'] > 2:\n        return z"
    assert "it makes 0 launches" in said(tmp_path, ends, SEED).reason


def test_of_a_record_that_does_not_say_what_the_kernel_as_shipped_does_nothing_follows(tmp_path: Path) -> None:
    workshop, candidate = built(tmp_path, SEED)
    contents, manifest = workshop.contents, workshop.contents.manifest(candidate.bundle)
    assert plan_rules.stage(side(contents, manifest, again=candidate.again), side(contents, manifest)).verdict is None


def test_of_a_held_out_case_nothing_is_told_to_a_model(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, TARGET.replace("# here", SEED))
    candidate = workshop.builder.build(workshop.builder.target.source, {"HELD_OUT": None}, 1, again=True)
    contents, manifest = workshop.contents, workshop.contents.manifest(candidate.bundle)
    found = plan_rules.stage(side(contents, manifest, again=candidate.again), side(contents, manifest, again={}))
    assert found.verdict == Verdict.REJECTED and found.why.for_model(["odd"]) == FAILS
