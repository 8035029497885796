"""JSON Schemas of what commands print with `--json`, made from the dataclasses that they print, or that stand here.

`docs/schemas/` holds them; a change that a reader could notice gets a new VERSION. A test compares the files with this
module, and what commands print with the files.
"""

from dataclasses import dataclass, fields
from typing import Any

from pgo_agent.agent.commands.doctor import Finding
from pgo_agent.agent.commands.verdicts import Known
from pgo_agent.agent.run import events
from pgo_agent.agent.run.cost import Estimate
from pgo_agent.agent.views.outline import CandidateOutline, RunOutline
from pgo_agent.sandbox.json_codec import OPTIONAL, JsonObject

VERSION = 1
ID = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class WholeRun(RunOutline):
    """What `show RUN --json` prints."""

    baseline: JsonObject | None
    summary: JsonObject | None
    verdicts: list[CandidateOutline]
    left_out: list[list[str]]
    quarantined: list[JsonObject]
    profiles: list[JsonObject]
    calls: list[JsonObject]
    fallbacks: list[JsonObject]
    spent: dict[str, float]


@dataclass(frozen=True)
class DryRun(Estimate):
    """What `optimize --dry-run --json` prints."""

    limits: dict[str, float | None]


OBJECTS: dict[str, Any] = {
    "runs": list[RunOutline],
    "show": WholeRun,
    "verdict": Known,
    "dry-run": DryRun,
    "doctor": list[Finding],
}
NAMES = ("events", *OBJECTS)


def schema(name: str) -> JsonObject:
    """Return the schema of what a command prints; of `events`, that of a line. Raises KeyError for another name."""
    from pydantic import TypeAdapter

    head: JsonObject = {"$schema": ID, "title": f"pgo-agent {name}, version {VERSION}"}
    if name == "events":
        kinds = [_of_event(kind) for kind in events.KINDS.values()]
        named = {name: body for kind in kinds for name, body in kind.pop("$defs", {}).items()}
        return head | {"oneOf": kinds, "$defs": named}
    body: JsonObject = _without_titles(TypeAdapter(OBJECTS[name]).json_schema(mode="serialization"))
    return head | body


def _of_event(kind: Any) -> Any:
    """Return the schema of one kind of event: its type, the run that tells it, then its fields."""
    from pydantic import TypeAdapter

    made: Any = _without_titles(TypeAdapter(kind).json_schema(mode="serialization"))
    optional = {f.name for f in fields(kind) if f.metadata == OPTIONAL}
    about: JsonObject = {"type": {"const": kind.type}, "run": {"type": "string"}, "workspace": {"type": "string"}}
    required = [name for name in made.get("required", []) if name not in optional]
    return made | {"properties": about | made.get("properties", {}), "required": ["type", *required]}


def _without_titles(value: Any) -> Any:
    """Return a schema without the titles that pydantic makes of names."""
    if isinstance(value, dict):
        return {k: _without_titles(v) for k, v in value.items() if not (k == "title" and isinstance(v, str))}
    return [_without_titles(v) for v in value] if isinstance(value, list) else value
