"""A nightly: its plan is whole, its runs are real, and what it wrote is there however it ended.

The GPU is `made_up.py`: the real worker of a spool, whose judge reads every bundle and makes its times up.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from pgo_agent.agent.cli.evals import evals
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.leaderboard import site
from pgo_agent.evals.nightly import load, run
from pgo_agent.evals.nightly import plan as plans
from pgo_agent.evals.nightly.plan import NightlyPlan, NightlyRun
from pgo_agent.evals.regressions import report
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.target import COMPILED

from tests.agent import made_up
from tests.agent.command_line import Done, command, pgo, write
from tests.conftest import ROOT
from tests.evals.rows import kept_schema, row

pytestmark = pytest.mark.long  # whole runs

TEXT = """
targets = ["add.py"]
optimizers = ["embedded"]
seeds = [1]
candidates = 2
patience = 1
minutes = 10
gpu_seconds = 600
"""
ONE_CASE = ('"1m": dict(n=1 << 20), "16m": dict(n=1 << 24)', '"1m": dict(n=1 << 20)')
NIGHT = ("eval", "nightly", "plan.toml", "-o", "rows.jsonl")
ELSEWHERE = ("--judge", "spool:box")


def planned(folder: Path, *changes: tuple[str, str]) -> Path:
    write(folder, ONE_CASE)
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "plan.toml").write_text(text)
    return folder


# plans ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("gpu_seconds = 600", "", "says nothing of gpu_seconds"),
        ('["add.py"]', '["add.py", "other/add.py"]', "two targets are called add"),
        ('["embedded"]', "[]", "optimizers is no list of different texts"),
        ("[1]", "[1, 1]", "seeds is no list of different numbers"),
        ("candidates = 2", "candidates = 0", "candidates is no number above 0"),
        ("patience = 1", "patience = 1\nmoney = -1", "money is no number above 0"),
        ("patience = 1", "patience = 1\ngoal = 1", "may not say anything of goal"),
        ("patience = 1", "patience = 1\ncompile_reference = 1", "compile_reference is neither true nor false"),
        ("patience = 1", "patience = 1\nsuite = 1", "suite is no text"),
        ("minutes = 10", "minutes =", "is no TOML"),
    ],
)
def test_a_plan_that_is_not_whole_is_refused_by_what_is_wrong(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(UsageFault, match=problem):
        plans.read(planned(tmp_path, (old, new)) / "plan.toml")


def test_the_plan_that_ships_is_one_of_the_kernels_that_ship(tmp_path: Path) -> None:
    found = plans.read(ROOT / "evals" / "nightly.toml")
    assert set(found.targets) == {"fa_fwd", "fa_bwd", "gemm"} and len(found.seeds) == 3
    assert set(found.targets) <= {p.stem for p in (ROOT / "kernels").glob("[a-z]*.py")}
    told = pgo("eval", "nightly", "--help", cwd=tmp_path, COLUMNS="200").out
    (tmp_path / "plan.toml").write_text("\n".join(line.strip() for line in told.splitlines() if " = " in line))
    assert plans.read(tmp_path / "plan.toml").limits.gpu_seconds == 1200


def test_a_plan_may_ask_for_the_compiled_reference_and_one_that_does_not_keeps_its_hash(tmp_path: Path) -> None:
    one = plans.read(planned(tmp_path) / "plan.toml")
    also = ("patience = 1", 'patience = 1\ncompile_reference = true\nsuite = "field"')
    other = plans.read(planned(tmp_path, also) / "plan.toml")
    assert not {"compile_reference", "suite"} & one.values.keys() and one.digest != other.digest
    asked = [p.settings_of(p.runs[0], RunSettings()).compile_reference for p in (one, other)]
    assert asked == [False, True] and other.suite == "field"


def test_a_night_that_is_cut_short_has_something_of_everything() -> None:
    found = NightlyPlan(("a", "b"), ("embedded", "m"), (1, 2), RunSettings()).runs
    assert found[:4] == [NightlyRun(t, o, 1) for t in ("a", "b") for o in ("embedded", "m")] and len(set(found)) == 8


def test_a_recording_may_be_named_by_the_kernel_that_it_is_of() -> None:
    assert plans.model("replay:all/{kernel}.jsonl", "kernels/gemm.py") == "replay:all/gemm.jsonl"


# before anything is measured ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("FOLDER/add.py", "FOLDER/nothing.py", "nothing.py"),
        ('["embedded"]', '["replay:gone.jsonl"]', "cannot read the recording"),
        ('["embedded"]', '["some-model"]', "no key for the model server"),
    ],
)
def test_what_cannot_run_is_said_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, problem: str
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = planned(tmp_path, ("add.py", "FOLDER/add.py"), (old, new), ("FOLDER", str(tmp_path)))
    found = plans.read(folder / "plan.toml")
    with pytest.raises(UsageFault, match=problem):
        run.check(run.opened(tmp_path / "rows.jsonl", found), RunSettings(judge="cpu"))


def test_rows_of_another_plan_commit_text_or_gpu_are_refused(tmp_path: Path) -> None:
    found = plans.read(planned(tmp_path, ("add.py", str(tmp_path / "add.py"))) / "plan.toml")
    night, file = run.opened(tmp_path / "rows.jsonl", found), tmp_path / "rows.jsonl"
    text = target.read(tmp_path / "add.py").digest
    own = row(target=found.targets[0], digest=text).as_json()
    for head, told, problem in (
        ({"digest": "another"}, own, "rows of another plan|results of another plan"),
        ({"commit": f"{'c' * 40}, edited 1a2b3c4d"}, own, "was begun at commit c{10}, edited 1a2b3c4d, and this is"),
        ({}, own | {"digest": "another"}, "add.py was edited since"),
        ({}, own, "was begun on NVIDIA H200, and this is NVIDIA B200"),
    ):
        first = {"what": "plan", "digest": found.digest, **night.head} | head
        file.write_text(f"{json.dumps(first)}\n{json.dumps(told)}\n")
        elsewhere = RunSettings(device="b200", judge=f"spool:{tmp_path / 'box'}")
        with pytest.raises(UsageFault, match=problem):
            run.check(run.opened(file, found), elsewhere)


def test_two_rows_of_one_run_are_refused(tmp_path: Path) -> None:
    found = plans.read(planned(tmp_path) / "plan.toml")
    night = run.opened(tmp_path / "rows.jsonl", found)
    first = {"what": "plan", "digest": found.digest, **night.head}
    lines = [first, row().as_json(), row(run="again").as_json()]
    night.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UsageFault, match="line 3: it is the second result of one run"):
        run.opened(night.file, found).lines  # noqa: B018 (it is read, and refused, here)


def test_a_row_without_samples_cannot_be_written(tmp_path: Path) -> None:
    night = run.opened(tmp_path / "rows.jsonl", plans.read(planned(tmp_path) / "plan.toml"))
    bare = row().as_json() | {"cases": {}}
    with pytest.raises(UsageFault, match="a row without samples"):
        night.add(bare.pop("what"), **bare)
    assert not night.file.exists()


# runs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A night of one run. Made once."""
    folder = planned(tmp_path_factory.mktemp("night"))
    with made_up.answering(folder):
        return folder, pgo(*NIGHT, *ELSEWHERE, "--json", cwd=folder)


