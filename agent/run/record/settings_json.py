"""The settings and facts of a run as the one JSON object that its record holds, and back.

Missing values take their defaults. Unreadable values do, too, and are listed: such a run can be shown but not resumed.
Keys that this version does not know are listed as well.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from pgo_agent.agent.run import settings
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.json_codec import JsonObject, Malformed

T = TypeVar("T", RunSettings, RunFacts)
GIVEN = {"name": "from", "kind": "kind", "source": "source"}  # field of a given file -> its key


@dataclass(frozen=True)
class Stored:
    """The settings and facts of a run as read from its record."""

    settings: RunSettings
    facts: RunFacts
    damaged: tuple[str, ...]  # keys whose values cannot be read
    unknown: tuple[str, ...]  # keys that this version has no use for


def encode(asked: RunSettings, facts: RunFacts) -> JsonObject:
    """Return both as one JSON object. Settings that hold for one command, or stand elsewhere, are left out."""
    setting_values = {key: json_codec.as_json(getattr(asked, name)) for name, key in _keys(RunSettings)}
    fact_values = {key: json_codec.as_json(getattr(facts, name)) for name, key in _keys(RunFacts) if name != "given"}
    return (
        setting_values
        | fact_values
        | {"given": [{key: getattr(g, name) for name, key in GIVEN.items()} for g in facts.given]}
    )


@lru_cache(maxsize=64)
def decode(text: str, device: str) -> Stored:
    """Return what `encode` wrote as `text`, for a run that compiles for `device`, whatever version wrote it."""
    body = _object(text)
    facts, bad = _read(RunFacts, body | {"given": [_given(g) for g in _list(body.get("given"))]})
    asked, damaged = _read(RunSettings, body)
    keys = {key for kind in (RunSettings, RunFacts) for _, key in _keys(kind)}
    models = tuple(f"{role}={name}" for role, name in facts.models.items())
    unknown = tuple(sorted(body.keys() - keys))
    return Stored(replace(asked, device=device, models=models), facts, (*damaged, *bad), unknown)


def _keys(kind: type[RunSettings] | type[RunFacts]) -> Iterator[tuple[str, str]]:
    """Yield name and key of each stored field."""
    for f in fields(kind):
        key = settings.stored_as(f.name) if kind is RunSettings else f.name
        if key:
            yield f.name, key


def _read(kind: type[T], body: Mapping[str, Any]) -> tuple[T, tuple[str, ...]]:
    """The values that can be read, with defaults for the others, and the keys of the others."""
    hints, values, damaged = get_type_hints(kind), dict[str, Any](), list[str]()
    for name, key in _keys(kind):
        if key in body:
            try:
                values[name] = json_codec.from_json(hints[name], body[key])
            except Malformed:
                damaged.append(key)
    return kind(**values), tuple(damaged)


def _object(text: str) -> JsonObject:
    body = json.loads(text)
    return body if isinstance(body, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _given(value: Any) -> Any:
    """A given file by the names of its fields; any other value is returned as it is, and refused later."""
    if not isinstance(value, dict):
        return value
    return {name: value[key] for name, key in GIVEN.items() if key in value}
