"""Finds the folder of installed packages that a file lies in, and whether a program imports from one. It imports
nothing, and asks no interpreter."""

import ast
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from pgo_agent.sandbox import parsing

NAMES = ("site-packages", "dist-packages")  # pip's, and Debian's
LIGHT = frozenset({"torch", "triton", "numpy", "scipy", "einops", "packaging", "pytest", "typing_extensions", "tqdm"})


def packages_folder(file: Path) -> Path | None:
    """Return the folder of installed packages that a file lies in, one that `pip install --target` filled included;
    None for any other file."""
    return next((f for f in file.parents if f.name in NAMES or holds_packages(f)), None)


def holds_packages(folder: Path) -> bool:
    """Whether pip has put packages into a folder, whatever its name: it leaves what it knows of each beside it."""
    return any(folder.glob("*.dist-info/RECORD"))


def within(file: Path) -> tuple[str, ...]:
    """Return the parts of a file's path below its folder of installed packages; none for any other file."""
    folder = packages_folder(file)
    return file.relative_to(folder).parts if folder else ()


def imports_packages(*texts: str) -> bool:
    """Return whether one of these programs imports an installed package that is likely to import most of torch."""
    return any(_is_package(name) for name in {n for text in texts for n in _named(text)} - LIGHT)


def imported(module: ast.Module) -> Iterator[str]:
    """Give the first part of each module's name that a program imports, wherever it does; "" for a relative import."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else (node.module or "").partition(".")[0]


def _named(text: str) -> set[str]:
    """Return what a text imports by name; nothing for what is no Python."""
    try:
        return set(imported(parsing.module(text))) - {""}
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return set()


def _is_package(name: str) -> bool:
    spec = None if name in sys.stdlib_module_names else PathFinder.find_spec(name)
    return bool(spec and spec.origin and packages_folder(Path(spec.origin)))
