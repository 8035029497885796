"""Inlining of jit helpers: the kernel stores the same, and what the compiler knew of an argument it still knows."""

import ast
import re

import libcst as cst
import pytest
from pgo_agent.agent.moves.analysis import inline

from tests.agent.evaluating import run, same

HEADER = "import triton\nimport triton.language as tl\n\nSCALE = 5\n\n"
JIT = "@triton.jit\n"
SWAP = JIT + "def f(a, b):\n    a = a * 10\n    b = b + 1\n    return a, b\n"
COUNT = JIT + "def f(x, n):\n    y = 0\n    for i in range(0, n):\n        y += x * i\n    return y\n"
INLINED = {
    "a local of the helper has the name of one of the kernel": (COUNT, "y = X\ni = 7\nz = f(y, 3)\nstore(z, y, i)"),
    "a helper is called twice": (COUNT, "y = f(X, 3)\nz = f(Y, y)\nstore(y, z)"),
    "a helper is called in a loop": (COUNT, "y = 0\nfor j in range(0, 3):\n    z = f(j, 4)\n    y += z\nstore(y)"),
    "a target is an argument": (COUNT, "x = X\nx = f(x, 3)\nstore(x)"),
    "a target is both arguments": (COUNT, "x = Y\nx = f(x, x)\nstore(x)"),
    "the helper assigns its parameters": (SWAP, "x = X\ny = Y\np, q = f(x, y)\nstore(x, y, p, q)"),
    "results change places": (SWAP, "x = X\ny = Y\ny, x = f(x, y)\nstore(x, y)"),
    "arguments change places": (SWAP, "x = X\ny = Y\nx, y = f(y, x)\nstore(x, y)"),
    "a result goes on under the argument's name": (SWAP, "x = X\ny = Y\nx, y = f(x, y)\nstore(x, y)"),
    "an argument reads what goes on": (SWAP, "x = X\nx, y = f(x, x + 1)\nstore(x, y)"),
    "one name is given twice": (SWAP, "x = X\nx, y = f(x, x)\nstore(x, y)"),
    "arguments are given by name": (SWAP, "x = X\ny = Y\np, q = f(b=x, a=y)\nstore(x, y, p, q)"),
    "a default is used": (JIT + "def f(a, b=3):\n    return a * b\n", "x = f(X)\ny = f(X, 4)\nstore(x, y)"),
    "the helper is one line": (JIT + "def f(a): return a * 2\n", "x = f(X)\nstore(x)"),
    "the kernel calls on one line": (SWAP, "x = X; y = Y\nif X > 2: x, y = f(x, y)\nstore(x, y)"),
    "the helper has a docstring": (JIT + 'def f(a):\n    """Doubles."""\n    return a * 2\n', "x = f(X)\nstore(x)"),
    "the helper returns nothing": (JIT + "def f(p, a):\n    tl.store(p, a)\n", "f(P, X)\nf(P, X + Y)"),
    "an argument stands on several lines": (COUNT, "z = f(\n    X\n    + Y,  # both\n    3,\n)\nstore(z)"),
    "helpers call helpers": (
        COUNT + JIT + "def g(y, i):\n    x = f(y, i)\n    i = f(x, 2)\n    return i + y\n",
        "y = Y\ni = 3\nx = g(i, y)\nstore(x, y, i)",
    ),
    "a literal decides an `if`": (
        JIT + "def f(a, FLAG):\n    if FLAG:\n        a = a * 2\n    else:\n        a = a * 3\n    return a\n",
        "x = f(X, True)\ny = f(X, False)\nstore(x, y)",
    ),
    "a literal decides an `elif`": (
        JIT
        + "def f(a, n, ONE, TWO):\n    r = 0\n    if n > 3:\n        r = a\n    elif ONE:\n        r = a * 2\n"
        + "    elif TWO:\n        r = a * 3\n    else:\n        r = a * 4\n    return r\n",
        "v = f(X, Y, True, False)\nw = f(X, Y, False, True)\nx = f(X, Y, False, False)\ny = f(X, 9, True, True)\n"
        "store(v, w, x, y)",
    ),
    "a literal decides an expression": (
        JIT + "def f(a, FLAG):\n    return a * 2 if not FLAG else a\n",
        "x = f(X, True)\ny = f(X, False)\nstore(x, y)",
    ),
    "a negative literal is multiplied": (JIT + "def f(a, b):\n    return a - b * 2\n", "x = f(X, -3)\nstore(x)"),
    "a compile-time expression is multiplied": (
        JIT + "def f(a, B: tl.constexpr):\n    return a - B * 2\n", "x = f(X, BLOCK + 1)\nstore(x)"
    ),
}  # fmt: skip
STAYING = {
    "it means a global that the kernel's local hides": (
        JIT + "def f(a):\n    return a * SCALE\n",
        "SCALE = 2\nx = f(X)\nstore(x, SCALE)",
    ),
    "it returns early": (JIT + "def f(a):\n    if a > 3:\n        return a\n    return a * 2\n", "x = f(X)\nstore(x)"),
    "it calls itself": (
        JIT + "def f(a):\n    b = a\n    if a > 0:\n        b = f(a - 1)\n    return b\n",
        "x = f(X)\nstore(x)",
    ),
    "it is called in an expression": (JIT + "def f(a):\n    return a * 2\n", "x = f(X) + f(Y)\nstore(x)"),
    "it is not a jit function": ("def f(a):\n    return a * 2\n", "x = f(X)\nstore(x)"),
    "it has another decorator, too": ("@wrapped\n" + JIT + "def f(a):\n    return a * 2\n", "x = f(X)\nstore(x)"),
    "it is defined twice": (
        JIT + "def f(a):\n    return a * 2\n\n\n" + JIT + "def f(a):\n    return a * 3\n",
        "x = f(X)\nstore(x)",
    ),
    "its name is given to something else": (
        JIT + "def f(a):\n    return a * 2\n\n\nf = g = abs\n",
        "x = f(X)\nstore(x)",
    ),
    "it takes any number of arguments": (JIT + "def f(*a):\n    return a[0] * 2\n", "x = f(X)\nstore(x)"),
    "its default is read from the file": (JIT + "def f(a, b=SCALE):\n    return a * b\n", "x = f(X)\nstore(x)"),
    "it returns a tuple as one": (JIT + "def f(a):\n    return (a,)\n", "x = f(X)\nstore(x[0])"),
    "what it returns has an effect": (
        JIT + "def f(p, a):\n    return tl.atomic_add(p, a)\n", "f(P, X)\nstore(Y)"
    ),
    "a literal goes to a parameter that it assigns": (
        JIT + "def f(a, b):\n    b = b * a\n    return b\n", "x = f(X, 2)\nstore(x)"
    ),
    "nobody knows whether the compiler knows the argument": (
        JIT + "def f(a, b):\n    return a * b\n", "x = f(X, tl.cdiv(BLOCK, 2))\nstore(x)"
    ),
    "either value may be known to the compiler": (
        JIT + "def f(a, b):\n    return a * b\n", "x = f(X, BLOCK if Y > 2 else Y)\nstore(x)"
    ),
}  # fmt: skip


