"""Stage deadlock: simulates the barriers of every kernel that the original does not launch.

A possible hang is `deadlock`. A wait that passes too early is `race`, and so is a slot of shared memory that may be
read while a copy writes it. What the simulator cannot follow, or did not enter, is `undecided`, with the line. The
compiler's process has already run the same simulator for arguments of its own choice; the result of an older simulator
does not count. The launches of the cases are simulated here, where the plans are known, and what kernel() never
launches does not count (`guarded.py`).
"""

from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import add

from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.barriers import guarded, launches, runs
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind, from_json
from pgo_agent.sandbox.gate.barriers.launches import LaunchFacts
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.gate.evidence import Evidence, Side
from pgo_agent.sandbox.gate.reason import plain, quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import reader

KEPT = 256  # simulations: of all kernels of a generation
RACES = frozenset({Kind.GROUPS, Kind.EARLY, Kind.LIFETIME, Kind.MEMORY})


def stage(candidate: Side, original: Side) -> Evidence:
    """Return the gravest finding of all new kernels; undecided if one could not be followed and none has a finding."""
    original_keys = set(original.launched)
    findings = {key: _finding(candidate, key) for key in candidate.launched if key not in original_keys}
    shared = len(set(candidate.launched) & original_keys)
    covered = reduce(add, (f.coverage for f in findings.values()), NOTHING)
    covered += coverage.of(new_kernels=len(findings), kernels_of_the_original=shared)
    bad = [(k, f) for k, f in findings.items() if f.found]
    if bad:
        key, finding = min(bad, key=lambda b: list(Kind).index(b[1].kind))
        verdict = Verdict.RACE if finding.kind in RACES else Verdict.DEADLOCK
        return _evidence(verdict, candidate, key, finding, covered)
    unknown = next(((k, f) for k, f in findings.items() if f.kind is Kind.UNDECIDED), None)
    if unknown:
        return _evidence(Verdict.UNDECIDED, candidate, *unknown, covered)
    text = f"no hang and no mismatch in {covered.said()}; not a proof"
    if not findings:
        text = "no kernel that the original does not launch, too"
    return Evidence("deadlock", None, plain(text), coverage=covered)


def _finding(candidate: Side, key: str) -> Finding:
    stored = candidate.statics[key].get("barriers") or {}
    current = stored.get("simulator") == runs.version()
    finding = from_json(stored) if current else runs.read_and_simulate(candidate.texts[key])
    if finding.found and candidate.launcher:
        other = guarded.settled(candidate, candidate.launcher, key, finding)
        followed = other if other.found else _of_launches(candidate, key, other)
        return finding if {runs.LAUNCH, runs.LAUNCHES} & followed.coverage.skipped.keys() else followed
    if finding.found or not (finding.loops or finding.unsettled):
        return finding
    return _of_launches(candidate, key, finding)


def _of_launches(candidate: Side, key: str, finding: Finding) -> Finding:
    text = candidate.texts[key]
    return _launched(_Simulation(text, finding, tuple(launches.of(candidate, key, reader.parse(text)))))


@dataclass(frozen=True)
class _Simulation:
    """What the simulation of a kernel's launches follows from."""

    text: str
    finding: Finding = field(hash=False)  # of the text, by numbers of the simulator's own choice
    facts: tuple[LaunchFacts, ...]


@lru_cache(maxsize=KEPT)
def _launched(asked: _Simulation) -> Finding:
    """Simulate launches once: a candidate is examined without its held-out cases and with them, and most of its
    kernels have the same launches in both."""
    return runs.launched(reader.parse(asked.text), asked.finding, asked.facts)


def _evidence(verdict: Verdict, candidate: Side, key: str, finding: Finding, covered: Coverage) -> Evidence:
    name = candidate.manifest["kernels"][key]["name"]
    facts = {"kernel": key, "kind": str(finding.kind), "trace": list(finding.trace)}
    return Evidence("deadlock", verdict, quoted(f"{name}: {finding.sentence}"), found=facts, coverage=covered)
