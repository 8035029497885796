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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from pgo_agent.sandbox import parsing
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

_FLOATS = ("float32", "float16", "bfloat16", "float8e4nv", "float8e5", "float8e4b8", "float8e5b16", "float8e4b15",
           "half", "float", "float8_e4m3fn", "float8_e5m2")  # fmt: skip
_HOMES = ("tl", "torch", "triton.language", "language", "core")
_one_at_a_time = threading.RLock()


def launcher(text: str, name: str, given: Iterable[Any]) -> Callable[..., Any]:
    """Return the function `name` of a text, for arguments such as the given ones. Raises what the text raises."""
    tensors = [t for t in given if isinstance(t, torch.Tensor)]
    floats = {t.dtype for t in tensors if t.is_floating_point()}
    host = not any(t.device.type == "cuda" for t in tensors)
    if host:
        _as_compiled()
    function: Callable[..., Any] = _names(text, floats == {torch.float64}, host)[name]
    return _on_host(function) if host else function


@cache
def _names(text: str, wide: bool, _host: bool) -> dict[str, Any]:
    """Execute a text; return its names. `wide`: with float64 in place of all floats. What it imports is not the same on
    the host."""
    text = widened(text) if wide else text
    file = f"<original kernel {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads its functions there
    names = {"__name__": f"pgo_original_{file[-17:-1]}", "__file__": file}
    exec(compile(text, file, "exec"), names)
    return names


def widened(text: str) -> str:
    """Return a text with float64 where it names a shorter float, and with launches in one stage: such tiles take more
    shared memory."""
    return ast.unparse(ast.fix_missing_locations(_Wide().visit(parsing.module(text)))) + "\n"


class _Wide(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if node.attr in _FLOATS and ast.unparse(node.value) in _HOMES:
            node.attr = "float64"
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        if node.arg == "num_stages":
            node.value = ast.Constant(1)
        return node


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
