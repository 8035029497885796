"""Rows: what has no evidence is neither written nor read, and figures are those of the samples."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.run.record.baseline import Unfit
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly import row as rows
from pgo_agent.evals.nightly.report import mean, slower
from pgo_agent.evals.tables import tables
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.judge.machine import Environment

from tests.conftest import ROOT
from tests.evals.rows import RECORDED, RESULTS, case, failed, night, row

UNHASHABLE = {"targets": [[]], "optimizers": [[]], "seeds": [1]}
NIGHTLY = RESULTS / "nightly-h200.jsonl"

Spoil = Callable[[dict[str, Any]], object]


def told(change: Spoil) -> str:
    """The problem of a row's line after a change of it."""
    line = json.loads(json.dumps(row().as_json()))
    assert rows.problem(line) == ""
    change(line)
    return rows.problem(line)


def of_case(line: dict[str, Any]) -> dict[str, Any]:
    return line["cases"]["CASES/1m"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda line: line.update(cases={}), "without samples"),
        (lambda line: of_case(line)["ms"].pop("tuned"), "without samples of tuned"),
        (lambda line: of_case(line)["ms"].update({"A/A": []}), "without samples of A/A"),
        (lambda line: of_case(line)["ms"]["winner"].pop(), "not timed in the same rounds"),
        (lambda line: of_case(line)["ms"].update(winner=[0.0] * 30), "samples that are no times"),
        (lambda line: of_case(line)["ms"].update(winner=[math.nan] * 30), "samples that are no times"),
        (lambda line: of_case(line)["plans"].pop("winner"), "nothing names the code of winner"),
        (lambda line: line.update(winner=None), "times of a winner that the row does not have"),
        (lambda line: line.update(failed="it fell over"), "a failure with a winner"),
        (lambda line: line["ratio"].update(tuned=[1.4, 1.5, 1.6]), "it says 1.5000x of tuned, its samples say 1."),
        (lambda line: line.update(environment={}), "names no GPU"),
        (lambda line: line.pop("commit"), "says nothing of commit"),
        (lambda line: line.update(candidates=[{"id": "x"}]), "is not a Tried"),
        (lambda line: line.update(cases=[1]), "it is no row"),
        (lambda line: line.update(candidates=[]), "a winner that is no accepted candidate"),
        (lambda line: line.update(when=5), "when: 5 is not a str"),
        (lambda line: line.update(tokens="many"), "tokens: 'many' is not a int"),
        (lambda line: line["winner"].update(moves=[1]), "winner: moves: 1 is not a str"),
        (lambda line: line["winner"].update(stages=[{}]), "a stage that does not say what it said"),
        (lambda line: line["environment"].update(tflops="many"), "tflops"),
        (lambda line: of_case(line).update(weight=0), "it is no row"),
    ],
)
def test_a_row_without_its_evidence_is_none(change: Spoil, problem: str) -> None:
    assert problem in told(change)


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_whatever_stands_in_a_line_is_refused_in_words(value: Any) -> None:
    line = row().as_json()
    for name in ("cases", "environment", "candidates", "ratio"):
        assert rows.problem(json.loads(json.dumps(line)) | {name: value})


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = (row(), row(seed=2, run="add-2"), failed(seed=3, run="add-3"))
    assert load.file(night(tmp_path / "a.jsonl", written)).rows == written


def test_a_failure_and_a_run_without_a_winner_count_as_one() -> None:
    none = row({"CASES/1m": case(0)})
    for r in (failed(), none):
        assert (r.ratio("tuned").low, r.ratio("tuned").mid, r.middle("shipped")) == (1.0, 1.0, 1.0)
    assert mean([row(), failed(seed=2)], "tuned") == pytest.approx(math.sqrt(1.1), rel=0.01)


def test_every_kernel_weighs_the_same_however_many_rows_it_has() -> None:
    found = [row(seed=1), row(seed=2), row(seed=3), row({"CASES/1m": case(0)}, kernel="other")]
    assert mean(found, "tuned") == pytest.approx(math.sqrt(1.1), rel=0.01)


@settings(max_examples=10)
@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4))
def test_the_quick_ratio_is_the_middle_of_the_slow_one(ratios: list[float]) -> None:
    r = row({f"CASES/{n}": replace(case(x), weight=1.0 + n) for n, x in enumerate(ratios)})
    assert r.middle("tuned") == pytest.approx(r.ratio("tuned").mid)


def test_shares_are_of_the_fastest_library_and_of_the_measured_peak() -> None:
    c = case()
    with_libraries = replace(c, ms={**c.ms, "slow": [9.0] * 30, "fast": [1.0] * 30})
    found = row({"CASES/1m": with_libraries}).as_json()["cases"]["CASES/1m"]["reached"]["winner"]
    assert found["library"] == "fast" and found["of_library"] == pytest.approx(1.1 / 2, rel=0.01)
    assert found["of_peak"] == pytest.approx(found["rate"] / 800.0)
    assert c.reached("winner", Environment("NVIDIA H200")).of_peak is None


# files ----------------------------------------------------------------------------------------------------------------


