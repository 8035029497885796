"""What a candidate's kernels were compiled to, in lines: registers, spills and notes of ptxas, the worst first.

Made from the record; the held-out cases are left out. Runs nothing.
"""

from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.gate.coverage import PUBLIC

MOST = 8  # lines


def lines(c: Candidate) -> list[str]:
    """Return a line for each kernel and configuration that was compiled to something else, at most MOST."""
    spilled = dict[str, int]()
    for label, static in _built(c):
        words = said(static, label)
        spilled.setdefault(words, static["spill_store_bytes"])
    worst = sorted(spilled, key=lambda line: -spilled[line])
    more = [f"and {len(worst) - MOST} more"] if len(worst) > MOST else []
    return [*worst[:MOST], *more]


def said(static: Static, label: str) -> str:
    """Return what one kernel was compiled to."""
    resources = f"{static['registers']} registers a thread, {static['num_warps']} warps, {static['shared']} B shared"
    stored, loaded = static["spill_store_bytes"], static["spill_load_bytes"]
    spills = f"; spills {stored} B in stores and {loaded} B in loads" if stored or loaded else ""
    serialized = " (tensor instructions are serialized)" if cost_model.serializing([static]) else ""
    notes = f"; notes of ptxas: {', '.join(static['notes'])}{serialized}" if static["notes"] else ""
    return f"{static['name']} [{label}]: {resources}{spills}{notes}"


def _built(c: Candidate) -> list[tuple[str, Static]]:
    if c.built is None:
        return []
    choices = [o for case, options in c.built.choices.items() if case.startswith(PUBLIC) for o in options]
    return [(o.label, static) for o in choices for static in c.built.statics_of(o)]
