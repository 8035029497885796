"""The record: a verdict is written once with its evidence, or not at all; one run at a time holds a workspace."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.agent.profile.findings import Defect, Finding
from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record import pending, profiles
from pgo_agent.agent.run.record.pending import Waiting
from pgo_agent.agent.run.record.profiles import StoredProfile
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.proposed import proposed

COVERED = coverage.of(cases=1)

PROPOSAL = proposed("pass\n", "c1", kind="launch")
CITED = Bottleneck("k", Finding(Defect.SPILL, 8.0, "B", 0, "8 B of registers spill"), 0.5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store(tmp_path / "w")
    opened.add_run("add-1", Path("add.py"), "d", "pass\n", "h200", RunSettings(), RunFacts())
    opened.add_generation("add-1", 1, "shipped", [PROPOSAL])
    return opened


def test_the_first_verdict_of_a_candidate_stands(store: Store) -> None:
    store.set_verdict("add-1", "c1", Judgement(Verdict.WRONG, "smoke", plain("first")), None, 1.0)
    store.set_verdict(
        "add-1", "c1", Judgement(Verdict.ACCEPTED, "confirm", plain("second"), coverage=COVERED), 2.0, 1.0
    )
    assert store.candidate("add-1", "c").reason == "first"
    assert "confirm" not in store.evidence("add-1", "c1")


def test_what_has_a_verdict_by_now_waits_for_nothing(store: Store) -> None:
    waiting = Waiting("c1", Judgement(Verdict.CHECKED, "quick", plain("1.1x"), coverage=COVERED), 1.1, 2.0)
    pending.add(store, "add-1", waiting)
    assert pending.of(store, "add-1") == {"c1": waiting}
    store.set_verdict("add-1", "c1", Judgement(Verdict.VETOED, "veto", plain("no need")), None, 0.0)
    pending.add(store, "add-1", waiting)
    assert not pending.of(store, "add-1")


def test_raw_samples_are_kept_apart_from_evidence_and_come_back_in_order(store: Store) -> None:
    times = {"CASES/x": {"incumbent": [2.0, 1.0], "candidate": [1.0, 3.0]}}
    store.set_verdict(
        "add-1", "c1", Judgement(Verdict.SLOWER, "time", plain("r"), {"time": times, "speedup": [1, 1, 1]}), 1.0, 1.0
    )
    found = store.evidence("add-1", "c1")
    assert found["samples"]["time"] == times and found["time"] == {"speedup": [1, 1, 1]}


def test_proposing_a_generation_twice_changes_nothing(store: Store) -> None:
    store.add_generation("add-1", 1, "shipped", [replace(PROPOSAL, id="c2")])
    assert [c.id for c in store.candidates("add-1")] == ["c1"]


def test_an_ambiguous_or_unknown_run_is_named_to_the_person(store: Store) -> None:
    store.add_run("add-2", Path("add.py"), "d", "", "h200", RunSettings(), RunFacts())
    with pytest.raises(UsageFault, match="several runs"):
        store.run("add")
    with pytest.raises(UsageFault, match="no run"):
        store.run("a_d")
    assert store.run("last").id == "add-2"


def test_the_last_run_is_the_one_added_last_though_the_clock_went_back(store: Store) -> None:
    store.add_run("add-2", Path("add.py"), "d", "", "h200", RunSettings(), RunFacts())
    store.db.execute("UPDATE runs SET created = '2999-01-01T00:00:00+00:00' WHERE id = 'add-1'")
    assert store.run("last").id == "add-2"
    assert [r.id for r in store.runs()] == ["add-1", "add-2"]


@pytest.mark.parametrize("change", ["PRAGMA user_version = 0", "PRAGMA user_version = 12"])
def test_a_record_of_another_schema_is_refused_and_left_as_it_is(store: Store, change: str) -> None:
    store.db.execute(change)
    store.close()
    before = (store.root / "pgo.db").read_bytes()
    with pytest.raises(UsageFault, match="made by another version of pgo-agent") as refused:
        Store(store.root)
    assert "--store" in refused.value.hint and (store.root / "pgo.db").read_bytes() == before


def test_a_run_keeps_the_last_verdict_that_was_there_when_it_began(store: Store) -> None:
    assert store.run("add-1").knows == 0
    store.set_verdict("add-1", "c1", Judgement(Verdict.WRONG, "smoke", plain("first")), None, 1.0)
    store.add_run("add-2", Path("add.py"), "d", "", "h200", RunSettings(), RunFacts())
    assert store.run("add-2").knows == 1


def test_the_first_profile_of_a_case_stands(store: Store) -> None:
    first = StoredProfile("shipped", "CASES/x", {"static": "first"}, 1.0, None)
    for kept in (first, StoredProfile("shipped", "CASES/x", {"static": "second"}, 2.0, None)):
        profiles.add(store, "add-1", kept)
    assert profiles.of(store, "add-1") == [first]


def test_a_second_process_cannot_hold_the_workspace(store: Store) -> None:
    code = (
        "import sys; from pathlib import Path; from pgo_agent.agent.run.record.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "with store.active('add-2'): print('held')\n"
    )
    command = [sys.executable, "-c", code, str(store.root)]
    with store.active("add-1"):
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "a run is active" in refused.stderr and "add-1" in refused.stderr
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "held\n"


def test_a_workspace_that_cannot_be_made_is_an_environment_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write the record"):
        Store(tmp_path / "file" / "w")


def test_looking_into_a_folder_without_runs_does_not_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no runs"):
        Store(tmp_path / "w", create=False)
    assert not (tmp_path / "w").exists()


def test_threads_that_read_and_write_at_once_see_whole_answers(store: Store) -> None:
    """A run's candidates are built in threads that all ask the store; the run's name once came back twice."""

    def reads(n: int) -> tuple[str, int]:
        store.add_seconds("add-1", 1.0)
        return store.run("add-1").id, len(store.candidates("add-1"))

    expected = store.run("add-1").id, len(store.candidates("add-1"))
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(reads, range(400))) == {expected}
    assert store.run("add-1").seconds == 400.0
