"""Tables of addresses on a real GPU: each copy of a plan has its own, wherever its buffers lie.

The target is a grouped GEMM whose kernel finds its matrices by two tables and a number of the launch.
"""

from collections.abc import Iterator

import pytest
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.questions import Race
from pgo_agent.sandbox.judge.references import bundle_ref

from tests.gpu.test_on_gpu import Gate

TARGET = '''"""Multiplies matrices in pairs."""

import torch
import triton
import triton.language as tl


@triton.jit
def _grouped(INS, OUTS, sizes, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    g = tl.program_id(1)
    at = sizes.to(tl.pointer_type(tl.int64)) + g * 3
    m, n, k = tl.load(at), tl.load(at + 1), tl.load(at + 2)
    a = tl.load(INS + 2 * g).to(tl.pointer_type(tl.float16))
    b = tl.load(INS + 2 * g + 1).to(tl.pointer_type(tl.float16))
    c = tl.load(OUTS + g).to(tl.pointer_type(tl.float16))
    across = tl.cdiv(n, BN)
    for tile in range(tl.program_id(0), tl.cdiv(m, BM) * across, tl.num_programs(0)):
        i = tile // across * BM + tl.arange(0, BM)
        j = tile % across * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k0 in range(0, k, BK):
            kk = k0 + tl.arange(0, BK)
            x = tl.load(a + i[:, None] * k + kk, (i[:, None] < m) & (kk < k), 0.0)
            y = tl.load(b + kk[:, None] * n + j, (kk[:, None] < k) & (j < n), 0.0)
            acc = tl.dot(x, y, acc)
        tl.store(c + i[:, None] * n + j, acc.to(tl.float16), (i[:, None] < m) & (j < n))


def kernel(a, b):
    c = [torch.empty(x.shape[0], y.shape[1], device=x.device, dtype=x.dtype) for x, y in zip(a, b)]
    ins = torch.tensor([t.data_ptr() for pair in zip(a, b) for t in pair], device=a[0].device)
    outs = torch.tensor([t.data_ptr() for t in c], device=a[0].device)
    sizes = torch.tensor([(x.shape[0], y.shape[1], x.shape[1]) for x, y in zip(a, b)], device=a[0].device)
    _grouped[(33, len(a))](ins, outs, sizes.data_ptr(), BM=64, BN=64, BK=32)
    return c


def reference(a, b):
    return [x @ y for x, y in zip(a, b)]


def inputs(case, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator, device=generator.device).half()

    rows = [case["m"] * (i + 1) + i for i in range(4)]
    return {"a": [normal(m, case["k"]) for m in rows], "b": [normal(case["k"], case["n"]) for _ in rows]}


CASES = {"4": dict(m=300, n=1024, k=512)}
SMALL = {"even": dict(m=16, n=32, k=32)}
HELD_OUT = {"odd": dict(m=77, n=333, k=129)}
flops = lambda case: 20 * case["m"] * case["n"] * case["k"]
bytes_moved = lambda case: 2 * (10 * case["m"] * (case["n"] + case["k"]) + 4 * case["n"] * case["k"])
'''
PUBLIC, HIDDEN = "CASES/4", "HELD_OUT/odd"
OUTS = "for t in c], device"
WRONG = {
    "gives two results one place": ("for t in [c[1], *c[1:]]], device", Verdict.WRONG),
    "gives a result no place": ("for t in [*c[:3], torch.empty_like(c[3])]], device", Verdict.WRONG),
    "stores into an input": ("for t in [*c[:3], a[3]]], device", Verdict.CHEATING),
    "begins a row late": ("for t in [c[0][1:], *c[1:]]], device", Verdict.WRONG),
}


def edited(outs: str) -> str:
    assert TARGET.count(OUTS) == 1
    return TARGET.replace(OUTS, outs)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("grouped")
    (folder / "grouped.py").write_text(TARGET)
    gate = Gate(folder / "grouped.py", folder / "shelf", PUBLIC, HIDDEN)
    yield gate
    gate.judge.close()


def test_every_edit_below_fits_the_target_as_it_stands() -> None:
    assert len({edited(outs) for outs, _ in WRONG.values()}) == len(WRONG)


@pytest.mark.gpu
def test_other_blocks_over_the_same_tables_are_right_and_timed(grouped: Gate) -> None:
    judged = grouped.verdict(TARGET.replace("BM=64", "BM=128"))
    assert judged.verdict in {Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ACCEPTED}, judged


@pytest.mark.gpu
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_table_is_refused(grouped: Gate, name: str) -> None:
    outs, verdict = WRONG[name]
    assert grouped.verdict(edited(outs)).verdict == verdict


@pytest.mark.gpu
def test_launches_at_once_on_tables_of_their_own_do_not_race(grouped: Gate) -> None:
    built = grouped.build(TARGET, 1)
    bundle = bundle_ref(grouped.contents, built.bundle)
    raced = grouped.judge.verdict(Race(bundle, PUBLIC, built.choices[PUBLIC][0].label, stress=True))
    assert raced.verdict == Verdict.CHECKED, raced
