"""JSON Schemas of the lines that `eval gate` and `eval compare` print with `--json`. `docs/schemas/` holds them."""

from pgo_agent.agent.commands import json_schema, schemas
from pgo_agent.evals.gate.report import EntryLine, Summary
from pgo_agent.evals.regressions.compare import Compared
from pgo_agent.evals.regressions.report import CASE, ENDED, Ended
from pgo_agent.sandbox.json_codec import JsonObject

NAMES = ("eval-gate", "eval-compare")


def schema(name: str) -> JsonObject:
    """Return the schema of a line. Raises KeyError for another name."""
    if name == "eval-gate":
        return schemas.head(name) | json_schema.schema(EntryLine | Summary)
    if name == "eval-compare":
        named: dict[str, JsonObject] = {}
        kinds = [schemas.of_type(kind, word, named) for kind, word in ((Compared, CASE), (Ended, ENDED))]
        return schemas.head(name) | {"oneOf": kinds, "$defs": dict(sorted(named.items()))}
    raise KeyError(name)
