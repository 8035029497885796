"""`init` takes kernels whose tensors lie behind addresses: in tables that the host fills, and as plain numbers."""

import re
from pathlib import Path

import pytest

from tests.agent.command_line import PYTEST, pgo

KERNELS = """import torch
import triton
import triton.language as tl


@triton.jit
def _double_rows(TABLE, n, BLOCK: tl.constexpr):
    x = tl.load(TABLE + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)


@triton.jit
def _add_tables(A, B, C, SIZES, BLOCK: tl.constexpr):
    g, i = tl.program_id(0), tl.arange(0, BLOCK)
    n = tl.load(SIZES + g)
    a, b = tl.load(A + g).to(tl.pointer_type(tl.float32)), tl.load(B + g).to(tl.pointer_type(tl.float32))
    c = tl.load(C + g).to(tl.pointer_type(tl.float32))
    tl.store(c + i, tl.load(a + i, i < n) + tl.load(b + i, i < n), i < n)


@triton.jit
def _increment(address, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(address.to(tl.pointer_type(tl.float32)) + i, i < n) + 1, i < n)


def doubled(rows):
    table = torch.tensor([r.data_ptr() for r in rows], device=rows[0].device)
    _double_rows[(len(rows),)](table, rows[0].numel(), BLOCK=triton.next_power_of_2(rows[0].numel()))
    return rows


def added(xs, ys):
    zs, device = [torch.empty_like(x) for x in xs], xs[0].device
    tables = [torch.tensor([t.data_ptr() for t in ts], pin_memory=True).to(device) for ts in (xs, ys, zs)]
    sizes = torch.tensor([x.numel() for x in xs], dtype=torch.int32, device=device)
    _add_tables[(len(xs),)](*tables, sizes, BLOCK=triton.next_power_of_2(max(x.numel() for x in xs)))
    return zs


def added_behind(a_ptrs, b_ptrs, c_ptrs, sizes):
    _add_tables[(sizes.shape[0],)](a_ptrs, b_ptrs, c_ptrs, sizes, BLOCK=128)


def incremented(x):
    y = torch.empty_like(x)
    _increment[(triton.cdiv(x.numel(), 256),)](x.data_ptr(), y, x.numel(), BLOCK=256)
    return y


def test_doubled():
    rows = [torch.randn(100, device="cuda") for _ in range(3)]
    expected = [r * 2 for r in rows]
    for row, wanted in zip(doubled(rows), expected):
        torch.testing.assert_close(row, wanted)


def test_added():
    firsts, seconds = [[torch.randn(n, device="cuda") for n in (100, 70)] for _ in range(2)]
    results = added(firsts, seconds)
    expected = [torch.add(a, b) for a, b in zip(firsts, seconds)]
    for i in range(len(results)):
        assert torch.allclose(results[i], expected[i])


def test_added_behind():
    lengths = torch.randint(60, 128, (2,)).tolist()
    firsts, seconds, results = [[torch.randn(n, device="cuda") for n in lengths] for _ in range(3)]
    tables = [torch.tensor([t.data_ptr() for t in ts], device="cuda") for ts in (firsts, seconds, results)]
    added_behind(*tables, torch.tensor(lengths, dtype=torch.int32, device="cuda"))
    for i, (a, b) in enumerate(zip(firsts, seconds)):
        torch.testing.assert_close(results[i], a + b)


def test_incremented():
    x = torch.randn(1000, device="cuda")
    torch.testing.assert_close(incremented(x), x + 1)
"""


def _written(folder: Path, name: str) -> str:
    """Return the target that is written from a test."""
    (folder / "kernels.py").write_text(KERNELS)
    asked = ("-o", "target.py", "--launcher", name, "--", *PYTEST, f"kernels.py::test_{name}")
    done = pgo("init", "kernels.py", *asked, cwd=folder)
    assert "0 lines to write" in done.out, done.out + done.err
    return (folder / "target.py").read_text()


def test_tensors_in_a_table_that_a_kernel_changes_are_results_in_place(tmp_path: Path) -> None:
    assert 'IN_PLACE = ("rows",)' in _written(tmp_path, "doubled")


@pytest.mark.long
def test_results_behind_one_table_and_inputs_behind_others_are_told_apart(tmp_path: Path) -> None:
    text = _written(tmp_path, "added")
    assert "IN_PLACE" not in text
    assert "expected = [torch.add(a, b) for a, b in zip(xs, ys)]" in text, "a list is known by another name"
    assert "return expected[0], expected[1]" in text, "of a loop that counts, each turn is one result"
    checked = pgo("init", "--check", "target.py", cwd=tmp_path)
    assert "no_change: target.py is right" in " ".join(checked.out.split()), checked.out + checked.err


def test_an_address_may_be_a_number_of_the_launch(tmp_path: Path) -> None:
    assert "return x + 1" in _written(tmp_path, "incremented")


def test_a_launcher_that_is_given_tables_is_given_those_of_tensors_that_kernel_gets(tmp_path: Path) -> None:
    text = _written(tmp_path, "added_behind")
    assert "torch.tensor([t.data_ptr() for t in a_ptrs], device=a_ptrs[0].device)" in text
    assert 'IN_PLACE = ("c_ptrs",)' in text, "what the program checks is what the kernel changed"
    assert "a_ptrs[1] + b_ptrs[1]" in text
    lengths = [int(n) for n in re.findall(r"[A-Z]\w*=(\d+)", text.partition("CASES = ")[2].partition("SMALL")[0])]
    assert len({n for n in lengths if 60 <= n < 128}) == 2, "numbers of the range that they were drawn from"
