"""Several processes may make the runs of one plan: none is made twice, and none is lost."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.ablation import plan as ablation
from pgo_agent.evals.nightly import plan as nightly
from pgo_agent.evals.runner import run
from pgo_agent.evals.runner.byte_lock import held
from pgo_agent.evals.runner.results import BEGUN, ENDED, LINES, Results
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

from tests.agent.command_line import command
from tests.conftest import ROOT
from tests.evals.test_ablation import lines, planned

HOLDER = """
import sys, time
from pathlib import Path
from pgo_agent.evals.runner.byte_lock import held
with held(Path(sys.argv[1]), int(sys.argv[2])):
    print("held", flush=True)
    time.sleep(600)
"""
READER = """
import sys
from pathlib import Path
from tests.evals.test_planned import of
print("begins", flush=True)
print(len(of(Path(sys.argv[1])).lines))
"""


@dataclass(frozen=True)
class Wanted:
    target: str
    seed: int = 1

    @property
    def named(self) -> dict[str, Any]:
        return {"target": self.target, "seed": self.seed}


@dataclass(frozen=True)
class Plan:
    targets: tuple[str, ...] = ("a", "b")
    digest: str = "0"
    seeds: tuple[int, ...] = (1,)

    @property
    def values(self) -> dict[str, Any]:
        return {"targets": self.targets, "seeds": self.seeds}

    @property
    def runs(self) -> Sequence[Wanted]:
        return [Wanted(t, seed) for seed in self.seeds for t in self.targets]

    def settings_of(self, wanted: Wanted, asked: RunSettings) -> RunSettings:
        return asked


A, B = Plan().runs


def of(folder: Path) -> Results[Wanted]:
    return Results(folder / "out.jsonl", Plan(), "a test")


def test_a_run_is_claimed_by_one_at_a_time_and_others_are_free(tmp_path: Path) -> None:
    one, other = of(tmp_path), of(tmp_path)
    with one.claimed(A, wait=False) as ours:
        with other.claimed(A, wait=False) as theirs, other.claimed(B, wait=False) as another:
            assert (ours, theirs, another) == (True, False, True)
        one.add(BEGUN, run="1", **A.named)  # the file is opened and closed meanwhile
        with other.claimed(A, wait=False) as theirs:
            assert not theirs
    with other.claimed(A, wait=False) as theirs:
        assert theirs


def test_who_claims_a_run_knows_what_others_wrote_and_writes_the_plan_once(tmp_path: Path) -> None:
    one, other = of(tmp_path), of(tmp_path)
    assert one.lines == other.lines == []
    one.add(ENDED, run="1", **A.named)
    other.add(ENDED, run="2", **B.named)
    with one.claimed(B, wait=False):
        assert one.ended(B) == {"what": ENDED, "run": "2", **B.named}
    assert [line["what"] for line in of(tmp_path).lines] == ["plan", ENDED, ENDED]


def test_a_process_keeps_to_the_targets_that_it_knows_and_then_takes_those_that_nobody_began(tmp_path: Path) -> None:
    results = Results(tmp_path / "out.jsonl", Plan(seeds=(1, 2, 3)), "a test")
    others = Results(results.file, results.plan, "a test")
    others.add(BEGUN, run="theirs", target="a", seed=1)
    made: list[tuple[str, int]] = []
    with closing(Store(tmp_path / ".pgo-agent")) as store, others.claimed(A, wait=False):
        for wanted in run._open(results, store, lambda _: None):
            store.add_run(
                f"{wanted.target}-{wanted.seed}", Path("/x/add.py"), "d", "pass\n", "h200", RunSettings(), RunFacts()
            )
            results.add(BEGUN, run=f"{wanted.target}-{wanted.seed}", **wanted.named)
            results.add(ENDED, run=f"{wanted.target}-{wanted.seed}", **wanted.named)
            made.append((wanted.target, wanted.seed))
            if len(made) == 5:
                break
    assert made == [("b", 1), ("b", 2), ("b", 3), ("a", 2), ("a", 3)]


def test_alone_a_process_makes_runs_in_the_order_of_the_plan(tmp_path: Path) -> None:
    results = Results(tmp_path / "out.jsonl", Plan(seeds=(1, 2)), "a test")
    made: list[tuple[str, int]] = []
    with closing(Store(tmp_path / ".pgo-agent")) as store:
        for wanted in run._open(results, store, lambda _: None):
            store.add_run(
                f"{wanted.target}-{wanted.seed}", Path("/x/add.py"), "d", "pass\n", "h200", RunSettings(), RunFacts()
            )
            results.add(BEGUN, run=f"{wanted.target}-{wanted.seed}", **wanted.named)
            results.add(ENDED, run=f"{wanted.target}-{wanted.seed}", **wanted.named)
            made.append((wanted.target, wanted.seed))
    assert made == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


@pytest.mark.parametrize("text", ["one line only", "a line\nand half", '{"a": 1}\n{"b', "\n"])
def test_a_file_that_is_none_of_results_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    results = of(tmp_path)
    results.file.write_text(text)
    for what in (lambda: results.lines, lambda: results.add(BEGUN, run="1", **A.named)):
        with pytest.raises(UsageFault, match="it is no result of a test"):
            what()
    assert results.file.read_text() == text


def test_a_first_line_that_was_cut_off_is_none_and_the_plan_is_written_anew(tmp_path: Path) -> None:
    results = of(tmp_path)
    results.add(BEGUN, run="1", **A.named)
    whole = results.file.read_bytes()
    for length in (1, 5, 16, 30):
        results.file.write_bytes(whole[:length])
        results.read_again()
        assert results.lines == []
        results.add(BEGUN, run="1", **A.named)
        assert results.file.read_bytes() == whole


def test_a_line_is_not_read_before_it_is_whole(tmp_path: Path) -> None:
    results = of(tmp_path)
    results.add(BEGUN, run="1", **A.named)
    with held(results.file, LINES), results.file.open("a") as out:
        out.write('{"what": "run", "run": ')
        out.flush()
        reader = subprocess.Popen([sys.executable, "-c", READER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None and reader.stdout.readline() == "begins\n"
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(1)
        out.write('"1", "target": "a"}\n')
        out.flush()
    assert reader.communicate(timeout=60)[0] == "3\n"


def test_what_a_killed_process_claimed_is_free(tmp_path: Path) -> None:
    results = of(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(results.file), "1"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with results.claimed(A, wait=False) as ours:
        assert not ours
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with results.claimed(A, wait=True) as ours:
        assert ours


def test_a_file_that_cannot_be_written_is_said_before_anything_is_run(tmp_path: Path) -> None:
    with (
        pytest.raises(EnvironmentFault, match="cannot write"),
        Results(tmp_path / "no" / "out.jsonl", Plan(), "a test").claimed(A, wait=False),
    ):
        raise AssertionError


def test_a_folder_in_place_of_the_file_is_said_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(EnvironmentFault, match="Is a directory"):
        _ = of(tmp_path).lines


@pytest.mark.slow
def test_two_commands_share_the_runs_of_a_plan(tmp_path: Path) -> None:
    own = (*planned(tmp_path, ("seeds = [1]", "seeds = [1, 2]")), "--judge", "cpu", "--json")
    both = [
        subprocess.Popen(command(*own, "--store", f"store{n}"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for n in (1, 2)
    ]
    said = [p.communicate()[0] for p in both]
    begun, ended = lines(tmp_path, BEGUN), lines(tmp_path, ENDED)
    assert [p.returncode for p in both] == [0, 0] and len(begun) == len(ended) == 4
    assert all('"missing": 0' in text.splitlines()[-1] for text in said)
    assert all(text.count('"type": "run.started"') in (1, 2, 3) for text in said)


@pytest.mark.parametrize(
    ("name", "plans"), [("nightly-h200", nightly), ("nightly-h100", nightly), ("ablation-h200", ablation)]
)
def test_the_plan_of_results_that_ship_is_still_the_same_plan(tmp_path: Path, name: str, plans: ModuleType) -> None:
    with (ROOT / "evals" / "results" / f"{name}.jsonl").open() as lines:
        head = json.loads(next(lines))
    said = (f"{key} = {json.dumps(value)}" for key, value in head["plan"].items() if value is not None)
    (tmp_path / "plan.toml").write_text("\n".join(said))
    assert plans.read(tmp_path / "plan.toml").digest == head["digest"]
