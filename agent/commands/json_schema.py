"""JSON Schemas of dataclasses, by the rules by which `sandbox/json_codec.py` writes them.

Every field is written, but for those that are OPTIONAL. Named types stand under `$defs`. What the codec cannot write is
refused.
"""

import dataclasses
import types
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from pgo_agent.sandbox.json_codec import OPTIONAL, JsonObject

PLAIN: dict[Any, JsonObject] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    types.NoneType: {"type": "null"},
    Any: {},
    object: {},
    dict: {"type": "object"},
}


def schema(kind: Any) -> JsonObject:
    """Return the schema of a type, with those of the types in it. Raises TypeError for one that is not written."""
    named: dict[str, JsonObject] = {}
    return _of(kind, named) | ({"$defs": dict(sorted(named.items()))} if named else {})


def _of(kind: Any, named: dict[str, JsonObject]) -> JsonObject:
    origin, inner = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return dict(PLAIN[kind])
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(each, named) for each in inner]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(inner[1], named)}
    if origin is list or (origin is tuple and inner[1:] == (...,)):
        return {"type": "array", "items": _of(inner[0], named)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_of(each, named) for each in inner], "minItems": len(inner)}
    return _named(kind, named)


def _named(kind: Any, named: dict[str, JsonObject]) -> JsonObject:
    name = kind.__name__
    if name not in named:
        named[name] = {}  # it may hold itself
        named[name] = {"type": "string", "enum": list(kind)} if _is_words(kind) else object_of(kind, named)
    return {"$ref": f"#/$defs/{name}"}


def _is_words(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def object_of(kind: Any, named: dict[str, JsonObject]) -> JsonObject:
    """Return the schema of a dataclass or a typed dict. `named`: gets those of the types in it."""
    if not (dataclasses.is_dataclass(kind) or is_typeddict(kind)):
        raise TypeError(f"{kind} has no form in JSON")
    hints = {n: h for n, h in get_type_hints(kind).items() if n in _fields(kind)}
    about = (kind.__doc__ or "").strip().partition("\n")[0]
    body: JsonObject = {} if not about or about.startswith(f"{kind.__name__}(") else {"description": about}
    body |= {"type": "object", "properties": {n: _of(h, named) for n, h in hints.items()}}
    return body | {"required": _fields(kind, needed=True)}


def _fields(kind: Any, needed: bool = False) -> list[str]:
    if is_typeddict(kind):
        return sorted(kind.__required_keys__ if needed else kind.__annotations__)
    return [f.name for f in dataclasses.fields(kind) if not (needed and f.metadata == OPTIONAL)]