def written(helpers: str, body: str) -> str:
    lines = re.sub(r"\bstore\(", "tl.store(P, ", body).replace("\n", "\n    ")
    return f"{HEADER}{helpers}\n\n{JIT}def k(P, X, Y, BLOCK: tl.constexpr):\n    {lines}\n"


def check_the_same_is_stored(source: str, changed: str) -> None:
    ast.parse(changed)
    for given in (dict(X=2, Y=3), dict(X=7, Y=5), dict(X=0, Y=0)):
        arguments = dict(P=0, BLOCK=16, **given)
        assert same(run(source, "k", arguments), run(changed, "k", arguments)), changed


@pytest.mark.parametrize("case", INLINED)
def test_the_kernel_stores_the_same_after_inlining_when(case: str) -> None:
    source = written(*INLINED[case])
    changed = inline.inline(source, "k")
    assert "def f" not in changed, changed
    check_the_same_is_stored(source, changed)


@pytest.mark.parametrize("case", STAYING)
def test_a_helper_stays_a_call_when(case: str) -> None:
    source = written(*STAYING[case])
    changed = inline.inline(source, "k")
    assert changed == source
    if "wrapped" not in source:
        check_the_same_is_stored(source, changed)


def test_a_local_never_takes_the_name_of_a_global_that_another_inlined_helper_reads() -> None:
    one = JIT + "def one(a):\n    return a * SCALE\n\n\n"
    two = JIT + "def two(a):\n    SCALE = a + 1\n    return SCALE\n\n\n"
    source = written(one + two, "x = one(X)\ny = two(x)\nz = one(y)\nstore(x, y, z)")
    check_the_same_is_stored(source, inline.inline(source, "k"))


def test_what_the_compiler_knows_takes_the_parameters_place_and_is_never_assigned() -> None:
    """Assigned, it would be a number with a type of its own: 0.5 * x of fp16 would become fp32."""
    helper = JIT + "def f(a, scale, n, kind, mode, top):\n    return tl.minimum((a * scale).to(kind), top + n)\n"
    body = "x = f(X, D**-0.5, -BLOCK, tl.float16, 'rn', float('inf'))\nstore(x)"
    changed = inline.inline(written(helper, body).replace("BLOCK:", "D: tl.constexpr, BLOCK:"), "k")
    assert "x = tl.minimum((X * (D**-0.5)).to((tl.float16)), (float('inf')) + (-BLOCK))" in changed


def test_a_function_that_the_kernel_is_given_is_not_the_helper_of_that_name() -> None:
    source = written(JIT + "def X(a):\n    return a * 2\n", "x = X(Y)\nstore(x)")
    assert inline.inline(source, "k") == source


def test_a_number_is_put_in_brackets_before_an_attribute() -> None:
    helper = JIT + "def f(a, b):\n    return a + b.to(tl.int64)\n"
    assert "X + (0).to(tl.int64)" in inline.inline(written(helper, "x = f(X, 0)\nstore(x)"), "k")


def test_a_helper_that_something_else_still_uses_stays_in_the_file() -> None:
    other = f"\n\n{JIT}def other(P, X):\n    x = f(X, 2)\n    tl.store(P, x)\n"
    changed = inline.inline(written(COUNT, "x = f(X, 2)\nstore(x)") + other, "k")
    assert "def f" in changed
    assert "f(" not in changed.split("def k")[1].split("@")[0]


def test_a_call_without_effect_leaves_a_block_that_is_python() -> None:
    changed = inline.inline(written(JIT + "def f(a):\n    return a\n", "if X > 2:\n    f(X)\nstore(X)"), "k")
    cst.parse_module(changed)
    check_the_same_is_stored(changed, changed)
