"""Stage deadlock: every kernel that the original does not launch itself, through the simulator of its barriers.

A hang, or a run that could end in one, is `deadlock`; a wait that lets pass what it is for is `race`, as is a slot of
shared memory that may be read while a copy writes it: it hangs nothing, and reads what is not there yet or any more.
What the simulator cannot follow is `undecided`, with the line. The compiler's process has run the same simulator
already, many kernels side by side; what an older one said there does not count.
"""

from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.deadlock import simulate
from pgo_agent.sandbox.gate.deadlock.finding import Finding, Kind, from_json
from pgo_agent.sandbox.gate.evidence import Evidence, Side
from pgo_agent.sandbox.gate.verdict import Verdict

RACES = frozenset({Kind.GROUPS, Kind.EARLY, Kind.LIFETIME, Kind.MEMORY})


def stage(candidate: Side, original: Side) -> Evidence:
    """The gravest finding over all kernels; undecided when one could not be followed and no other has a finding."""
    known = set(original.launched)
    found = {key: _finding(candidate, key) for key in candidate.launched if key not in known}
    bad = [(k, f) for k, f in found.items() if f.found]
    if bad:
        key, finding = min(bad, key=lambda b: list(Kind).index(b[1].kind))
        verdict = Verdict.RACE if finding.kind in RACES else Verdict.DEADLOCK
        return _evidence(verdict, candidate, key, finding)
    unknown = next(((k, f) for k, f in found.items() if f.kind is Kind.UNDECIDED), None)
    if unknown:
        return _evidence(Verdict.UNDECIDED, candidate, *unknown)
    told = next((f.sentence for f in found.values()), "no kernel that the original does not launch, too")
    covered = coverage.of(new_kernels=len(found), kernels_of_the_original=len(set(candidate.launched) & known))
    return Evidence("deadlock", None, told, coverage=covered)


def _finding(candidate: Side, key: str) -> Finding:
    told = candidate.statics[key].get("barriers") or {}
    if told.get("simulator") == simulate.version():
        return from_json(told)
    return simulate.read_and_simulate(candidate.texts[key])


def _evidence(verdict: Verdict, candidate: Side, key: str, finding: Finding) -> Evidence:
    name = candidate.manifest["kernels"][key]["name"]
    told = {"kernel": key, "kind": str(finding.kind), "trace": list(finding.trace)}
    return Evidence("deadlock", verdict, f"{name}: {finding.sentence}", found=told)
