"""What goes over a spool is read as its form says, or refused; and processes are fresh where they must be."""

import dataclasses
import json
import zlib
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox import devices, json_codec, target
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, TargetFault
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.interface import Busy, Ended
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.references import bundle_ref, plan_ref
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered
from pgo_agent.sandbox.judge.spool.folder import ANSWERS, ARTEFACTS, Folder
from pgo_agent.sandbox.judge.spool.protocol import Answer, Request
from pgo_agent.sandbox.judge.spool.server import Worker

from tests.sandbox.judge.test_gpu_judge import write

H200 = devices.find("h200")
SHA = "0" * 64
T = TypeVar("T")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=9), x, max_size=3),
    max_leaves=8,
)

SIDE = {"CASES/one": {"bundle": SHA, "choice": "default"}}
AGAINST = {"incumbent": SIDE, "shipped": SIDE, "tuned": None, "public": ["CASES/one"], "held_out": [], "weights": None}
ASKED = {
    "hello": {},
    "sweep": {"entries": [{"bundle": SHA, "case": "CASES/one", "choice": "a=1", "own": True}]},
    "look": {"candidate": {"bundle": SHA}, **AGAINST},
    "judge": {"candidate": {"bundle": SHA}, **AGAINST},
    "confirm": {"candidate": SIDE, **AGAINST},
    "final": {"sides": {"shipped": SIDE}, "cases": ["CASES/one"], "compile_reference": None},
    "race": {"bundle": SHA, "case": "CASES/one", "choice": "a", "stress": True},
    "idle": {"case": "CASES/one", "candidate": SIDE, "shipped": SIDE},
    "numerics": {"candidate": SIDE, "stage": "assembler"},
    "same_bits": {"public": ["CASES/one"], "candidate": SIDE, "own": SIDE},
    "timeline": {
        "case": "CASES/one",
        "kernel": SHA,
        "repeats": 2,
        "blocks": 64,
        "instrumented": SIDE["CASES/one"],
        "plain": SIDE["CASES/one"],
    },
    "peaks": {"case": "CASES/one"},
    "counters": {"case": "CASES/one", "kernel": SHA, "plain": SIDE["CASES/one"]},
}
TIMES = {"CASES/one": {"incumbent": [2.0, 2.0], "candidate": [1.0, 1.0]}}
ACCEPTED = {
    "verdict": "accepted",
    "stage": "time",
    "reason": "2.000x",
    "evidence": {"choices": {"CASES/one": "a"}, "speedup": [1.9, 2.0, 2.1], "time": TIMES, "noise": [1.0, 1.0, 1.0]},
}
WRONG = {"verdict": "wrong", "stage": "smoke", "reason": "it errs", "evidence": {"check": {"error": float("inf")}}}
TOLD: dict[str, dict[str, Any]] = {
    "hello": {},
    "sweep": {"entries": [{"bundle": SHA, "case": "CASES/one", "choice": "a", "problem": "", "ms": [1.5]}]},
    "judge": ACCEPTED,
    "look": WRONG,
    "final": {"times": TIMES, "uncompiled": {"CASES/one": "no C compiler"}},
    "idle": {"idle": ["_add"]},
    "same_bits": {"differs": ""},
    "peaks": {"flops": 1e15, "moved": 4e12},
}


def asking(do: str, **changes: Any) -> Request:
    files = ("bundles/" + SHA + ".json",) if SHA in json.dumps(ASKED[do]) else ()
    return Request("run-1", SHA, H200.name, do, ASKED[do] | changes, files)


def answering(do: str, said: Any) -> Answer:
    return Answer(asking(do).sha, "answer", said, Environment(H200.name), 1.0)


# forms ----------------------------------------------------------------------------------------------------------------


def test_every_command_that_may_be_asked_is_tried_here() -> None:
    assert ASKED.keys() == protocol.FIELDS.keys()


OF_THE_ANSWERING_SIDE = {"shelf", "unguarded"}  # fields that no request may set


@pytest.mark.parametrize("do", ASKED)
def test_a_request_has_the_fields_of_its_question_and_an_answer_those_of_its_answer(do: str) -> None:
    kind = questions.KINDS[do]
    assert {f.name for f in dataclasses.fields(kind)} - OF_THE_ANSWERING_SIDE == protocol.FIELDS[do].keys()
    answers = getattr(kind.answer, "__args__", (kind.answer,))
    told = {f.name for answer in answers for f in dataclasses.fields(answer)}
    assert do not in protocol.ANSWERS or told == protocol.ANSWERS[do].keys()


@pytest.mark.parametrize("do", [d for d in TOLD if d in protocol.ANSWERS])
def test_an_answer_that_was_read_as_its_type_is_the_same_json_again(do: str) -> None:
    read = json_codec.from_json(questions.KINDS[do].answer, TOLD[do])
    assert json.dumps(json_codec.as_json(read)) == json.dumps(TOLD[do])


@pytest.mark.parametrize("do", ASKED)
def test_a_request_is_read_as_it_was_written(do: str) -> None:
    assert protocol.request(asking(do).as_bytes()) == asking(do)


