"""`pgo-agent eval gate`: puts the corpora through the gate, and says who was refused, where, and in how many seconds.

Each target's entries are one run with all of them as given candidates: the very path of `pgo-agent check`, in the
sandbox or not at all, on GPUs where there are some and in Triton's interpreter where there is none. One run takes all
GPUs by itself; without, there is a run on each core. What only a GPU can tell is never counted as refused without one.
Relies on `entries.py`; `report.py` is the command: it counts, prints and records.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from threading import Lock

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.evaluation import duplicates
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.run import settings
from pgo_agent.agent.run.events import CandidateVerdict, Event, RunStarted
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.agent.run.record.candidate import Candidate, candidate_id
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.gate import entries as corpora
from pgo_agent.evals.gate import ttgir_edits
from pgo_agent.evals.gate.entries import CORPUS, Entry
from pgo_agent.evals.gate.ttgir_edits import BrokenCorpus
from pgo_agent.sandbox import devices, json_codec
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.gpu_judge import visible_gpu
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.temporary_folders import temporary_folder
from pgo_agent.sandbox.threads import threads

Say = Callable[[str], None]
Tell = Callable[["Outcome"], None]
MINUTES = 600.0  # of one target's run
INTERPRETING = 60.0  # s for an entry in the interpreter: the small cases take one or two, and a hang all of it
_FAMILY = dict.fromkeys(("interpreter", "smoke", "quick", "numerics", "confirm"), "results") | {"launches": "screen"}
_VERDICTS = {Verdict.RACE: "race"}  # a race may show at any stage that launches twice
_SLOWER = {Verdict.SLOWER, Verdict.NO_CHANGE}
_OPEN = {Verdict.UNDECIDED, Verdict.BUILT}


@dataclass(frozen=True)
class Outcome:
    """What the gate said of an entry."""

    entry: Entry
    verdict: Verdict
    stage: str  # as the gate names it
    reason: str
    seconds: dict[str, float]  # trace, compile, judge: wall clock
    measured: bool  # a GPU judged it
    stages: dict[str, float] = field(default_factory=dict)  # seconds of each stage of the gate that looked at it
    environment: Environment | None = None  # of the GPU that judged it
    launched: frozenset[tuple[str, str]] = frozenset()  # case, and identity of a plan with its code, without names

    @property
    def standing(self) -> str:
        """refused, admitted, or undecided: nothing here could tell."""
        if self.verdict in FAULTY or (self.entry.right and self.measured and self.verdict in _SLOWER):
            return "refused"
        if self.verdict in _OPEN or (self.entry.gpu and not self.measured):
            return "undecided"
        return "admitted"

    @property
    def surprise(self) -> str:
        """Why this is not what the entry says; empty when it is."""
        e, families = self.entry, {_FAMILY.get(self.stage, self.stage), _VERDICTS.get(self.verdict, "")}
        if e.honest:
            return f"honest, and refused: {self.reason}" if self.standing == "refused" else ""
        if self.standing == "admitted":
            return f"bad, and admitted as {self.verdict}"
        if self.standing == "undecided":
            return "" if e.gpu and not self.measured else f"should be refused here, and is {self.verdict}"
        if e.gpu and not self.measured:
            return f"is said to need a GPU, and was refused at {self.stage}: {self.reason}"
        if not families & set(e.stages) and not self.right_and_slow:
            return f"refused at {self.stage}, not at {' or '.join(e.stages)}: {self.reason}"
        return ""

    @property
    def right_and_slow(self) -> bool:
        return self.entry.right and self.verdict in _SLOWER


def run(
    chosen: Sequence[Entry], run_settings: RunSettings, say: Say, corpus: Path = CORPUS, report: Tell = lambda _: None
) -> tuple[list[Outcome], float]:
    """Judge the entries; return what became of them, in their order, and the seconds it took.

    `report` gets every outcome as soon as it is known: a run that is killed loses no more than what it was judging.

    Raises BrokenCorpus when an entry fits its target no longer, and the faults of a run: EnvironmentFault when no
    sandbox works: the corpora are untrusted code.
    """
    box.choose(run_settings.sandbox, run_settings.python).admit(untrusted=True)
    started = time.monotonic()
    names = sorted({e.target for e in chosen})
    by_target = {n: [e for e in chosen if e.target == n] for n in names}
    turn = Lock()

    def told(outcome: Outcome) -> None:
        with turn:
            report(outcome)

    with temporary_folder("gate") as place:

        def one(name: str) -> list[Outcome]:
            folder = place / name
            folder.mkdir()
            return of_target(name, by_target[name], run_settings, folder, corpus, say, told)

        with threads(1 if on_gpu(run_settings) else len(os.sched_getaffinity(0))) as pool:
            by_name = {o.entry.name: o for outcomes in pool.map(one, names) for o in outcomes}
    return [by_name[e.name] for e in chosen], time.monotonic() - started


def on_gpu(run_settings: RunSettings) -> bool:
    return run_settings.judge != "cpu" and visible_gpu() is not None


def of_target(
    name: str,
    chosen: Sequence[Entry],
    run_settings: RunSettings,
    folder: Path,
    corpus: Path,
    say: Say,
    report: Tell = lambda _: None,
) -> list[Outcome]:
    """Judge the entries of one target, as one run in an empty folder. Raises what `run` raises."""
    subject = corpora.place(name, folder, corpus)
    by_id: dict[str, Entry] = {}
    files: list[GivenFile] = []
    outcomes = list[Outcome]()

    def add(outcome: Outcome) -> None:
        outcomes.append(outcome)
        report(outcome)

    with closing(Store(folder / "workspace")) as store:
        own_text = cache(partial(own_ttgir, subject, run_settings, store.contents))
        for entry in chosen:
            try:
                files.append(corpora.given_file(entry, subject, folder, own_text))
            except UsageFault as e:
                add(Outcome(entry, Verdict.REJECTED, "read", e.message, {}, False))
                continue
            other = by_id.setdefault(candidate_id(files[-1].source), entry)
            if other is not entry:
                raise BrokenCorpus(f"{entry.name} and {other.name} are the same candidate")
        if not files:
            return outcomes
        measured: list[bool] = []
        last = cache(partial(store.run, "last"))  # asked for once its baseline is known

        def heard(event: Event) -> None:
            if isinstance(event.told, RunStarted):
                measured.append(event.told.gpu)
            elif isinstance(event.told, CandidateVerdict):
                c = store.candidate(last().id, event.told.candidate)
                add(_outcome(by_id[c.id], c, last(), store, measured[0]))
                if len(outcomes) % 10 == 0 or len(outcomes) == len(chosen):
                    say(f"{name}: {len(outcomes)} of {len(chosen)}")

        count = len(files)
        given = replace(run_settings, candidates=count, width=count, minutes=MINUTES, interpreting=INTERPRETING)
        optimize.start(subject.path, given, store, heard, files)
    if left := {e.name for e in chosen} - {o.entry.name for o in outcomes}:
        raise BrokenCorpus(f"{', '.join(sorted(left))}: no verdict: the run of {name} ended before")
    return outcomes


def own_ttgir(subject: Target, run_settings: RunSettings, contents: ContentStore) -> str:
    """Return what `ttgir_edits.own` gives; it is the same for all GPUs of an architecture."""
    device = devices.find(run_settings.device or settings.DEFAULT_DEVICE)
    return ttgir_edits.own(Builder(subject, device, box.choose(run_settings.sandbox, run_settings.python), contents))


def _outcome(entry: Entry, c: Candidate, run: Run, store: Store, measured: bool) -> Outcome:
    seconds = {**(c.built.seconds if c.built else {}), "judge": c.seconds or 0.0}
    bodies = (b.get("stages", []) for b in store.evidence(run.id, c.id).values())
    of_stages = [s for body in bodies for s in json_codec.from_json(tuple[JsonObject, ...], body)]
    stages = {str(s["stage"]): json_codec.from_json(float, s["seconds"]) for s in of_stages}
    environment = run.baseline.environment if run.baseline else None
    launched = duplicates.launched(store.contents, c.built)
    result = entry, Verdict(str(c.verdict)), c.stage or "", c.reason or ""
    return Outcome(*result, seconds, measured, stages, environment, launched)
