"""What a rule of this stage finds in a kernel or a plan."""

from dataclasses import dataclass

from pgo_agent.sandbox.gate.barriers.values import place
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir.tree import Module, Op

ORDER = (Verdict.DEADLOCK, Verdict.RACE, Verdict.UNDECIDED)  # the gravest first


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    sentence: str  # one line that a person understands
    rule: str  # which one says so
    case: str = ""  # the held-out case in whose launch it was seen; empty: in a public one, or in the text


def at(module: Module, op: Op) -> str:
    """Where an operation stands, as "line 12 (kernel.py:20)"."""
    loc = place(module.locations.frames(op.location))
    return f"line {op.line} ({loc})" if loc else f"line {op.line}"


def called(module: Module, op: Op) -> str:
    """An operation and where it stands: "the atomic_rmw at line 12"."""
    return f"the {op.name.rpartition('.')[2]} at {at(module, op)}"