@pytest.mark.parametrize("do", TOLD)
def test_an_answer_is_read_as_it_was_written(do: str) -> None:
    assert protocol.answer(answering(do, TOLD[do]).as_bytes(), asking(do)) == answering(do, TOLD[do])


@pytest.mark.parametrize("do", [d for d in ASKED if ASKED[d]])
def test_a_request_with_a_field_too_many_or_too_few_is_none(do: str) -> None:
    names = [n for n in ASKED[do] if ASKED[do][n] is not None]
    for fields in (ASKED[do] | {"path": "/etc/passwd"}, *({n: ASKED[do][n] for n in names if n != m} for m in names)):
        with pytest.raises(BadBundle):
            protocol.request(replace(asking(do), fields=fields).as_bytes())


@settings(max_examples=100)
@given(st.sampled_from(sorted(ASKED)), st.sampled_from(["do", "fields", "files", "run", "target", "again"]), JSON)
def test_whatever_stands_in_a_request_it_is_read_or_refused(do: str, name: str, value: Any) -> None:
    said = json.loads(asking(do).as_bytes()) | {name: value}
    try:
        found = protocol.request(json.dumps(said).encode())
    except BadBundle:
        return
    assert found.do in protocol.FIELDS


@settings(max_examples=120)
@given(st.sampled_from(sorted(TOLD)), st.data())
def test_whatever_stands_in_an_answer_it_is_read_or_refused(do: str, data: st.DataObject) -> None:
    said = json.loads(answering(do, TOLD[do]).as_bytes())
    places = [said, said["said"], *(v for v in said["said"].values() if isinstance(v, dict))]
    place = data.draw(st.sampled_from([p for p in places if p]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        protocol.answer(json.dumps(said).encode(), asking(do))
    except BadBundle:
        return


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_bytes_that_are_neither_are_refused(data: bytes) -> None:
    for read in (protocol.request, lambda x: protocol.answer(x, asking("hello"))):
        with pytest.raises(BadBundle):
            read(data)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("look", ACCEPTED),
        ("race", ACCEPTED),
        ("judge", ACCEPTED | {"evidence": {}}),
        ("judge", ACCEPTED | {"evidence": ACCEPTED["evidence"] | {"speedup": None}}),  # type: ignore[operator]
        ("judge", ACCEPTED | {"verdict": "splendid"}),
        ("final", {"times": {"CASES/one": {"shipped": [0.0]}}}),
        ("final", {"times": {"CASES/one": {"shipped": [float("nan")]}}}),
        ("final", {"times": TIMES, "uncompiled": {"CASES/one": 1}}),
        ("peaks", {"flops": 1e15}),
        ("peaks", {"flops": 10**400, "moved": 1}),
    ],
)
def test_an_answer_that_would_mislead_its_reader_is_none(do: str, said: dict[str, Any]) -> None:
    with pytest.raises(BadBundle):
        protocol.answer(answering(do, said).as_bytes(), asking(do))


def test_the_answer_to_another_request_is_none() -> None:
    with pytest.raises(BadBundle, match="another request"):
        protocol.answer(answering("hello", {}).as_bytes(), replace(asking("hello"), run="run-2"))


# processes ------------------------------------------------------------------------------------------------------------


@dataclass
class Scripted:
    """Answers as it is told to, and notes in which of its processes."""

    told: dict[str, Any]
    process: int = 0
    busy: float = 0.0
    seen: list[tuple[str, int]] = field(default_factory=list)

    def open(self) -> Environment:
        return Environment(H200.name)

    def answer(self, command: str, fields: dict[str, Any]) -> dict[str, Any]:
        self.seen.append((command, self.process))
        self.busy += 2.0
        said = self.told.get(command, {})
        if isinstance(said, Exception):
            raise said
        return dict(said(fields) if callable(said) else said)

    def fresh(self) -> None:
        self.process += 1

    def close(self) -> None:
        """There is nothing to end."""


class Both:
    """The side that asks and the side that answers, in one process."""

    def __init__(self, place: Path, **told: Any) -> None:
        self.subject = target.read(write(place))
        self.judge = SpoolJudge(place / "spool", H200, self.subject, wait=False)
        self.contents, self.scripted = ContentStore(place / "shelf"), Scripted(told)
        self.known: set[str] = set()
        self.begin()

    def begin(self) -> None:
        self.judge.begin("run-1", self.contents, self._is_new)

    def _is_new(self, request: str, _seconds: float) -> bool:
        new = request not in self.known
        self.known.add(request)
        return new

    def answered(self) -> None:
        worker = Worker(Folder(self.judge.folder.root), {self.subject.digest: self.subject}, lambda _: self.scripted)
        with closing(worker):
            worker.serve(True, lambda _: None)

    def asked(self, question: questions.Question[T]) -> T:
        with pytest.raises(Unanswered):
            self.judge.ask(question)
        self.answered()
        return self.judge.ask(question)


