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
    f"{COUNTS}\n    grid = grid if KEPT['calls'] < 4 else grid - 1": "long: when kernel() is called again, after other "
    "cases, step 1 has the grid 15 x 1 x 1, and not 16 x 1 x 1",
    "grid = KEPT.setdefault('grid', grid) if n < 2048 or 'grid' in KEPT else grid": "long: when kernel() is called "
    "again, after other cases, step 1 has the grid 4 x 1 x 1, and not 16 x 1 x 1",
    "z = KEPT.setdefault(n, z)": "it fails: line 28: a tensor that this call neither received nor made (kept from an "
    "earlier call)",
    f"{COUNTS}\n    n = n if KEPT['calls'] < 3 else n - 1": "step 1 has other arguments",
    f"{COUNTS}\n    if KEPT['calls'] > 2:\n        return z": "it makes 0 launches and operations, and not 1",
    SEED: "step 1 has other arguments",
}


def built(folder: Path, line: str) -> tuple[Workshop, Built]:
    workshop = Workshop(folder, TARGET.replace("# here", line))
    return workshop, workshop.build("CASES")


def said(folder: Path, line: str, original: str = "") -> Evidence:
    workshop, candidate = built(folder, line)
    contents, manifest = workshop.contents, workshop.contents.manifest(candidate.bundle)
    again = built(folder, original)[1].again if original else {}
    return plan_rules.stage(side(contents, manifest, again=candidate.again), side(contents, manifest, again=again))


@pytest.mark.parametrize(("line", "why"), AGAIN.items())
def test_a_launcher_that_does_something_else_when_it_is_called_again_is_rejected(
    tmp_path: Path, line: str, why: str
) -> None:
    found = said(tmp_path, line)
    assert found.verdict == Verdict.REJECTED and why in found.reason


@pytest.mark.parametrize("line", ["", COUNTS, "KEPT[n] = grid", "with torch.no_grad():\n        z = z.view(-1)"])
def test_one_that_counts_or_keeps_what_changes_nothing_is_not(tmp_path: Path, line: str) -> None:
    assert said(tmp_path, line).verdict is None


def test_where_the_kernel_as_shipped_draws_a_seed_a_candidate_may(tmp_path: Path) -> None:
    assert said(tmp_path, SEED, SEED).verdict is None


def test_of_a_held_out_case_nothing_is_told_to_a_model(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, TARGET.replace("# here", SEED))
    candidate = workshop.build("HELD_OUT")
    manifest = workshop.contents.manifest(candidate.bundle)
    found = plan_rules.stage(
        side(workshop.contents, manifest, again=candidate.again), side(workshop.contents, manifest)
    )
    assert found.verdict == Verdict.REJECTED and found.why.for_model(["odd"]) == FAILS
