"""Kernels with one known defect each: what stands out first in a static profile is that defect, on its line."""

from pathlib import Path

import pytest
from pgo_agent.agent import profiling
from pgo_agent.agent.findings import Finding
from pgo_agent.agent.session import Wishes
from pgo_agent.agent.store import Store

slow = pytest.mark.slow
DOTS = """
@triton.jit
def _run(X, Z, K, TILE: tl.constexpr, STAGES: tl.constexpr):
    i, k = tl.arange(0, TILE), tl.arange(0, 64)
    x_ptrs = X + (tl.program_id(0) * TILE + i)[:, None] * K + k[None, :]
    y_ptrs = X + k[:, None] + i[None, :] * K
    acc = tl.zeros([TILE, TILE], tl.float32)
    for at in tl.range(0, K, 64, num_stages=STAGES):
        acc = tl.dot(tl.load(x_ptrs + at), tl.load(y_ptrs + at), acc)
    tl.store(Z + (tl.program_id(0) * TILE + i)[:, None] * TILE + i[None, :], acc)


def kernel(x):
    z = torch.empty((x.shape[0], 128), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, x.shape[1], TILE=128, STAGES=3, num_warps=4)
    return z
"""
COLUMNS = """
@triton.jit
def _run(X, Z, K):
    row, col = tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, 64)
    for at in range(0, K, 64):
        x = tl.load(X + row[None, :] * K + at + col[:, None] * STRIDE)
        tl.store(Z + row[None, :] * K + at + col[:, None] * STRIDE, x)


def kernel(x):
    z = torch.empty_like(x)
    _run[(BLOCKS,)](x, z, x.shape[1], num_warps=8)
    return z
"""
WIDE = """
@triton.jit
def _run(X, Z, K, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    most = tl.zeros([TILE], tl.float32)
    for n in range(K):
        x = tl.load(X + (tl.program_id(0) * K + n) * TILE + at).to(tl.float32)
        total += tl.exp(x)
        most = tl.maximum(most, x)
    tl.store(Z + tl.program_id(0) * TILE + at, total / most)


def kernel(x):
    z = torch.empty((x.shape[0], 8192), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, x.shape[1], TILE=8192, num_warps=4)
    return z
"""
TURNED = """
@triton.jit
def _run(X, Z, K):
    i = tl.arange(0, 64)
    acc = tl.zeros([64, 64], tl.float32)
    for n in range(K):
        x = tl.load(X + (tl.program_id(0) * K + n) * 4096 + i[:, None] * 64 + i[None, :]).to(tl.float32)
        acc = tl.trans(acc) + x
    tl.store(Z + tl.program_id(0) * 4096 + i[:, None] * 64 + i[None, :], acc)


def kernel(x):
    z = torch.empty((x.shape[0], 4096), device=x.device, dtype=torch.float32)
    _run[(BLOCKS,)](x, z, x.shape[1], num_warps=8)
    return z
"""
TARGET = """
import torch
import triton
import triton.language as tl

BLOCKS = 33792
STRIDE = tl.constexpr(1)
{part}

def reference(x):
    return x.to(torch.float32)


def inputs(case, generator):
    x = torch.randn((case["n"], 1024), generator=generator, device=generator.device, dtype=torch.float32)
    return {{"x": x.to(torch.float16)}}


CASES = {{"it": dict(n=4096)}}
SMALL = {{"it": dict(n=4096)}}
HELD_OUT = {{"it": dict(n=4096)}}


def flops(case):
    return 1


def bytes_moved(case):
    return 1
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("findings") / "w")


def found(store: Store, folder: Path, part: str, *changes: tuple[str, str]) -> tuple[tuple[Finding, ...], str]:
    """What stands out in a kernel, and its file's text."""
    text = TARGET.format(part=part)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "target.py").write_text(text)
    profile = profiling.profile(folder / "target.py", Wishes(), None, "nvidia", store)
    (findings,) = profile.cases[0].findings.values()
    return findings, text


@pytest.mark.parametrize("part", [DOTS, pytest.param(COLUMNS, marks=slow), pytest.param(TURNED, marks=slow)])
def test_nothing_stands_out_in_a_kernel_without_a_defect(part: str, store: Store, tmp_path: Path) -> None:
    healthy = () if part != TURNED else (("tl.trans(acc) + x", "acc + x"),)
    assert found(store, tmp_path, part, *healthy)[0] == ()


@pytest.mark.parametrize(
    ("defect", "part", "change", "line"),
    [
        ("too few stages", DOTS, ("STAGES=3", "STAGES=1"), ""),
        ("uncoalesced access", COLUMNS, ("(0, 64), tl.arange(0, 64)", "(0, 64), tl.arange(0, 2)"), "x = tl.load"),
        pytest.param("narrow access", COLUMNS, ("tl.constexpr(1)", "tl.constexpr(64)"), "x = tl.load", marks=slow),
        pytest.param("tail wave", DOTS, ("BLOCKS = 33792", "BLOCKS = 140"), "", marks=slow),
        pytest.param("spill", DOTS, ("num_warps=4", "num_warps=4, maxnreg=96"), "tl.dot", marks=slow),
        pytest.param("low occupancy", WIDE, ("BLOCKS = 33792", "BLOCKS = 67584"), "", marks=slow),
        pytest.param("layout conversion", TURNED, ("BLOCKS = 33792", "BLOCKS = 67584"), "tl.trans", marks=slow),
    ],
)
def test_the_first_finding_names_the_defect(
    defect: str, part: str, change: tuple[str, str], line: str, store: Store, tmp_path: Path
) -> None:
    (first, *_), text = found(store, tmp_path, part, change)
    assert first.defect == defect, first
    assert line in (text.splitlines()[first.line - 1] if first.line else "")
