"""How our processes import heavy libraries."""

import ast
import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import Any

from pgo_agent.sandbox import parsing

LIGHT = frozenset({"torch", "triton", "numpy", "scipy", "einops", "packaging", "pytest", "typing_extensions", "tqdm"})


@contextlib.contextmanager
def heavy() -> Iterator[None]:
    """Turn garbage collection off around imports of torch: the objects stay, and collecting takes a sixth of the
    time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def uncompiled(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile out of a `__torch_dispatch__`, as torch does for every mode, without importing torch._dynamo.

    That import takes half as long as torch's, and where nobody has imported it nothing is compiled. For modes whose
    `_should_skip_dynamo` is false: torch would wrap the method once more.
    """
    import torch

    kept_out = torch._disable_dynamo(dispatch, recursive=True)

    @functools.wraps(dispatch)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (kept_out if "torch._dynamo" in sys.modules else dispatch)(*args, **kwargs)

    return call


def imports_packages(*texts: str) -> bool:
    """Return whether one of these programs imports an installed package that is likely to import most of torch."""
    return any(_is_package(name) for name in {n for text in texts for n in _imported(text)} - LIGHT)


def _imported(text: str) -> Iterator[str]:
    """Give the first part of each module that a program names, wherever it imports it; nothing for what is no
    Python."""
    try:
        nodes = list(ast.walk(parsing.module(text)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _is_package(name: str) -> bool:
    spec = None if name in sys.stdlib_module_names else PathFinder.find_spec(name)
    return spec is not None and "site-packages" in (spec.origin or "")
