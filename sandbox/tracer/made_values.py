"""Values that are neither tensors nor plain, as the text that makes them: members of enums, dataclasses, named tuples,
types of Triton, functions and classes of a module.

A text is given where it makes an equal value. It calls nothing but the class of a dataclass or of a named tuple.
"""

import dataclasses
import sys
from collections.abc import Mapping
from enum import Enum
from types import FunctionType
from typing import Any

import torch
import triton.language as tl

DEEP = 4  # dataclasses in dataclasses


def made(value: Any) -> dict[str, Any] | None:
    """Return the text of a value, with the names that it uses: name -> the module that has it, and that one's file."""
    names = dict[str, Any]()
    try:
        text = _text(value, names, DEEP)
    except _Unknown:
        return None
    files = {n: str(getattr(sys.modules[m], "__file__", None) or "") for n, m in names.items()}
    return {"text": text, "names": {n: [m, files[n]] for n, m in names.items()}}


class _Unknown(Exception):
    """No text makes it."""


def _text(value: Any, names: dict[str, Any], deep: int) -> str:
    if not deep:
        raise _Unknown
    if isinstance(value, Enum):
        return f"{_name(type(value), names)}.{value.name}" if value.name else _none()
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f'float("{value!r}")'
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, tl.dtype):
        names["tl"] = "triton.language"
        return next((f"tl.{n}" for n, v in vars(tl).items() if type(v) is type(value) and v == value), None) or _none()
    if isinstance(value, FunctionType | type):
        return _name(value, names)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _called(value, {n: getattr(value, n) for n in value._fields}, names, deep)
    if isinstance(value, tuple):
        return f"({''.join(f'{_text(v, names, deep - 1)}, ' for v in value)})"
    if dataclasses.is_dataclass(value):
        return _called(
            value, {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}, names, deep
        )
    raise _Unknown


def _called(value: Any, fields: Mapping[str, Any], names: dict[str, Any], deep: int) -> str:
    parts = ", ".join(f"{n}={_text(v, names, deep - 1)}" for n, v in fields.items())
    return f"{_name(type(value), names)}({parts})"


def _name(of: Any, names: dict[str, Any]) -> str:
    """Return the name by which a module has a class or a function, and note it."""
    module, name = of.__module__, of.__qualname__
    if module == "builtins" or not name.isidentifier() or getattr(sys.modules.get(module), name, None) is not of:
        raise _Unknown
    if names.setdefault(name, module) != module:
        raise _Unknown
    return str(name)


def _none() -> str:
    raise _Unknown
