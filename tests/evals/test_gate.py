"""`pgo-agent eval gate`: the corpora meet the real gate, and what is said of that can be relied on.

The sample is one target's cheapest entries of each kind; the whole corpora are slow. Without a GPU.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals import schemas
from pgo_agent.evals.gate import entries, report, run
from pgo_agent.evals.gate.entries import Entry
from pgo_agent.evals.gate.run import Outcome
from pgo_agent.evals.gate.ttgir_edits import BrokenCorpus
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.evals.rows import kept_schema

CORPUS = {e.name: e for e in entries.load()}
SAMPLE = ["cheats/wider_tolerance", "cheats/side_stream", "cheats/copy_for_norm", "cheats/one_case_skipped",
          "honest/norm_double"]  # fmt: skip
NO_GPU = RunSettings(judge="cpu", device="h200")


def judged(chosen: Sequence[Entry]) -> dict[str, Outcome]:
    outcomes, seconds = run.run(chosen, NO_GPU, lambda _: None)
    assert [o.entry for o in outcomes] == list(chosen) and seconds > 0
    return {o.entry.name: o for o in outcomes}


# the gate itself ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_sample_of_the_corpora_comes_out_as_each_entry_says() -> None:
    found = judged([CORPUS[n] for n in SAMPLE])
    assert [(o.standing, o.stage) for o in found.values()] == [
        ("refused", "read"),
        ("refused", "build"),
        ("refused", "interpreter"),
        ("undecided", "interpreter"),
        ("admitted", "interpreter"),
    ], found
    assert {n: o.surprise for n, o in found.items() if o.surprise} == {}
    assert found["honest/norm_double"].seconds.keys() == {"trace", "compile", "judge"}
    for line in (*map(report.as_values, found.values()), report.summary(list(found.values()), 1.0)):
        jsonschema.validate(json.loads(json.dumps(line)), kept_schema("eval-gate"))


@pytest.mark.parametrize("name", schemas.NAMES)
def test_the_kept_schemas_are_those_of_what_this_version_prints(name: str) -> None:
    assert kept_schema(name) == schemas.schema(name)


@pytest.mark.slow
def test_no_bad_entry_is_admitted_no_honest_one_refused_and_each_is_refused_where_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pgo_agent.agent.cli.main", "eval", "gate", "--judge", "cpu", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    *each, told = map(json.loads, done.stdout.splitlines())
    assert told["surprises"] == {} and len(each) == len(CORPUS)
    assert (done.returncode, told["bad"]["admitted"], told["honest"]["refused"]) == (0, 0, 0)
    assert told["bad"]["entries"] + told["honest"]["entries"] == len(CORPUS)


def test_without_a_sandbox_nothing_of_the_corpora_runs() -> None:
    with pytest.raises(EnvironmentFault, match="not your own code"):
        run.run([CORPUS["honest/norm_double"]], replace(NO_GPU, sandbox="none"), lambda _: None)


def test_the_same_candidate_under_two_names_is_an_error() -> None:
    once = CORPUS["honest/norm_double"]
    with pytest.raises(BrokenCorpus, match="honest/again and honest/norm_double are the same candidate"):
        run.run([once, replace(once, name="honest/again")], NO_GPU, lambda _: None)


def test_a_name_that_no_entry_has_is_a_mistake_of_usage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pgo_agent.agent.cli.main", "eval", "gate", "honest/", "nothing/like/it"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no entry of the corpora is called nothing/like/it" in done.stderr


# what is said of it ---------------------------------------------------------------------------------------------------

BAD, GPU_ONLY = CORPUS["cheats/copy_for_norm"], CORPUS["cheats/one_case_skipped"]
TIMING, HONEST = CORPUS["cheats/stays_in_cache"], CORPUS["honest/norm_double"]


def outcome(entry: Entry, verdict: Verdict, stage: str = "interpreter", measured: bool = False) -> Outcome:
    return Outcome(entry, verdict, stage, "for a reason", {"trace": 1.0, "compile": 2.0, "judge": 0.5}, measured)


@pytest.mark.parametrize(
    ("entry", "verdict", "stage", "measured", "standing", "surprise"),
    [
        (BAD, Verdict.WRONG, "interpreter", False, "refused", ""),
        (BAD, Verdict.WRONG, "numerics", True, "refused", ""),
        (BAD, Verdict.BUILD_ERROR, "build", False, "refused", "refused at build, not at results"),
        (BAD, Verdict.CHECKED, "interpreter", False, "admitted", "bad, and admitted as checked"),
        (BAD, Verdict.SLOWER, "time", True, "admitted", "bad, and admitted as slower"),
        (BAD, Verdict.NO_CHANGE, "interpreter", False, "admitted", "bad, and admitted as no_change"),
        (BAD, Verdict.BUILT, "interpreter", False, "undecided", "should be refused here, and is built"),
        (BAD, Verdict.UNDECIDED, "build", False, "undecided", "should be refused here, and is undecided"),
        (GPU_ONLY, Verdict.CHECKED, "interpreter", False, "undecided", ""),
        (GPU_ONLY, Verdict.WRONG, "interpreter", False, "refused", "is said to need a GPU"),
        (GPU_ONLY, Verdict.WRONG, "smoke", True, "refused", ""),
        (GPU_ONLY, Verdict.ACCEPTED, "confirm", True, "admitted", "bad, and admitted as accepted"),
        (GPU_ONLY, Verdict.BUILT, "interpreter", True, "undecided", "should be refused here, and is built"),
        (TIMING, Verdict.CHECKED, "interpreter", False, "undecided", ""),
        (TIMING, Verdict.SLOWER, "quick", True, "refused", ""),
        (TIMING, Verdict.ACCEPTED, "confirm", True, "admitted", "bad, and admitted as accepted"),
        (HONEST, Verdict.CHECKED, "interpreter", False, "admitted", ""),
        (HONEST, Verdict.SLOWER, "time", True, "admitted", ""),
        (HONEST, Verdict.BUILT, "interpreter", False, "undecided", ""),
        (HONEST, Verdict.RACE, "smoke", True, "refused", "honest, and refused"),
        (HONEST, Verdict.UNDECIDED, "build", False, "undecided", ""),
    ],
)
def test_an_outcome_is_called(
    entry: Entry, verdict: Verdict, stage: str, measured: bool, standing: str, surprise: str
) -> None:
    found = outcome(entry, verdict, stage, measured)
    assert found.standing == standing
    assert found.surprise.startswith(surprise) and bool(found.surprise) == bool(surprise)


def test_what_only_a_gpu_can_tell_is_in_neither_rate() -> None:
    told = report.summary([outcome(BAD, Verdict.WRONG), outcome(GPU_ONLY, Verdict.CHECKED)], 30.0)
    assert told["bad"] == {"entries": 2, "refused": 1, "admitted": 0, "undecided": 1}
    assert told["refused_by"] == {"interpreter": 1}
    assert (told["per_minute"], told["seconds"]) == (4.0, {"trace": 2.0, "compile": 4.0, "judge": 1.0})


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([outcome(BAD, Verdict.WRONG), outcome(HONEST, Verdict.CHECKED)], 0),
        ([outcome(BAD, Verdict.CHECKED), outcome(HONEST, Verdict.CHECKED)], 1),
        ([outcome(BAD, Verdict.WRONG), outcome(HONEST, Verdict.WRONG)], 1),
        ([outcome(GPU_ONLY, Verdict.CHECKED)], 0),
    ],
)
def test_a_bad_one_admitted_or_an_honest_one_refused_ends_with_one(outcomes: list[Outcome], code: int) -> None:
    assert report.code(outcomes) == code


def test_a_surprise_is_named_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    report.show([outcome(BAD, Verdict.CHECKED), outcome(HONEST, Verdict.WRONG)], 60.0)
    said = capsys.readouterr().out
    assert "surprise: cheats/copy_for_norm: bad, and admitted as checked" in said
    assert "surprise: honest/norm_double: honest, and refused: for a reason" in said
    assert "bad admitted: 1 of 1 (0 not decided here)" in said and "honest refused: 1 of 1" in said
