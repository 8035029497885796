"""JSON Schemas of the lines that evaluations print with `--json`. `docs/schemas/` holds them.

Of `eval ablation`, `eval nightly` and `eval field` it is the line at the end: those before it are events of runs.
"""

from pgo_agent.agent.commands import json_schema, schemas
from pgo_agent.evals.ablation import report as ablation
from pgo_agent.evals.field import report as field
from pgo_agent.evals.gate.report import EntryLine, Summary
from pgo_agent.evals.mutants import report as mutants
from pgo_agent.evals.mutants.results import RowLine
from pgo_agent.evals.nightly import report as nightly
from pgo_agent.evals.regressions.compare import Compared
from pgo_agent.evals.regressions.report import CASE, ENDED, Ended
from pgo_agent.sandbox.json_codec import JsonObject

KINDS = {  # command -> its lines, each with its type
    "eval-compare": ((Compared, CASE), (Ended, ENDED)),
    "eval-ablation": ((ablation.Summary, ablation.COMPLETED), (ablation.Estimated, ablation.ESTIMATED)),
    "eval-nightly": ((nightly.Summary, nightly.COMPLETED),),
    "eval-field": ((field.Counts, field.COMPLETED),),
}
NAMES = ("eval-gate", "eval-mutants", *KINDS)


def schema(name: str) -> JsonObject:
    """Return the schema of a line. Raises KeyError for another name."""
    if name == "eval-gate":
        return schemas.head(name) | json_schema.schema(EntryLine | Summary)
    if name == "eval-mutants":
        return schemas.head(name) | json_schema.schema(RowLine | mutants.Summary)
    named: dict[str, JsonObject] = {}
    kinds = [schemas.of_type(kind, word, named) for kind, word in KINDS[name]]
    return schemas.head(name) | {"oneOf": kinds, "$defs": dict(sorted(named.items()))}
