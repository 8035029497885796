"""Loads say what a program reads for the last time and what others read, too; nothing else of a kernel changes."""

import ast

import pytest
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import cache_hints
from pgo_agent.sandbox import devices

HEAD = "import triton\nimport triton.language as tl\n\n\n"
BODY = """
row = tl.program_id(0)
group = row % 4
X += row * n
i = tl.arange(0, BLOCK)
"""


def file(*statements: str) -> str:
    body = "".join(f"    {line}\n" for line in (*BODY.strip().splitlines(), *statements))
    return f"{HEAD}@triton.jit\ndef _k(X, W, Y, n, BLOCK: tl.constexpr):\n{body}"


def rewritten(source: str) -> str:
    return cache_hints.rewrite(RewriteInput(source, "_k", devices.find("h200")))


def policies(*statements: str) -> list[str | None]:
    """The policy of each load, in the order of the text."""
    calls = (n for n in ast.walk(ast.parse(rewritten(file(*statements)))) if isinstance(n, ast.Call))
    loads = sorted((c.lineno, c.col_offset, c) for c in calls if ast.unparse(c.func) == "tl.load")
    said = [next((k.value for k in c.keywords if k.arg == "eviction_policy"), None) for _, _, c in loads]
    return [ast.literal_eval(s) if s is not None else None for s in said]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["x = tl.load(X + i)"], ["evict_first"]),
        (["x = tl.load(X + i, mask=i < n, other=0.0,)"], ["evict_first"]),
        (["x = tl.load(X + i)", "w = tl.load(W + i, i < n)"], ["evict_first", "evict_last"]),
        (["w = tl.load(W + group * n + i)", "x = tl.load(X + i)"], ["evict_last", "evict_first"]),
        (["x = tl.load(X + i)", "s = tl.sum(x)", "x = tl.load(X + i)"], ["evict_last", "evict_first"]),
        (["p = X + i", "x = tl.load(p)"], ["evict_first"]),
        (["s = tl.load(W)", "x = tl.load(X + i)"], [None, "evict_first"]),  # a number, not a tile
        (["x = tl.load(X + i, cache_modifier='.cg')", "w = tl.load(W + i)"], [None, "evict_last"]),
    ],
)  # fmt: skip
def test_a_load_says_whether_its_data_are_needed_again(statements: list[str], expected: list[str | None]) -> None:
    assert policies(*statements) == expected


@pytest.mark.parametrize(
    "statements",
    [
        ["x = tl.dot(tl.load(X + i), tl.load(W + i))"],
        ["x = tl.load(X + i, volatile=True)"],
        ["x = tl.load(helper(X) + i)"],
        ["s = tl.load(W)"],
    ],
)
def test_kernels_with_dots_and_loads_that_nobody_knows_stay(statements: list[str]) -> None:
    with pytest.raises(DoesNotApply):
        rewritten(file(*statements))


def test_only_the_policies_are_new() -> None:
    source = file("x = tl.load(X + i, mask=i < n)  # größe", "tl.store(Y + row * n + i, x)")
    changed = rewritten(source)
    assert changed.replace(', eviction_policy="evict_first"', "") == source
    with pytest.raises(DoesNotApply):
        rewritten(changed)
