"""JSON Schemas of what commands print with `--json`, and of recordings: made from the dataclasses that are written.

`docs/schemas/` holds them; a change that a reader could notice gets a new VERSION. A test compares the files with this
module, and what commands print with the files.
"""

from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.commands import json_schema
from pgo_agent.agent.commands.doctor import Finding
from pgo_agent.agent.commands.init.outcome import Outcome
from pgo_agent.agent.commands.verdicts import Known
from pgo_agent.agent.llm.models.recording import Call, Head
from pgo_agent.agent.profile.case_profile import Profile
from pgo_agent.agent.run import events
from pgo_agent.agent.run.cost import Estimate
from pgo_agent.agent.run.proved import Proved
from pgo_agent.agent.views.outline import CandidateOutline, RunOutline
from pgo_agent.sandbox.json_codec import JsonObject

VERSION = 1
ID = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class WholeRun(RunOutline):
    """What `show RUN --json` prints."""

    commit: str  # of pgo-agent, as the run began; empty: not recorded
    seed: int
    models: dict[str, str]  # role -> model
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
    "profile": Profile,
    "prove": Proved,
    "init": Outcome,
    "lessons": list[str],
    "recording": Head | Call,  # of a line: the first, and each of the others
}
NAMES = ("events", *OBJECTS)


def schema(name: str) -> JsonObject:
    """Return the schema of what a command prints; of `events`, that of a line. Raises KeyError for another name."""
    if name == "events":
        named: dict[str, JsonObject] = {}
        about: JsonObject = {"run": {"type": "string"}, "workspace": {"type": "string"}}
        kinds = [of_type(kind, kind.type, named, about) for kind in events.KINDS.values()]
        return head(name) | {"oneOf": kinds, "$defs": dict(sorted(named.items()))}
    return head(name) | json_schema.schema(OBJECTS[name])


def head(name: str) -> JsonObject:
    """Return what a schema begins with."""
    return {"$schema": ID, "title": f"pgo-agent {name}, version {VERSION}"}


def of_type(kind: Any, word: str, named: dict[str, JsonObject], about: JsonObject | None = None) -> JsonObject:
    """Return the schema of a line that begins with its type, then has what is told `about` it, and its fields.
    `named`: gets the types in it."""
    made: Any = json_schema.object_of(kind, named)
    first: JsonObject = {"type": {"const": word}, **(about or {})}
    return {**made, "properties": first | made["properties"], "required": ["type", *made["required"]]}
