"""Proves a dispatch: right everywhere, and never slower than the original.

Its launches are traced for all public cases and for probes around every guard. Where they are those of the original,
the GPU does the same work. All else is judged as a pull request is (`check --against`), in cases and probes alike: by
the whole gate, and against what the original differs from itself. A region with a slower case shrinks to the sizes
that were measured, then it goes. What guards take on the host is measured, and counts as if nothing hid it.
"""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgo_agent.agent.commands import against
from pgo_agent.agent.commands.dispatch import composition, probe_target, probes, regions, winners
from pgo_agent.agent.commands.dispatch.composition import Part
from pgo_agent.agent.commands.dispatch.probe_target import Place
from pgo_agent.agent.commands.dispatch.regions import Limits, Region
from pgo_agent.agent.commands.dispatch.winners import Winner
from pgo_agent.agent.moves.analysis import merge_kernels
from pgo_agent.agent.run import target_file
from pgo_agent.agent.run.dispatch import Proof, RegionProof
from pgo_agent.agent.run.events import Emit, Event, Phase
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.regression import Outcome, Ratio, Result
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices, json_codec
from pgo_agent.sandbox.build.fingerprint import CaseLaunches
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import Target

FOLDER = "dispatch"  # of a workspace: what is kept of each run's
ROUNDS = 4  # of narrowing
Sides = dict[str, list[float]]  # side -> ms


@dataclass
class _Attempt:
    """What is tried in one round."""

    regions: list[Region]
    text: str  # the dispatch, with the run's own contract
    base: Target  # the original with the proof's cases
    new: Target
    ours: dict[str, CaseLaunches] = field(default_factory=dict)
    theirs: dict[str, CaseLaunches] = field(default_factory=dict)

    def region(self, case: str) -> Region | None:
        return regions.chosen(self.regions, self.ours[case].inputs) if case in self.ours else None

    @property
    def broken(self) -> list[str]:
        """Where the dispatch fails and the original does not, or otherwise."""
        return [c for c, o in self.ours.items() if bool(o.error) != bool(self.theirs[c].error)]

    @property
    def differing(self) -> list[str]:
        return [c for c, o in self.ours.items() if not o.error and o.hashes != self.theirs[c].hashes]


