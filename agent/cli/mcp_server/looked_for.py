"""Which races were looked for in a candidate, and where: in our own words, from the stages of its verdict.

A stage that found one is the verdict itself. Counts and lines stay in the record: they may be of held-out cases.
"""

from collections.abc import Mapping
from typing import Any

from pgo_agent.sandbox.gate.evidence import PASSED
from pgo_agent.sandbox.gate.verdict import Verdict

STAGES = {
    "deadlock": "between the warps of a block, by a simulation of barriers and of copies into shared memory",
    "synchronisation": "between blocks and launches, by rules for flags, locks and early launches",
    "race": "on a GPU, by repeats and a build with checks",
}
UNSEEN = "; not on a GPU, where alone the order of threads is tried"


def races(evidence: Mapping[str, Any]) -> str:
    """Return what was looked for and what came of it, of a candidate's evidence by stage; empty before any stage."""
    listed = next((body["stages"] for body in evidence.values() if "stages" in body), ())
    outcomes = {str(s["stage"]): str(s["verdict"]) for s in listed}
    said = [f"{where}: {_outcome(outcomes[stage])}" for stage, where in STAGES.items() if stage in outcomes]
    return "; ".join(said) + (UNSEEN if said and "race" not in outcomes else "")


def _outcome(verdict: str) -> str:
    if verdict == Verdict.UNDECIDED:
        return "not decided"
    return "none found" if verdict == PASSED else f"the verdict is {verdict}"
