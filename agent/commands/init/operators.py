"""Operators of `torch.library` that a launcher calls by `torch.ops`: a target calls their functions instead.

A target that registered an operator again would clash with the package that registers it. It reads text and imports
nothing.
"""

import ast
import re

from pgo_agent.agent.kernel_part import Block
from pgo_agent.sandbox import parsing

CALLED = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.default)?")
_REGISTERING = ("custom_op", "triton_op", "impl", "register_kernel")
_ELSEWHERE = re.compile(r"fake|meta|abstract|autograd|\bcpu\b", re.IGNORECASE)  # rules for shapes, other devices


def called(text: str) -> set[str]:
    """Return the names of the operators that a text calls, without their namespaces."""
    return {name for _, name in CALLED.findall(text)}


def registers(block: Block, names: set[str]) -> str:
    """Return which of these operators a block defines a function for; empty for none."""
    return next((n for d in _decorators(block) for n in names if _of(d, n)), "")


def plain(block: Block) -> str:
    """Return the text of a function without what registers it."""
    lines = block.text.splitlines(keepends=True)
    node = parsing.module(block.text).body[-1]
    for decorator in reversed(getattr(node, "decorator_list", [])):
        if _name(decorator) in _REGISTERING:
            del lines[decorator.lineno - 1 : decorator.end_lineno]
    return "".join(lines)


def replaced(text: str, functions: dict[str, str]) -> str:
    """Return a text that calls functions in place of operators. `functions`: name of an operator -> its function."""
    return CALLED.sub(lambda m: functions.get(m[2], m[0]), text)


def _decorators(block: Block) -> list[ast.expr]:
    return [d for n in block.nodes if isinstance(n, ast.FunctionDef) for d in n.decorator_list]


def _name(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2]


def _of(decorator: ast.expr, operator: str) -> bool:
    text = ast.unparse(decorator)
    named = re.search(rf"(::|['\"]){operator}['\"(]", text)
    return bool(named) and _name(decorator) in _REGISTERING and not _ELSEWHERE.search(text)