class Prover:
    """Looks for a dispatch of a run's winners that is proven."""

    def __init__(self, name: str, settings: RunSettings, store: Store, emit: Emit) -> None:
        self.run: Run = store.run(name)
        self.subject = target_file.unmoved(self.run)
        self.settings, self.store, self.emit = replace(settings, device=self.run.device), store, emit
        self.winners: list[Winner] = winners.of(store, self.run.id)
        chosen = box.choose(settings.sandbox, settings.python)
        chosen.admit(untrusted=True)
        self.device = devices.find(self.run.device)
        self.place = Place(store.contents, chosen, self.device, len(os.sched_getaffinity(0)))
        self.folder = store.root / FOLDER / self.run.id
        self.traced: dict[str, dict[str, CaseLaunches]] = {}  # digest of a target -> what it launches
        self.known = self._launches(self.subject, "what the original launches")
        self.notes = list[str]()

    def prove(self) -> tuple[Proof, str]:
        """Return the proof, and the text of the dispatch. Raises UsageFault where no region is left."""
        limits = Limits()
        for _ in range(ROUNDS):
            attempt = self._attempt(limits)
            worse = attempt.broken
            host = {} if worse else self._host(attempt)
            result = None if worse else self._judged(attempt)
            if result is not None:
                worse = self._slower(attempt, result, host)
            if not worse or (result is not None and result.outcome not in (Outcome.SLOWER, Outcome.NOT_SLOWER)):
                return self._proof(attempt, result, host), attempt.text
            limits = self._tighter(limits, attempt, worse)
        raise UsageFault(f"no dispatch of run {self.run.id} was proven", "; ".join(self.notes))

    # a round ----------------------------------------------------------------------------------------------------------

    def _attempt(self, limits: Limits) -> _Attempt:
        inputs = {c: o.inputs for c, o in self.known.items() if not o.error}
        found = regions.of(self.winners, inputs, limits)
        if not found:
            hint = "; ".join(self.notes) or "no comparison of its arguments tells the cases that it wins from others"
            raise UsageFault(f"no region of run {self.run.id} is left", hint)
        parts = [Part(r.candidate.source, r.guard, self._said(r)) for r in found]
        text = composition.write(self.subject.source, parts, self.device.name)
        around = probes.around([r.cases for r in found], {c: o.parameters for c, o in self.known.items()})
        original = probe_target.with_cases(self.subject, list(self.known), around)
        dispatch = probe_target.with_cases(probe_target.with_kernel(self.subject, text), list(self.known), around)
        attempt = _Attempt(found, text, original, dispatch)
        attempt.ours = self._launches(original, f"the original in {len(around)} probes")
        attempt.theirs = self._launches(dispatch, f"the dispatch in {len(around)} probes")
        return attempt

    def _said(self, r: Region) -> str:
        return f"Candidate {r.candidate.id[:8]} of run {self.run.id}, won in {', '.join(r.cases)}."

    def _launches(self, subject: Target, doing: str) -> dict[str, CaseLaunches]:
        """Return what a target launches; one that an earlier round asked about is not traced again."""
        if subject.digest not in self.traced:
            self.emit(Event(Phase("build", doing=f"tracing {doing}")))
            found = probe_target.launches(subject, self.place)
            if not found:
                raise UsageFault(f"{subject.path} cannot be traced", f"pgo-agent init --check {self.run.target}")
            self.traced[subject.digest] = found
        return self.traced[subject.digest]

    def _host(self, attempt: _Attempt) -> dict[str, float]:
        """Return case or probe -> seconds that the guards take."""
        parameters = merge_kernels.parameters(self.subject.source)
        texts = {
            composition.name(i): composition.region(Part("", r.guard, ""), composition.name(i), parameters)
            for i, r in enumerate(attempt.regions)
        }
        given = {c: o.inputs for c, o in attempt.ours.items() if o.inputs}
        return probe_target.host_seconds(texts, given, self.place)

    def _judged(self, attempt: _Attempt) -> Result | None:
        """Return what a judge says of the cases whose launches differ; None where none does."""
        differing = attempt.differing
        if not differing:
            return None
        told = list[Result]()
        settings = self.settings.changed({"cases": tuple(differing)})
        base = probe_target.written(self.folder / "original", attempt.base)
        new = probe_target.written(self.folder / "dispatch", attempt.new)
        against.start(against.Asked(new, str(base), None), settings, self.store, self.emit, told.append)
        if not told:
            raise UsageFault("the judge has not answered yet", "run the same command again when it has")
        return told[0]

    def _slower(self, attempt: _Attempt, result: Result, host: Mapping[str, float]) -> list[str]:
        """Return the cases that are slower than the original, with what the guards take added to their time."""
        evidence = self.store.evidence(result.run, result.candidate) if result.candidate else {}
        body = next((b for b in evidence.values() if "thresholds" in b), None)
        if body is None:
            return []
        limits = json_codec.from_json(dict[str, float], body["thresholds"])
        slower = json_codec.from_json(list[str], body.get("slower", []))
        times = json_codec.from_json(dict[str, Sides], evidence.get("samples", {}).get("time", {}))
        slower += [c for c, t in times.items() if _with_guards(t, host.get(_short(c), 0.0)) * limits.get(c, 1.0) < 1]
        return sorted({_short(c) for c in slower} & attempt.ours.keys())

    def _tighter(self, limits: Limits, attempt: _Attempt, worse: Sequence[str]) -> Limits:
        for region in {id(r): r for c in worse if (r := attempt.region(c))}.values():
            cases = [c for c in worse if attempt.region(c) is region]
            self.notes.append(f"the region of {region.candidate.id[:8]} was narrowed: not so in {', '.join(cases)}")
            limits = limits.tighter(region, cases)
        return limits

    # the result -------------------------------------------------------------------------------------------------------

    def _proof(self, attempt: _Attempt, result: Result | None, host: Mapping[str, float]) -> Proof:
        times: Mapping[str, Ratio] = result.cases if result else {}
        evidence = tuple(
            RegionProof(
                r.candidate.id,
                r.candidate.move,
                " and ".join(t.text for t in r.guard.tests),
                {c: times.get(c) for c in attempt.differing if attempt.region(c) is r},
            )
            for r in attempt.regions
        )
        return Proof(
            self.run.id,
            self.run.target,
            self.run.digest,
            self.device.name,
            result.outcome if result else Outcome.SAME_CODE,
            _said(result),
            evidence,
            tuple(c for c, o in attempt.ours.items() if not o.error and c not in attempt.differing),
            {c: o.error.splitlines()[0][:200] for c, o in attempt.ours.items() if o.error},
            {c: round(1e6 * s, 2) for c, s in host.items()},
            tuple(self.notes),
            result.run if result else "",
            result.candidate if result else "",
        )


def _said(result: Result | None) -> str:
    """Return what came out, in words that follow `the dispatch`."""
    if result is None:
        return "launches what the original launches, everywhere"
    known = {
        Outcome.NOT_SLOWER: "is right, and nowhere slower than the original",
        Outcome.RIGHT: "is right as far as can be told without a GPU, and was not timed",
        Outcome.UNDECIDED: f"could not be judged enough here: {result.reason or result.said}",
    }
    found = next((said for outcome, said in known.items() if outcome == result.outcome), "")
    return found or f"is not as the original: {result.reason or result.said}"


def _short(case: str) -> str:
    return case.split("/", 1)[-1]


def _with_guards(times: Sides, host: float) -> float:
    """Return how many times faster than the original it is (milliseconds) where nothing hides the guards' seconds."""
    return statistics.median(times["incumbent"]) / (statistics.median(times["candidate"]) + 1e3 * host)
