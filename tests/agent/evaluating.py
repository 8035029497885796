"""Runs jit functions as plain Python over whole numbers and numpy tiles: index arithmetic without Triton, and fast.

Memory is one array of numbers, pointers are places in it. A launch computes the heuristics that a file asks for, as
Triton does. It knows what index arithmetic needs, and descriptors as Triton documents them: base and steps of 16 bytes,
offsets in the contiguous dimension of 16 bytes, sizes that are not negative. Elements have two bytes.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import torch

SIZE = 1 << 21
MEMORY = np.random.default_rng(0).integers(1, 1000, SIZE)
Stores = list[Any]


class OutOfMemory(Exception):
    """A read at an address that is none: the launch means nothing."""


class Broken(Exception):
    """What Triton's documentation forbids was done with a descriptor."""


class Pointer(int):
    """A tensor of fp16, as a launch sees it."""

    dtype = torch.float16

    def element_size(self) -> int:
        return 2

    def data_ptr(self) -> int:
        return 2 * int(self)


def run(source: str, kernel: str, arguments: Mapping[str, Any], programs: Sequence[int] = (0, 0, 0)) -> Stores:
    """What a kernel stores, in order. Raises OutOfMemory and Broken."""
    stores: Stores = []
    functions = _functions(source, _language(programs, stores))
    given = dict(arguments)
    for name, value in _heuristics(source, kernel).items():
        given[name] = eval(value, functions)(given)
    functions[kernel](**{n: int(v) if isinstance(v, Pointer) else v for n, v in given.items()})
    return stores


def launched(source: str, kernel: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the heuristics of a kernel give for a launch."""
    functions = _functions(source, _language((0, 0, 0), []))
    given = dict(arguments)
    for name, value in _heuristics(source, kernel).items():
        given[name] = eval(value, functions)(given)
    return {n: given[n] for n in _heuristics(source, kernel)}


def same(one: Stores, other: Stores) -> bool:
    return len(one) == len(other) and all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(one, other, strict=True)
    )


def _functions(source: str, language: Any) -> dict[str, Any]:
    """The functions of a file, without decorators and annotations."""
    namespace = {"tl": language, "torch": torch}
    exec(_compiled(source), namespace)
    return namespace


@cache
def _compiled(source: str) -> CodeType:
    tree = ast.parse(source)
    tree.body = [n for n in tree.body if not isinstance(n, ast.Import | ast.ImportFrom)]
    return compile(ast.fix_missing_locations(_Plain().visit(tree)), "kernel", "exec")


class _Plain(ast.NodeTransformer):
    """Takes decorators and annotations away, and writes `x += y` as `x = x + y`: Triton changes no tile in place."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(node.arg), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        before = ast.Name(ast.unparse(node.target), ast.Load())
        return ast.copy_location(ast.Assign([node.target], ast.BinOp(before, node.op, node.value)), node)


@cache
def _heuristics(source: str, kernel: str) -> dict[str, str]:
    functions = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    for d in functions[kernel].decorator_list:
        if isinstance(d, ast.Call) and ast.unparse(d.func) == "triton.heuristics" and isinstance(d.args[0], ast.Dict):
            pairs = zip(d.args[0].keys, d.args[0].values, strict=True)
            return {k.value: ast.unparse(v) for k, v in pairs if isinstance(k, ast.Constant)}
    return {}


def _language(programs: Sequence[int], stores: Stores) -> Any:
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)

    def counted(low: int, high: int | None = None, step: int = 1, **_hints: Any) -> range:
        return range(0, low, step) if high is None else range(low, high, step)

    def dot(a: Any, b: Any, acc: Any = 0, **_options: Any) -> Any:
        return acc + (a @ b) % 100003

    plain: dict[str, Callable[..., Any]] = {
        "program_id": lambda axis: programs[axis],
        "arange": np.arange,
        "load": _load,
        "store": lambda *given, mask=None: stores.append((*given, *([] if mask is None else [mask]))),
        "atomic_add": lambda *given: stores.append(given) or 0,
        "zeros": lambda shape, dtype: np.zeros(shape, np.int64),
        "dot": dot,
        "trans": lambda x: x.T,
        "sum": lambda x, axis=None: x.sum(axis),
        "cdiv": cdiv,
        "minimum": min,
        "maximum": max,
        "cast": lambda x, dtype: x,
        "multiple_of": lambda x, _by: x,
        "max_contiguous": lambda x, _by: x,
        "where": np.where,
        "range": counted,
        "static_range": counted,
        "make_tensor_descriptor": _Descriptor,
    }
    return SimpleNamespace(**plain, int64="int64", int32="int32", float32="float32", constexpr=None)


def _load(pointer: Any, mask: Any = None, other: Any = 0) -> Any:
    places = np.asarray(pointer)
    inside = np.ones(places.shape, bool) if mask is None else np.broadcast_to(mask, places.shape)
    found = np.where(inside, _read(places, inside), other)
    return found if found.ndim else int(found)


def _read(places: Any, inside: Any) -> Any:
    if ((places < 0) | (places >= SIZE))[inside].any():
        raise OutOfMemory
    return MEMORY[np.where(inside, places, 0)]


class _Descriptor:
    def __init__(self, base: int, shape: list[int], strides: list[int], block_shape: list[int]) -> None:
        self.base, self.shape, self.strides, self.block = base, shape, strides, block_shape
        if base * 2 % 16 or strides[0] * 2 % 16 or strides[1] != 1 or block_shape[1] * 2 < 16:
            raise Broken(f"base {base}, strides {strides}, block {block_shape}")
        if min(shape) < 0 or max(shape) >= 2**31:
            raise Broken(f"shape {shape}")

    def load(self, offsets: list[int]) -> Any:
        if offsets[1] * 2 % 16:
            raise Broken(f"offsets {offsets}")
        i, j = np.ogrid[: self.block[0], : self.block[1]]
        i, j = i + offsets[0], j + offsets[1]
        inside = (i >= 0) & (i < self.shape[0]) & (j >= 0) & (j < self.shape[1])
        return np.where(inside, _read(self.base + i * self.strides[0] + j * self.strides[1], inside), 0)
