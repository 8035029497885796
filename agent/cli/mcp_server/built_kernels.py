"""What a candidate's kernels were compiled to, in lines: registers, spills and notes of ptxas, the worst first.

Made from the record; the held-out cases are left out. Runs nothing.
"""

from collections.abc import Iterator

from pgo_agent.agent.profile import cost_model
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.bundle.documents import Static
from pgo_agent.sandbox.gate.coverage import PUBLIC

MOST = 8  # lines


def lines(c: Candidate) -> list[str]:
    """Return a line for each kernel, and each thing that configurations made of it, at most MOST."""
    labels, spilled = dict[tuple[str, str], dict[str, None]](), dict[tuple[str, str], int]()
    for label, static in _built(c):
        compiled = static["name"], said(static)
        labels.setdefault(compiled, {})[label] = None
        spilled[compiled] = static["spill_store_bytes"]
    worst = sorted(labels, key=lambda compiled: -spilled[compiled])
    more = [f"and {len(worst) - MOST} more"] if len(worst) > MOST else []
    return [*(f"{name} [{_named(list(labels[name, words]))}: {words}" for name, words in worst[:MOST]), *more]


def _named(labels: list[str]) -> str:
    others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return f"{labels[0]}]{others}"


def spills(c: Candidate) -> bool:
    return any(static["spill_store_bytes"] for _, static in _built(c))


def said(static: Static) -> str:
    """Return what one kernel was compiled to."""
    resources = f"{static['registers']} registers a thread, {static['num_warps']} warps, {static['shared']} B shared"
    stored, loaded = static["spill_store_bytes"], static["spill_load_bytes"]
    spills = f"; spills {stored} B in stores and {loaded} B in loads" if stored or loaded else ""
    serialized = " (tensor instructions are serialized)" if cost_model.serializing([static]) else ""
    notes = f"; notes of ptxas: {', '.join(static['notes'])}{serialized}" if static["notes"] else ""
    return f"{resources}{spills}{notes}"


def _built(c: Candidate) -> Iterator[tuple[str, Static]]:
    for case, options in (c.built.choices if c.built else {}).items():
        for o in options if case.startswith(PUBLIC) else ():
            yield from ((o.label, static) for static in c.build.statics_of(o))
