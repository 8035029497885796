"""Ways in which problems write their sizes, and the one form that they come to."""

import ast
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.commands.problems import kernelbench, plain_sizes

FORMS = {
    "n: int = 128": {"n": 128},
    "n = 2048 * 2": {"n": 4096},
    "n = 1 << 12": {"n": 4096},
    "height = width = 128  # square": {"height": 128},
    "m, n = 64, 4096": {"m": 64, "n": 4096},
    "(m, n) = [64, 4 * 1024]": {"m": 64, "n": 4096},
    "shape = (3, 512, 16)": {"shape_1": 512, "shape_2": 16},
    "shape = [\n    2 * 512,  # rows\n    16,\n]": {"shape_0": 1024, "shape_1": 16},
}
PROBLEM = """
import torch
from torch import nn
{form}

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn({given})]

def get_init_inputs():
    return []
"""
NUMBERS = st.one_of(
    st.integers(0, 1 << 20).map(str),
    st.tuples(st.integers(0, 99), st.sampled_from(["+", "-", "*", "//", "<<", "**", "/", "%"]), st.integers(0, 9)).map(
        lambda t: f"{t[0]} {t[1]} {t[2]}"
    ),
    st.sampled_from(["-1", "True", "None", "1.5", "(1 << 50)", "'9'", "n0"]),
)
NAMES = st.sampled_from(["n1", "n2", "n3", "n2_0"])
STATEMENTS = st.one_of(
    st.tuples(NAMES, NUMBERS).map(" = ".join),
    st.tuples(NAMES, NUMBERS).map(": int = ".join),
    st.tuples(NAMES, NAMES, NUMBERS).map(" = ".join),
    st.tuples(NAMES, NAMES, NUMBERS, NUMBERS).map(lambda t: f"{t[0]}, {t[1]} = {t[2]}, {t[3]}"),
    st.tuples(NAMES, st.lists(NUMBERS, min_size=1, max_size=3)).map(lambda t: f"{t[0]} = [{', '.join(t[1])}]"),
    st.tuples(NAMES, NUMBERS, NAMES, NUMBERS).map(lambda t: f"{t[0]} = {t[1]}; {t[2]} = {t[3]}"),
)


@pytest.mark.parametrize("form", FORMS)
def test_each_way_to_write_a_size_is_read(form: str) -> None:
    names = [n.id for n in ast.walk(ast.parse(form)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    used = ", ".join(f"*{n}" if n == "shape" else n for n in names)
    problem = kernelbench.read(PROBLEM.format(form=form, given=used))
    assert problem.sizes == FORMS[form]
    scope: dict[str, Any] = {"together": lambda *numbers: numbers}
    exec(problem.given.text.replace("torch.randn", "together"), scope)
    exec(form, before := dict(scope))
    assert scope["get_inputs"](**problem.sizes) == [eval(f"together({used})", before)]


@given(st.lists(STATEMENTS, min_size=1, max_size=4))
@settings(deadline=None, max_examples=150)
def test_every_name_keeps_its_value(statements: list[str]) -> None:
    text = "\n".join(["n0 = 7", *statements])
    try:
        exec(text, before := dict[str, object]())
    except ZeroDivisionError:
        return
    exec(plain_sizes.rewritten(text, 9), after := dict[str, object]())
    assert {n: v for n, v in after.items() if n in before and n[0] == "n"} == {
        n: v for n, v in before.items() if n[0] == "n"
    }
