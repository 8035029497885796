"""`init FILE -- PROGRAM`: the sizes that it guesses are sizes which the kernel as shipped takes."""

from pathlib import Path

import pytest
from pgo_agent.sandbox import target

from tests.agent.command_line import Done, pgo

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
SPREAD = """@triton.jit
def _spread(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + tl.program_id(0) * n + i, tl.load(X + tl.program_id(0)) + i, i < n)


def spread(x, rows, size):
    y = torch.empty(rows, size[0], device=x.device)
    _spread[(rows, triton.cdiv(size[0], 128))](x, y, size[0], BLOCK=128)
    return y


x = torch.randn(512, device="cuda")
out = spread(x, 512, (1024,))
torch.testing.assert_close(out, x[:, None] + torch.arange(1024 // 2 * 2, device="cuda"))
"""
WHOLE = """@triton.jit
def _double(X, Y, n, BLOCK: tl.constexpr):
    for at in range(0, n, BLOCK):
        i = tl.program_id(0) * n + at + tl.arange(0, BLOCK)
        tl.store(Y + i, tl.load(X + i) * 2.0)


def double(x):
    y = torch.empty_like(x)
    _double[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
    return y


x = torch.randn(8, 1024, device="cuda")
torch.testing.assert_close(double(x), x * 2.0)
"""
PARTLY = """@triton.jit
def _head(X, Y, L, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0)
    own = i < tl.load(L + row)
    tl.store(Y + row * n + i, tl.load(X + row * n + i, own), own)


def head(x, lengths):
    y = torch.empty_like(x)
    _head[(x.shape[0],)](x, y, lengths, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


head(torch.randn(32, 100, device="cuda"), torch.randint(1, 100, (32,), device="cuda"))
"""
BLOCKED = """@triton.jit
def _triple(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, i < n) * 3.0, i < n)


def triple(x, block):
    y = torch.empty_like(x)
    _triple[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y


x = torch.randn(100, 128, device="cuda")
torch.testing.assert_close(triple(x, 128), x * 3.0)
"""


def made(folder: Path, text: str) -> tuple[str, Done]:
    (folder / "mine.py").write_text(HEAD + text)
    done = pgo("init", "mine.py", "-o", "t.py", "--", "python", "mine.py", cwd=folder)
    return (folder / "t.py").read_text() if done.code == 0 else "", done


@pytest.mark.long
def test_numbers_among_the_arguments_that_are_sizes_follow_them(tmp_path: Path) -> None:
    text, done = made(tmp_path, SPREAD)
    assert '"rows": case["M"]' in text and '"size": (case["N"],)' in text, text or done.err
    assert "torch.arange(size[0] // 2 * 2" in text, "in the reference, too, and what divides it stays"
    module = target.load(tmp_path / "t.py", "spread_target")
    assert module.SMALL["ragged"]["N"] < 64, "also where only the result has that size"


@pytest.mark.long
def test_sizes_at_which_the_kernel_as_shipped_reads_outside_are_taken_back(tmp_path: Path) -> None:
    _, done = made(tmp_path, WHOLE)
    assert "guessed sizes were taken back" in done.out and "past the end of X" in done.out, done.out + done.err
    module = target.load(tmp_path / "t.py", "whole_target")
    assert all(c["N"] % 128 == 0 for c in (*module.SMALL.values(), *module.HELD_OUT.values()))
    assert module.HELD_OUT["odd"]["N"] not in (128, 256, 512, 1024), "a size that no call had is held out all the same"
    checked = pgo("init", "--check", "t.py", cwd=tmp_path)
    assert checked.code == 0, checked.out + checked.err


@pytest.mark.long
def test_results_that_are_written_only_in_part_are_told_of(tmp_path: Path) -> None:
    text, done = made(tmp_path, PARTLY)
    assert "elements of the results are not written: let kernel() return" in done.out, done.out + done.err
    assert '"ragged"' in text, "no sizes are taken back for what all sizes have"


def test_a_number_that_is_a_size_by_chance_stays(tmp_path: Path) -> None:
    text, done = made(tmp_path, BLOCKED)
    assert '"block": 128' in text, text or done.err
    assert target.load(tmp_path / "t.py", "blocked_target").SMALL["ragged"]["N"] == 61
