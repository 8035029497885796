"""`init FILE -- PROGRAM` where a launcher is given what no plan holds: enums, dataclasses, functions."""

from pathlib import Path

import pytest
from pgo_agent.agent.commands.init import seen

from tests.agent.command_line import Done, pgo

MODES = """from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Mode(Enum):
    UP = 1
    DOWN = 2


class Span(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Meta:
    mode: Mode
    span: Span
    scale: float = 1.0
"""
KERNEL = """import torch
import triton
import triton.language as tl
from modes import Mode


def block(n):
    return min(256, triton.next_power_of_2(n))


@triton.jit
def _clipped(X, Y, n, low, high, scale, UP: tl.constexpr, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, i < n).to(TYPE) * scale
    tl.store(Y + i, tl.minimum(tl.maximum(x, low), high) if UP else -x, i < n)


def clipped(x, meta, size=block, kind=tl.float32):
    y, n = torch.empty_like(x), x.numel()
    up = meta.mode is Mode.UP
    _clipped[(triton.cdiv(n, size(n)),)](
        x, y, n, meta.span.low, meta.span.high, meta.scale, UP=up, TYPE=kind, BLOCK=size(n)
    )
    return y
"""
PROGRAM = """import torch
from kernels import clipped
from modes import Meta, Mode, Span


def expected(x, meta):
    return (x * meta.scale).clamp(*meta.span) if meta.mode is Mode.UP else -x * meta.scale


for size in (1000, 3000):
    x = torch.randn(size, device="cuda")
    given = Meta(Mode.UP, Span(-0.5, float("inf")), scale=3.0)
    torch.testing.assert_close(clipped(x, given), expected(x, given))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("fixed")
    for name, text in (("modes", MODES), ("kernels", KERNEL), ("program", PROGRAM)):
        (folder / f"{name}.py").write_text(text)
    return folder, pgo("init", "kernels.py", "-o", "t.py", "--", "python", "program.py", cwd=folder)


def test_they_are_given_as_they_were_with_the_classes_that_make_them(made: tuple[Path, Done]) -> None:
    folder, done = made
    assert "2 calls" in done.out and "0 lines to write" in done.out, done.out + done.err
    text = (folder / "t.py").read_text()
    assert 'Meta(mode=Mode.UP, span=Span(low=-0.5, high=float("inf")), scale=3.0)' in text
    assert "class Meta" in text and "from modes import" not in text and "def kernel(x):" in text


def test_such_a_target_is_checked_and_right(made: tuple[Path, Done]) -> None:
    folder, _ = made
    done = pgo("init", "--check", "t.py", cwd=folder)
    assert done.code == 0, done.out + done.err


@pytest.mark.parametrize(
    "text", ["Meta(__import__('os').system('id'))", "[Meta() for _ in x]", "Meta(a)", "Meta(lambda: 1)", "Meta("]
)
def test_a_text_that_does_more_than_make_a_value_is_not_taken(text: str) -> None:
    assert seen.made({"other": "Meta", "made": {"text": text, "names": {"Meta": ["modes", "/modes.py"]}}}) is None
