"""Frozen dataclasses as plain JSON values and back, by their annotations.

Covers dataclasses, tuples, lists, dicts with str keys, typed dicts, optional values, enumerations of str, str, int,
float and bool. Anything else is refused when it is written or read; nothing is guessed. A field that is OPTIONAL is
left out where it holds its default, and may be missing when it is read.
"""

import dataclasses
import types
from enum import StrEnum
from functools import cache
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")
JsonObject = dict[str, object]  # an object of JSON whose fields nobody here needs to know


OPTIONAL = {"optional": True}  # metadata of a dataclass field


class Malformed(ValueError):
    """A value that is not of the type that was asked for."""


class Record:
    """A base for frozen dataclasses that are written as JSON: field by field, or by methods of their own."""

    def as_json(self) -> JsonObject:
        """Return its fields as plain JSON values. Raises Malformed for a value that JSON has no form of."""
        return _fields(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the inverse of `as_json`. Raises Malformed."""
        result: Self = _record(cls, value)
        return result


def as_json(x: object) -> Any:
    """Return plain JSON values of a record, a tuple of them, or a plain value. Raises Malformed for any other type."""
    if x is None or isinstance(x, str | int | float):
        return str(x) if isinstance(x, StrEnum) else x
    if isinstance(x, Record):
        return x.as_json()
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return _fields(x)
    if isinstance(x, tuple | list):
        return [as_json(v) for v in x]
    if isinstance(x, dict) and all(isinstance(k, str) for k in x):
        return {k: as_json(v) for k, v in x.items()}
    raise Malformed(f"{type(x).__name__} has no form in JSON here")


def from_json(kind: Any, value: Any) -> Any:
    """Return the value of type `kind` that `as_json` wrote. Raises Malformed where `value` is something else."""
    origin = get_origin(kind)
    if kind in (Any, object):
        return value
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_json(value)
    if dataclasses.is_dataclass(kind):
        return _record(kind, value)
    if origin in (Union, types.UnionType):
        return _either(get_args(kind), value)
    if is_typeddict(kind):
        return _document(kind, value)
    if origin is list:
        return list(_tuple((*get_args(kind), ...), value))
    if origin is tuple:
        return _tuple(get_args(kind), value)
    if origin is dict:
        _need(isinstance(value, dict), kind, value)
        return {str(k): from_json(get_args(kind)[1], v) for k, v in value.items()}
    return _plain(kind, value)


def decoded(kind: type[T], value: Any) -> T:
    """Return what `from_json` does, typed as the class."""
    result = from_json(kind, value)
    _need(isinstance(result, kind), kind, value)
    return result  # type: ignore[no-any-return]


def _fields(x: Any) -> JsonObject:
    fields = ((f, getattr(x, f.name)) for f in dataclasses.fields(x))
    return {f.name: as_json(v) for f, v in fields if not (f.metadata.get("optional") and v == f.default)}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _record(kind: Any, value: Any) -> Any:
    hints = _hints(kind)
    fields = {f.name: f.metadata.get("optional") for f in dataclasses.fields(kind)}
    needed = {name for name, left_out in fields.items() if not left_out}
    _need(isinstance(value, dict) and needed <= value.keys() <= fields.keys(), kind, value)
    read = {}
    for name, field_value in value.items():
        try:
            read[name] = from_json(hints[name], field_value)
        except Malformed as e:
            raise Malformed(f"{name}: {e}") from None
    return kind(**read)


def _document(kind: Any, value: Any) -> Any:
    """Return a typed dict as it is: what it says has the types that it should, and more may stand there."""
    _need(isinstance(value, dict), kind, value)
    for name in _hints(kind).keys() & value.keys():
        from_json(_hints(kind)[name], value[name])
    return value


def _either(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is not None and len(kinds) == 2 and types.NoneType in kinds:  # which says best what is wrong
        return from_json(next(k for k in kinds if k is not types.NoneType), value)
    for kind in kinds:
        try:
            return from_json(kind, value)
        except Malformed:
            continue
    raise Malformed(f"{value!r:.60} is none of {kinds}")


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    _need(isinstance(value, list | tuple), tuple, value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_json(kinds[0], v) for v in value)
    _need(len(value) == len(kinds), tuple, value)
    return tuple(from_json(k, v) for k, v in zip(kinds, value, strict=True))


def _plain(kind: Any, value: Any) -> Any:
    if kind is float and type(value) is int:
        return float(value)  # JSON does not tell 1 from 1.0
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        _need(type(value) is str and value in list(kind), kind, value)
        return kind(value)
    _need(type(value) is (type(None) if kind is None else kind), kind, value)
    return value


def _need(fine: bool, kind: Any, value: Any) -> None:
    if not fine:
        raise Malformed(f"{value!r:.60} is not a {getattr(kind, '__name__', kind)}")
