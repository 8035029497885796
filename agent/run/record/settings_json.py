"""The settings and facts of a run as the one JSON object that its record holds, and back.

What the record lacks takes its default. What it says in a way that cannot be read takes it, too, and is named: such a
run can be shown, and nobody goes on with it. What this version does not know is named as well.
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
from pgo_agent.sandbox.json_codec import Malformed

T = TypeVar("T", RunSettings, RunFacts)
GIVEN = {"name": "from", "kind": "kind", "source": "source"}  # field of a given file -> its key


@dataclass(frozen=True)
class Stored:
    """What a record says of how a run was begun."""

    settings: RunSettings
    facts: RunFacts
    damaged: tuple[str, ...]  # keys whose values cannot be read
    unknown: tuple[str, ...]  # keys that this version has no use for


def encode(asked: RunSettings, facts: RunFacts) -> dict[str, Any]:
    """Return both as one JSON object. Settings that hold for one command, or stand elsewhere, are left out."""
    own = {key: json_codec.as_json(getattr(asked, name)) for name, key in _keys(RunSettings)}
    known = {key: json_codec.as_json(getattr(facts, name)) for name, key in _keys(RunFacts) if name != "given"}
    return own | known | {"given": [{key: getattr(g, name) for name, key in GIVEN.items()} for g in facts.given]}


@lru_cache(maxsize=64)
def decode(text: str, device: str) -> Stored:
    """Return what `encode` wrote as `text`, for a run that compiles for `device`, whatever version wrote it."""
    body = _object(text)
    facts, bad = _read(RunFacts, body | {"given": [_given(g) for g in _list(body.get("given"))]})
    asked, damaged = _read(RunSettings, body)
    known = {key for kind in (RunSettings, RunFacts) for _, key in _keys(kind)}
    models = tuple(f"{role}={name}" for role, name in facts.models.items())
    unknown = tuple(sorted(body.keys() - known))
    return Stored(replace(asked, device=device, models=models), facts, (*damaged, *bad), unknown)


def _keys(kind: type[RunSettings] | type[RunFacts]) -> Iterator[tuple[str, str]]:
    """Name and key of each field that is stored."""
    for f in fields(kind):
        key = settings.stored_as(f.name) if kind is RunSettings else f.name
        if key:
            yield f.name, key


def _read(kind: type[T], body: Mapping[str, Any]) -> tuple[T, tuple[str, ...]]:
    """The values that can be read, and the keys of the others."""
    hints, values, damaged = get_type_hints(kind), dict[str, Any](), list[str]()
    for name, key in _keys(kind):
        if key in body:
            try:
                values[name] = json_codec.from_json(hints[name], body[key])
            except Malformed:
                damaged.append(key)
    return kind(**values), tuple(damaged)


def _object(text: str) -> dict[str, Any]:
    body = json.loads(text)
    return body if isinstance(body, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _given(value: Any) -> Any:
    """A given file by the names of its fields; what is none stays what it is, and is refused."""
    if not isinstance(value, dict):
        return value
    return {name: value[key] for name, key in GIVEN.items() if key in value}
