"""The split causal loop on values: where it is cut, for any bounds, and attention that it leaves bit for bit."""

import ast
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.moves import causal
from pgo_agent.agent.moves.move import Subject
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent import attention
from tests.agent.composing import checked, compose, outputs, same_bits

H200 = devices.find("h200")
TEMPLATE = """
@triton.jit
def k(q, kp, m, lo, hi, first, STEP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, at, unit = first + tl.arange(0, ROWS), tl.arange(0, COLS), tl.arange(0, STEP)
    for i in range(lo, hi, STEP):
        s = tl.dot(q, tl.load(kp + i))
        s = tl.where(MASK, s, float("-inf"))
        m = tl.maximum(m, s)
    return m
"""
KEYS, QUERIES = (">=", ">"), ("<=", "<")  # which way the loop must go for rows ... columns to be true


@given(
    data=st.data(), low=st.integers(-70, 70), span=st.integers(-20, 100), first=st.integers(-100, 200),
    step=st.sampled_from([1, 2, 8, 16, 32]), rows=st.sampled_from([1, 4, 16]), cols=st.sampled_from([1, 2, 8]),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_every_step_runs_once_in_order_and_none_without_its_mask_that_needs_it(
    data: st.DataObject, low: int, span: int, first: int, step: int, rows: int, cols: int
) -> None:
    operator = data.draw(st.sampled_from([*KEYS, *QUERIES]))
    high = low + span
    loops = _ranges(operator, {"lo": low, "hi": high, "first": first, "STEP": step, "ROWS": rows, "COLS": cols})
    bare, masked = loops if operator in KEYS else reversed(loops)
    assert [*loops[0], *loops[1]] == list(range(low, high, step))
    pairs = {i: [(first + r, i + c) for r in range(rows) for c in range(cols)] for i in (*bare, *masked)}
    shown = {i: all(_holds(operator, r, c) for r, c in p) for i, p in pairs.items()}
    assert all(shown[i] for i in bare) and not any(shown[i] for i in masked)


def rewritten(source: str, kernel: str = "k") -> str:
    return causal.rewrite(Subject(source, kernel, H200))


def _holds(operator: str, row: int, column: int) -> bool:
    return {">=": row >= column, ">": row > column, "<=": row <= column, "<": row < column}[operator]


def _ranges(operator: str, values: dict[str, int]) -> tuple[range, range]:
    """The ranges of the two loops, by the statements that the move wrote, with integers for tensors."""
    body = ast.parse(_split(operator)).body[0].body  # type: ignore[attr-defined]
    cut = [n for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "middle"]
    known = values | {"tl": _Integers, "range": range}
    exec(compile(ast.Module(cut, []), "cut", "exec"), known)
    one, other = (eval(ast.unparse(n.iter), known) for n in body if isinstance(n, ast.For))
    return one, other


@cache
def _split(operator: str) -> str:
    return rewritten(TEMPLATE.replace("MASK", f"rows[:, None] {operator} (i + at)[None, :]"))


class _Integers:
    minimum, maximum = staticmethod(min), staticmethod(max)


@pytest.mark.parametrize(
    ("name", "text", "contract"),
    [
        ("_attention", attention.FORWARD, attention.FORWARD_CONTRACT),
        pytest.param("_gradient", attention.GRADIENT, attention.GRADIENT_CONTRACT, marks=pytest.mark.slow),
    ],
)
def test_split_attention_is_right_on_all_small_cases(tmp_path: Path, name: str, text: str, contract: str) -> None:
    path = compose(tmp_path, text, contract)
    found = checked(path, rewritten(path.read_text(), name))
    assert found.verdict == Verdict.CHECKED, found.reason


def test_split_attention_gives_the_same_bits() -> None:
    split = rewritten(attention.FORWARD, "_attention")
    assert split.count("for start in range(") == 3
    shapes = [(128, 32, 16), (90, 16, 32), (90, 32, 32), (17, 32, 16), (200, 64, 16)]
    calls = [
        {n: torch.randn(2, s, 32).half() for n in "qkv"} | {"causal": causal, "block_q": q, "block_k": k}
        for s, q, k in shapes
        for causal in (True, False)
    ]
    assert same_bits(outputs(attention.FORWARD, *calls), outputs(split, *calls))


def test_split_gradients_give_the_same_bits() -> None:
    split = rewritten(attention.GRADIENT, "_gradient")
    assert split.count("for block in range(") == 2
    calls = [
        {n: torch.randn(2, s, 32).half() for n in ("q", "k", "do")}
        | {"lse": 3 + torch.rand(2, s), "block_q": q, "block_k": k}
        for s, q, k in [(128, 16, 32), (90, 32, 16), (90, 16, 16), (33, 64, 16)]
    ]
    assert same_bits(outputs(attention.GRADIENT, *calls), outputs(split, *calls))
