"""A kernel as it stood, in place of a reference: compiled on a GPU, run by Triton's interpreter on host tensors.

For tensors of float64, in which the exact result is computed, the floats that its text names are float64, too. The text
stands in the contract, so no candidate reaches it. It is no independent reference: what was wrong in the kernel is
wrong here. Relies on the functions of this room, which replace what Triton's interpreter computes otherwise than
compiled code; they stay, so a process that interprets an original compiles nothing afterwards.
"""

import ast
import hashlib
import linecache
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from pgo_agent.sandbox import parsing
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

_FLOATS = ("float32", "float16", "bfloat16", "float8e4nv", "float8e5", "float8e4b8", "float8e5b16", "float8e4b15",
           "half", "float", "float8_e4m3fn", "float8_e5m2")  # fmt: skip
HALVINGS, LEAST = 3, 16  # of block sizes, to what at least
_DOTS = ("tl.dot", "triton.language.dot")
_HOMES = ("tl", "torch", "triton.language", "language", "core")
_one_at_a_time = threading.RLock()


def launcher(text: str, name: str, given: Iterable[Any], tiles: Sequence[str] = ()) -> Callable[..., Any]:
    """Return the function `name` of a text, for arguments such as the given ones. Raises what the text raises.

    `tiles`: block sizes that a launch may halve, for the grid follows them and no result has a part for each block.
    """
    tensors = [t for t in given if isinstance(t, torch.Tensor)]
    floats = {t.dtype for t in tensors if t.is_floating_point()}
    wide = floats == {torch.float64}
    if any(t.device.type == "cuda" for t in tensors):
        return _with_smaller_tiles(text, name, tuple(tiles)) if wide else _function(text, name)
    _as_compiled()
    return _on_host(_function(widened(text) if wide else text, name, host=True))


def _with_smaller_tiles(text: str, name: str, tiles: tuple[str, ...]) -> Callable[..., Any]:
    """Return the function of a widened text: with tiles half as large where they do not fit into shared memory."""

    def call(*args: Any, **options: Any) -> Any:
        for halvings in range(HALVINGS if tiles else 0):
            try:
                return _function(widened(text, tiles, halvings), name)(*args, **options)
            except OutOfResources:
                continue
        return _function(widened(text, tiles, HALVINGS if tiles else 0), name)(*args, **options)

    return call


def _function(text: str, name: str, host: bool = False) -> Callable[..., Any]:
    function: Callable[..., Any] = _names(text, host)[name]
    return function


@cache
def _names(text: str, _host: bool) -> dict[str, Any]:
    """Execute a text; return its names. What it imports is not the same on the host."""
    file = f"<original kernel {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads its functions there
    names = {"__name__": f"pgo_original_{file[-17:-1]}", "__file__": file}
    exec(compile(text, file, "exec"), names)
    for tuner in (t for t in names.values() if isinstance(t, Autotuner)):
        tuner._bench = _untimed  # the first of its configurations is taken: a reference is not tuned
    return names


def _untimed(*_args: Any, **_options: Any) -> list[float]:
    return [0.0]


@cache
def widened(text: str, tiles: tuple[str, ...] = (), halvings: int = 0) -> str:
    """Return a text with float64 where it names a shorter float or begins a sum with a number, and with launches in one
    stage: such tiles take more shared memory. `halvings`: of those tiles, where launches name them as numbers."""
    return ast.unparse(ast.fix_missing_locations(_Wide(tiles, halvings).visit(parsing.module(text)))) + "\n"


class _Wide(ast.NodeTransformer):
    def __init__(self, tiles: tuple[str, ...], halvings: int) -> None:
        self.tiles, self.halvings = tiles, halvings

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        if any("jit" in ast.unparse(d) for d in node.decorator_list):
            carried = {n for loop in ast.walk(node) if isinstance(loop, ast.For | ast.While) for n in _assigned(loop)}
            for one in ast.walk(node):
                if isinstance(one, ast.Assign) and _assigned(one) & carried:
                    one.value = _doubles(one.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if node.attr in _FLOATS and ast.unparse(node.value) in _HOMES:
            node.attr = "float64"
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if ast.unparse(node.func) in _DOTS and not any(k.arg == "out_dtype" for k in node.keywords):
            node.keywords.append(ast.keyword("out_dtype", parsing.expression("tl.float64")))  # else it is fp32
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        if node.arg == "num_stages":
            node.value = ast.Constant(1)
        if node.arg in self.tiles and isinstance(node.value, ast.Constant) and type(node.value.value) is int:
            size = node.value.value
            node.value = ast.Constant(max(min(size, LEAST), size >> self.halvings))
        return node


def _assigned(node: ast.AST) -> set[str]:
    """Return the names that are assigned in a statement."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _doubles(value: ast.expr) -> ast.expr:
    """Return a value with the numbers that are written down in it, alone or in a tuple, as tensors of float64."""
    if isinstance(value, ast.Tuple):
        return ast.Tuple([_doubles(v) for v in value.elts], value.ctx)
    return parsing.expression(f"tl.full((), {ast.unparse(value)}, tl.float64)") if _number(value) else value


def _number(value: ast.expr) -> bool:
    """Whether an expression is a float that is written down: compiled code takes it for fp32, also in a loop."""
    if isinstance(value, ast.UnaryOp):
        return _number(value.operand)
    called = isinstance(value, ast.Call) and ast.unparse(value.func) == "float"
    return called or (isinstance(value, ast.Constant) and type(value.value) is float)


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        with _one_at_a_time, _interpreting():
            return function(*args, **options)

    return call


@contextmanager
def _interpreting() -> Iterator[None]:
    """Let the kernels that are launched, and the functions that they call, be interpreted."""
    blocks, memory = _as_compiled()
    memory.forget()
    memory.begin()
    blocks.begin()
    before = JITFunction.run, JITFunction.__call__, JITFunction.__hash__

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        _interpreted(kernel.fn).run(*args, grid=_whole(grid), warmup=warmup, **options)

    JITFunction.run, JITFunction.__call__ = run, lambda kernel, *a, **k: _interpreted(kernel.fn)(*a, **k)
    JITFunction.__hash__ = lambda kernel: hash(kernel.hash or id(kernel))  # its own reads what is replaced meanwhile
    try:
        yield
    finally:
        JITFunction.run, JITFunction.__call__, JITFunction.__hash__ = before


def _whole(grid: Any) -> Any:
    return tuple(grid) if isinstance(grid, list) else grid


@cache
def _interpreted(function: Callable[..., Any]) -> Any:
    return interpreter.InterpretedFunction(function)


@cache
def _as_compiled() -> tuple[Any, Any]:
    """Let Triton's interpreter compute as compiled code does; return its blocks and its memory."""
    from pgo_agent.sandbox.interpreter import (  # which compute with real tensors when they are imported
        arithmetic,
        blocks,
        builtin_names,
        libdevice,
        memory,
        products,
        reductions,
        repeated,
        scalars,
        syntax,
    )

    for module in (repeated, scalars, builtin_names, arithmetic, products, reductions, syntax, libdevice):
        module.install()
    running = blocks.Blocks()
    known = memory.Memory(running, "")
    running.install(known.know)
    known.install()
    return running, known