def test_recorded_runs_are_rows_with_the_ratios_of_the_readme() -> None:
    own = [r for r in load.files(RECORDED).rows if r.gpu == "NVIDIA H200" and r.seed in (None, 1)]
    assert {r.kernel for r in own} == {"fa_fwd", "fa_bwd", "gemm"} and len(own) == 6
    text = tables()
    for r in (r for r in own if r.winner):
        assert f"Geometric mean {r.ratio('tuned').mid:.3f} [" in text
        assert r.winner and r.winner.diff.startswith("--- as shipped\n+++ winner\n")


def test_no_recorded_time_is_below_the_physical_floor() -> None:
    for r in load.files(RECORDED).rows:
        device, text = devices.named(r.gpu), (ROOT / "kernels" / f"{r.target}.py").read_text()
        assert device is not None
        rate = device.tensor_tflops("float8" in text) * 1e12
        for c in r.cases.values():
            assert min(min(ms) for ms in c.ms.values()) > 1e3 * max(c.flops / rate, c.bytes / (device.gbps * 1e9))


def test_an_ablation_holds_no_rows_and_is_none_of_a_nights_faults() -> None:
    found = load.files(RECORDED)
    assert "ablation-h200.jsonl holds no rows, but runs that `pgo-agent eval ablation` compares" in found.notes
    assert not any(r.file == "ablation-h200.jsonl" for r in found.rows)


def test_runs_of_a_plan_that_have_no_row_are_said_by_name(tmp_path: Path) -> None:
    own = row()
    plan = {"targets": [own.target], "optimizers": [own.optimizer, "replay:a"], "seeds": [1, 2]}
    file = night(tmp_path / "a.jsonl", [own], plan=plan)
    absent = "add by replay:a, seed 1; add by embedded, seed 2; add by replay:a, seed 2"
    assert load.file(file).notes == (f"a.jsonl: 3 of the 4 runs of its plan have no row: {absent}",)


@pytest.mark.parametrize("plan", [None, [], {}, {"targets": 3, "optimizers": [], "seeds": []}, UNHASHABLE])
def test_a_plan_that_names_no_runs_says_nothing_of_them(tmp_path: Path, plan: object) -> None:
    assert load.file(night(tmp_path / "a.jsonl", [row()], plan=plan)).notes == ()


def test_a_last_line_that_was_cut_off_is_left_out_and_said(tmp_path: Path) -> None:
    found = load.file(night(tmp_path / "a.jsonl", [row()], '{"what": "run", "ker'))
    assert len(found.rows) == 1 and found.notes == ("a.jsonl: its last line was cut off, and is left out",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("half a line", "holds no line"),
        ("nonsense\n", "line 1: it is no row"),
        ("[1]\n", "line 1: it is no row"),
        ('{"what": "else"}\n', "lines of else side by side"),
        ('{"what": "gate"}\n', "line 1: it does not say what the gate says"),
        ('{"what": "gate batch", "entries": 1, "wall": 0}\n', "line 1: it does not say what the gate says"),
        ('{"what": "run"}\n', "line 1: a row that says nothing of"),
    ],
)
def test_a_file_that_is_none_of_rows_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(UsageFault, match=problem):
        load.file(tmp_path / "a.jsonl")


def test_the_file_of_a_night_that_never_began_is_empty_and_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert load.file(tmp_path / "a.jsonl").notes == ("a.jsonl is empty: no run of it was begun",)
    assert load.files([tmp_path / "a.jsonl", NIGHTLY]).rows == load.file(NIGHTLY).rows


def test_two_rows_of_one_key_are_refused_by_their_lines(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="line 3: line 2 is a row of add, embedded, seed 1, too"):
        load.file(night(tmp_path / "a.jsonl", [row(), row(run="add-2")]))


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("monday", "tuesday"):
        (tmp_path / folder).mkdir()
        night(tmp_path / folder / "rows.jsonl", [row(run=folder)])
    paths = [tmp_path / folder / "rows.jsonl" for folder in ("monday", "tuesday")]
    assert [r.file for r in load.files(paths).rows] == ["monday/rows.jsonl", "tuesday/rows.jsonl"]
    assert load.names([paths[0]]) == ["rows.jsonl"] and load.names([]) == []
    assert load.names([Path("/a/rows.jsonl"), Path("/b/a/rows.jsonl")]) == ["/a/rows.jsonl", "b/a/rows.jsonl"]


def test_a_file_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageFault, match="both hold run"):
        load.files([NIGHTLY, NIGHTLY])


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    for name, problem in (("none", "cannot read"), ("binary", "is no text"), (".", "cannot read")):
        with pytest.raises(UsageFault, match=problem):
            load.file(tmp_path / name)


# what the autotuner picks ---------------------------------------------------------------------------------------------


def test_a_row_keeps_what_the_autotuner_picks_and_says_that_nothing_was_gained_over_it() -> None:
    own = case()
    picked = replace(own, ms=own.ms | {"autotuned": [x / 2 for x in own.ms["shipped"]]})
    unfit = (Unfit("CASES/1m", "BLOCK=2", "wrong: output 0", 1.0),)
    read = rows.parse(json.loads(json.dumps(row({"CASES/1m": picked}, unfit=unfit).as_json())))
    assert read.unfit == unfit and read.of_autotuned == pytest.approx(0.55, rel=0.05)
    assert read.cases["CASES/1m"].libraries == [] and slower(read).startswith("nothing was gained")