def test_a_run_has_a_row_with_all_that_it_came_to(measured: tuple[Path, Done]) -> None:
    folder, done = measured
    assert done.code == 0, done.err
    jsonschema.validate(done.events[-1], kept_schema("eval-nightly"))
    (found,) = load.file(folder / "rows.jsonl").rows
    assert found.winner and found.ratio("tuned").mid == pytest.approx(1.2)
    assert found.key == ("add", "embedded", 1) and found.gpu == "NVIDIA H200"
    assert (found.gpu_seconds, found.tokens, found.models, found.prompts) == (made_up_seconds(found), 0, (), ())
    assert sum(found.verdicts.values()) == len(found.candidates) == 2
    assert "+" in found.winner.diff and [s["stage"] for s in found.winner.stages][-1] == "confirm"
    (case,) = found.cases.values()
    assert len(case.plans["winner"]["plan_id"]) == 64 and len(case.ms["A/A"]) == made_up.ROUNDS
    assert done.events[-1] | {"plan": "", "gpu_seconds": 0} == {
        "type": "nightly.completed", "plan": "", "rows": 1, "failed": 0, "missing": 0, "gpu_seconds": 0,
        "mean": {"embedded": {"shipped": pytest.approx(1.2), "tuned": pytest.approx(1.2)}},
    }  # fmt: skip


def made_up_seconds(found: load.Row) -> float | None:
    """A whole number of what each command is said to have taken."""
    spent = found.gpu_seconds
    return spent if spent and spent % made_up.SECONDS == 0 else None


def test_a_night_that_has_ended_makes_no_run_again_and_shows_its_rows(measured: tuple[Path, Done]) -> None:
    folder, _ = measured
    before = (folder / "rows.jsonl").read_text()
    done = pgo(*NIGHT, *ELSEWHERE, cwd=folder, COLUMNS="120")
    assert done.code == 0 and "1.200 [1.200, 1.200]" in done.out and (folder / "rows.jsonl").read_text() == before


def test_a_night_and_itself_have_the_same_code_and_make_a_site(measured: tuple[Path, Done]) -> None:
    folder, _ = measured
    rows = folder / "rows.jsonl"
    assert report.main(rows, rows, 0.02, True, False) == 0
    site.main([rows], folder / "site")
    assert "1.200x" in (folder / "site" / "add-h200.html").read_text()


