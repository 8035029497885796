"""Frames of a user's program: calls of functions with their arguments, and the lines that are the user's own."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

MOST_PARAMETERS = 64  # of a module
FUNCTION_METHODS = ("forward", "backward")
_NOT_THEIRS = ("site-packages", "dist-packages", "/lib/python3")  # in the paths of files that are not the user's


class Call:
    """One call of a function of the watched file, or of its package."""

    def __init__(self, frame: FrameType, args: dict[str, Any]) -> None:
        code = frame.f_code
        self.file, self.name, self.line, self.args = code.co_filename, code.co_qualname, code.co_firstlineno, args
        self.code = code
        self.whole = not any(frame.f_locals.get(n) for n in _variadic(code))  # its arguments are all named
        self.launches: list[dict[str, Any]] = []
        self.used = False  # something was launched in it
        self.written = set[int]()  # storages that torch operators of it, or of what it called, wrote into
        self.asked = False  # for the value of a tensor, which no plan can hold
        self.result: Any = None
        self.context = args.get("ctx")  # of an autograd Function
        self.site: dict[str, Any] | None = None  # the line of the user's program that led to it, and its names

    @property
    def callable(self) -> bool:
        """Whether a target can call it: a function of its module, or a method of an autograd Function."""
        owner, _, method = self.name.rpartition(".")
        plain = not owner and "<" not in self.name and self.whole
        return plain or ("ctx" in self.args and method in FUNCTION_METHODS and "<" not in self.name)

    @property
    def given_tensors(self) -> bool:
        return any(isinstance(x, torch.Tensor) for x in tree_leaves(self.args))


def named(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield a function's names with their values, and parameters and buffers of its modules by their dotted names."""
    for name, value in list(names.items()):
        yield name, value
        if isinstance(value, torch.nn.Module):
            for inner, tensor in islice((*value.named_parameters(), *value.named_buffers()), MOST_PARAMETERS):
                yield f"{name}.{inner}", tensor


def arguments(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {n: frame.f_locals[n] for n in names if n in frame.f_locals}


def _variadic(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's `*args` and `**kwargs`."""
    at = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[at : at + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)]


def file_of(kernel: Any) -> str:
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return str(code.co_filename) if code else ""


@cache
def theirs(file: str) -> bool:
    """Whether a file is the user's: not of an installed package, and not ours."""
    if file == "<call>":
        return True
    here = str(Path(__file__).parent)
    return not file.startswith(("<", here)) and not any(part in file for part in _NOT_THEIRS)


def innermost() -> FrameType | None:
    """The innermost frame that runs now of the user's program, outside of installed packages."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def where() -> str:
    """The line of the user's program that runs now."""
    frame = innermost()
    return f" ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})" if frame else ""
