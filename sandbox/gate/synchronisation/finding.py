"""A finding of a rule of this stage, in a kernel or a plan."""

from dataclasses import dataclass

from pgo_agent.sandbox.gate.barriers.values import place
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir.tree import Module, Op

ORDER = (Verdict.DEADLOCK, Verdict.RACE, Verdict.UNDECIDED)  # the gravest first


@dataclass(frozen=True)
class Finding:
    """One broken rule, or why a rule could not be decided."""

    verdict: Verdict
    sentence: str  # one line that a person understands
    rule: str  # name of the rule
    case: str = ""  # the held-out case of the launch; empty: a public one, or none


def at(module: Module, op: Op) -> str:
    """Return the location of an operation: "line 12 (kernel.py:20)"."""
    loc = place(module.locations.frames(op.location))
    return f"line {op.line} ({loc})" if loc else f"line {op.line}"


def called(module: Module, op: Op) -> str:
    """Return an operation with its location: "the atomic_rmw at line 12"."""
    return f"the {op.name.rpartition('.')[2]} at {at(module, op)}"