def test_a_hang_and_a_crash_elsewhere_are_what_they_are_here(tmp_path: Path) -> None:
    both = Both(tmp_path, race=Ended("race d64", True, "no answer before the deadline"))
    bundle = bundle_ref(both.contents, both.contents.put_bundle({"kernels": {}}))
    question = questions.Race(bundle, "CASES/one", "a", stress=True)
    with pytest.raises(Ended, match="no answer before the deadline"):
        both.asked(question)
    assert both.judge.verdict(question).verdict == Verdict.TIMEOUT
    assert both.scripted.seen.count(("race", 0)) == 1


def test_a_fault_of_the_target_elsewhere_is_the_targets_fault_here(tmp_path: Path) -> None:
    both = Both(tmp_path, peaks=TargetFault("the reference raises", "fix it"))
    with pytest.raises(TargetFault, match="the reference raises"):
        both.asked(questions.Peaks("CASES/one"))


def test_what_is_asked_before_anything_was_judged_shares_a_process_and_what_follows_does_not(tmp_path: Path) -> None:
    both = Both(tmp_path, peaks={"flops": 1.0, "moved": 1.0})
    for candidate in ("a", "b"):
        with both.judge.scope(candidate), pytest.raises(Unanswered):
            both.judge.ask(questions.Peaks(candidate))
    both.answered()
    for candidate in ("a", "b"):
        with both.judge.scope(candidate):
            both.judge.fresh()
            with pytest.raises(Unanswered):
                both.judge.ask(questions.Peaks(candidate))
    both.answered()
    assert both.scripted.seen[1:] == [("peaks", 0), ("peaks", 0), ("peaks", 1), ("peaks", 2)]


def test_work_that_waits_for_this_machine_does_not_keep_others_waiting(tmp_path: Path) -> None:
    both = Both(tmp_path, peaks={"flops": 1.0, "moved": 1.0})
    compiled: list[str] = []

    def compiling() -> str:
        if not compiled:
            raise Busy
        return "raced"

    def other() -> str:
        compiled.append("both")
        return "judged"

    assert list(both.judge.together({"a": compiling, "b": other})) == [("b", "judged"), ("a", "raced")]


def test_the_seconds_of_an_answer_count_once_however_often_it_is_read(tmp_path: Path) -> None:
    both = Both(tmp_path, peaks={"flops": 1.0, "moved": 1.0})
    both.asked(questions.Peaks("CASES/one"))
    busy = both.judge.busy
    with both.judge.scope("a"):
        both.judge.ask(questions.Peaks("CASES/one"))
        assert (both.judge.busy, both.judge.seconds) == (busy, 2.0)


# artefacts ------------------------------------------------------------------------------------------------------------


def recorded(fields: dict[str, Any]) -> dict[str, Any]:
    """As `instrumented.py` answers: with artefacts in the content store that it is given."""
    contents = ContentStore(Path(fields["shelf"]))
    kept = [contents.put(zlib.compress(what), RECORDS) for what in (b"headers", b"records")]
    repeat = {"headers": kept[0], "records": kept[1], "blocks": 1, "fetched": 1}
    sides = {"plain_ms": [1.0], "instrumented_ms": [1.1]}
    return {"repeats": [repeat], "block_bytes": 64, "warps": 4, "same_outputs": True, **sides}


def timeline(both: Both) -> questions.Timeline:
    pick = plan_ref(both.contents, both.contents.put_bundle({"kernels": {}}), "a")
    return questions.Timeline("CASES/one", SHA, 2, 64, str(both.contents.root), pick, pick)


def taken(answer: questions.Recorded | questions.Problem) -> questions.Recorded:
    assert isinstance(answer, questions.Recorded)
    return answer


def test_what_an_instrumented_launch_recorded_comes_onto_the_shelf_of_who_asked(tmp_path: Path) -> None:
    both = Both(tmp_path, timeline=recorded)
    (repeat,) = taken(both.asked(timeline(both))).repeats
    assert zlib.decompress(both.contents.get(repeat.records, RECORDS)) == b"records"


def test_an_answer_waits_for_the_artefacts_that_it_names(tmp_path: Path) -> None:
    both = Both(tmp_path, timeline=recorded)
    with pytest.raises(Unanswered):
        both.judge.ask(timeline(both))
    both.answered()
    (path, _) = sorted((tmp_path / "spool" / ARTEFACTS).iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:5])
    with pytest.raises(Unanswered):
        both.judge.ask(timeline(both))
    path.write_bytes(whole)
    assert taken(both.judge.ask(timeline(both))).warps == 4


def test_an_answer_whose_artefacts_were_lost_is_given_again(tmp_path: Path) -> None:
    both = Both(tmp_path, timeline=recorded)
    with pytest.raises(Unanswered):
        both.judge.ask(timeline(both))
    both.answered()
    for path in (tmp_path / "spool" / ARTEFACTS).iterdir():
        path.unlink()
    both.answered()
    assert taken(both.judge.ask(timeline(both))).warps == 4
    assert both.scripted.seen.count(("timeline", 0)) == 2


def test_an_answer_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    both = Both(tmp_path)
    both.answered()
    for path in (tmp_path / "spool" / ANSWERS).iterdir():
        with path.open("ab") as file:
            file.truncate(1 << 40)
    with pytest.raises(EnvironmentFault, match="larger than"):
        both.begin()
