"""What is known of a run's candidates: what is read of them again, and that it is never behind the record."""

from pathlib import Path

import pytest
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.proposed import proposed

MANY = 500
SLOWER = Judgement(Verdict.SLOWER, "time", plain("as made up"), coverage=coverage.of(cases=1))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store(tmp_path / "w")
    for run in ("add-1", "other-1"):
        opened.add_run(run, Path("add.py"), "d", "pass\n", "h200", RunSettings(), RunFacts())
    opened.add_generation("add-1", 1, "shipped", [proposed("pass\n", f"c{n}") for n in range(MANY)])
    return opened


def built(bundle: str) -> Built:
    return Built(bundle, {}, {}, {}, {}, ())


def test_after_a_verdict_its_candidate_alone_is_read_again(store: Store) -> None:
    assert len(store.candidates("add-1")) == MANY
    store.set_verdict("add-1", "c7", SLOWER, 0.9, 1.0)
    asked: list[str] = []
    store.db.set_trace_callback(asked.append)
    verdicts = {c.id: c.verdict for c in store.candidates("add-1")}
    assert verdicts["c7"] == Verdict.SLOWER and list(verdicts.values()).count(None) == MANY - 1
    store.candidate("add-1", "c7")
    read = [sql for sql in asked if "FROM candidates" in sql]
    assert len(read) == 1 and read[0].count("'c") == 1  # of one id


def test_what_this_process_writes_is_known_at_once_and_in_order(store: Store) -> None:
    assert store.candidates("add-1", 2) == []
    store.add_generation("add-1", 2, "shipped", [proposed("pass\n", "z"), proposed("pass\n", "a")])
    assert [c.id for c in store.candidates("add-1", 2)] == ["z", "a"] == [c.id for c in store.candidates("add-1")[-2:]]
    assert store.candidate("add-1", "a").built is None
    for bundle in ("first", "whole"):
        store.set_built("add-1", "a", built(bundle))
        candidate = store.candidate("add-1", "a")
        assert candidate.bundle == bundle and candidate.build.bundle == bundle


def test_what_another_process_writes_is_known_at_once(store: Store) -> None:
    assert store.candidate("add-1", "c7").verdict is None
    other = Store(store.root)
    other.set_verdict("add-1", "c7", SLOWER, 0.9, 1.0)
    other.close()
    assert store.candidate("add-1", "c7").verdict == Verdict.SLOWER


def test_what_is_written_past_the_record_is_known_at_once(store: Store) -> None:
    assert store.candidate("add-1", "c7").kind == "source"
    store.db.execute("UPDATE candidates SET kind = 'launch' WHERE id = 'c7'")
    assert store.candidate("add-1", "c7").kind == "launch"


def test_another_run_does_not_have_the_candidates_of_this_one(store: Store) -> None:
    assert len(store.candidates("add-1")) == MANY and store.candidates("other-1") == []
    store.set_verdict("add-1", "c7", SLOWER, 0.9, 1.0)
    assert store.candidates("other-1") == []
    assert store.candidate("add-1", "c7").verdict == Verdict.SLOWER


def test_a_write_that_fails_leaves_what_is_known_as_it_is_recorded(store: Store) -> None:
    assert store.candidate("add-1", "c7").verdict is None
    with pytest.raises(TypeError):
        store.set_verdict("add-1", "c7", Judgement(Verdict.WRONG, "x", plain("y"), {"bad": object()}), None, 1.0)
    assert store.candidate("add-1", "c7").verdict is None