@pytest.mark.slow
def test_a_kernel_that_fails_has_its_row_and_the_night_goes_on(tmp_path: Path) -> None:
    planned(tmp_path, ('["add.py"]', '["broken.py"]'), ("[1]", "[1, 2]"))
    write(tmp_path, ONE_CASE, ("inside = at < n\n", "inside = at < missing\n"), name="broken.py")
    with made_up.answering(tmp_path, "broken.py"):
        done = pgo(*NIGHT, *ELSEWHERE, "--json", cwd=tmp_path)
    found = load.file(tmp_path / "rows.jsonl").rows
    assert done.code == 0 and done.events[-1]["failed"] == len(found) == 2, done.err
    assert all("missing" in r.failed and r.ratio("tuned").mid == 1.0 for r in found)


@pytest.mark.slow
def test_a_night_that_is_killed_goes_on_with_the_run_that_it_was_at(tmp_path: Path) -> None:
    own = (*NIGHT, *ELSEWHERE, "--json")
    planned(tmp_path, ("[1]", "[1, 2]"))
    with made_up.answering(tmp_path):
        first = subprocess.Popen(command(*own), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        next(line for line in first.stdout if json.loads(line)["type"] == "baseline.completed")
        first.send_signal(signal.SIGKILL)
        first.communicate()
        with (tmp_path / "rows.jsonl").open("a") as file:
            file.write('{"what": "ru')
        done = pgo(*own, cwd=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    begun, ended = ([line["run"] for line in lines if line["what"] == what] for what in ("begun", "run"))
    assert done.code == 0 and begun == ended and len(ended) == 2 and done.events[-1]["missing"] == 0


# every night ----------------------------------------------------------------------------------------------------------


def script(folder: Path, name: str, *args: str, packages: str = "none") -> "subprocess.CompletedProcess[str]":
    """`evals/nightly.sh` on the folder's plan. `packages`: which kernels of public packages."""
    command = [ROOT / "evals" / "nightly.sh", folder / "nights", name, *args]
    settings = os.environ | {"PLAN": str(folder / "plan.toml"), "PYTHON": sys.executable, "FIELD": packages}
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False, timeout=600)


def test_without_a_gpu_a_night_begins_nothing_and_its_script_ends_as_it_does(tmp_path: Path) -> None:
    planned(tmp_path, ("add.py", str(tmp_path / "add.py")))
    done = script(tmp_path, "one", "--judge", "cpu")
    assert done.returncode == 3 and "nothing would be measured" in done.stderr, done.stderr
    assert list((tmp_path / "nights").rglob("*.*")) == []


@pytest.mark.slow
def test_the_script_draws_all_nights_and_compares_the_last_two(tmp_path: Path) -> None:
    planned(tmp_path, ("add.py", str(tmp_path / "add.py")))
    with made_up.answering(tmp_path):
        first, second = (script(tmp_path, name, "--judge", f"spool:{tmp_path / 'box'}") for name in ("9", "10"))
    assert first.returncode == 0 and "regression" not in first.stdout, first.stderr
    assert second.returncode == 0 and "1 same code (of 1)" in second.stdout, second.stderr
    assert "Night by night" in (tmp_path / "nights" / "site" / "add-h200.html").read_text()


@pytest.mark.slow
def test_a_night_measures_kernels_of_public_packages_too_and_the_page_shows_both(tmp_path: Path) -> None:
    planned(tmp_path, ("add.py", str(tmp_path / "add.py")))
    kernel, field = "liger_selective_log_softmax", tmp_path / "nights" / "field" / "9"
    field.parent.mkdir(parents=True)
    assert pgo("eval", "field", kernel, "--no-check", "-o", str(field), cwd=tmp_path).code == 0
    with made_up.answering(tmp_path, "add.py", str(field / "targets" / f"{kernel}.py")):
        done = script(tmp_path, "9", "--judge", f"spool:{tmp_path / 'box'}", packages=kernel)
    assert done.returncode == 0, done.stderr
    (found,) = load.file(field / "rows.jsonl").rows
    assert found.suite == "field" and found.uncompiled == {} and found.over(COMPILED) == pytest.approx(6.0 * 1.2 / 2.0)
    told = json.loads((tmp_path / "nights" / "site" / "results.json").read_text())
    assert [r["kernel"] for r in told["gpus"]["NVIDIA H200"]["last"]] == ["add"]
    (packages,) = told["kernels of public packages"]
    assert [k["kernel"] for k in packages["kernels"]] == [kernel] and packages[COMPILED]["kernels"] == 1


def test_the_page_about_nights_names_commands_and_files_that_exist() -> None:
    text = (ROOT / "docs" / "nightly.md").read_text()
    named, known = set(re.findall(r"pgo-agent eval (\w+)", text)), {c.name for c in evals.registered_commands}
    assert {"nightly", "site", "compare"} <= named <= known
    assert all((ROOT / name).is_file() for name in re.findall(r"(?:evals|\.github)/[\w/]+\.\w+", text))
