"""An ablation whose model answers files: its runs share a baseline, and whoever answers learns nothing of their arms.

Kernels are really built; the times are of a judge that is made up (`tests/agent/made_up.py`).
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.ablation import plan as plans
from pgo_agent.evals.ablation.plan import LENDER, AblationPlan, AblationRun, Arm, Insight
from pgo_agent.sandbox.errors import UsageFault

from tests.agent import made_up
from tests.agent.command_line import Done, pgo
from tests.conftest import TARGETS
from tests.shared_builds import lend

pytestmark = pytest.mark.long  # whole runs of every arm

PLAN = """
metric = "best"
targets = ["twin.py", "momentum.py"]
insights = ["none", "another"]
models = ["relay:answers"]
seeds = [1]
candidates = 2
width = 2
generations = 1
patience = 9
minutes = 10
prompt_tokens = 60000
"""
LARGER = """---
model: a test
tokens: 900 90
---
A larger block.
<<<<<<< SEARCH
    _momentum[(triton.cdiv(p.numel(), 1024),)](p, g, m, p.numel(), lr, BLOCK=1024)
=======
    _momentum[(triton.cdiv(p.numel(), 2048),)](p, g, m, p.numel(), lr, BLOCK=2048)
>>>>>>> REPLACE
"""
COMMAND = ("eval", "ablation", "plan.toml", "-o", "out.jsonl", "--judge", "spool:box", "--json")


def prepare(folder: Path, *changes: tuple[str, str]) -> None:
    text = PLAN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "plan.toml").write_text(text)
    kernel = (TARGETS / "momentum.py").read_text()
    (folder / "momentum.py").write_text(kernel)
    (folder / "twin.py").write_text(kernel.replace("for tests", "for the same tests"))
    lend(folder / ".pgo-agent")


def answer(folder: Path) -> None:
    """Answer every question that has no answer."""
    for request in folder.glob("answers/*/*-request.md"):
        reply = request.with_name(request.name.replace("request", "reply"))
        if not reply.exists():
            draft = reply.with_suffix(".draft")
            draft.write_text(LARGER)
            draft.rename(reply)


@contextmanager
def answering(folder: Path) -> Iterator[None]:
    over = threading.Event()

    def go() -> None:
        while not over.wait(0.2):
            answer(folder)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Made:
    folder: Path
    done: Done

    def lines(self, what: str) -> list[dict[str, Any]]:
        told = [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]
        return [line for line in told if line["what"] == what]

    @property
    def cells(self) -> list[dict[str, Any]]:
        return [line for line in self.lines("run") if line["model"] != LENDER.model]

    @property
    def lenders(self) -> dict[str, dict[str, Any]]:
        return {line["target"]: line for line in self.lines("run") if line["model"] == LENDER.model}

    @property
    def requests(self) -> list[Path]:
        return sorted(self.folder.glob("answers/*/*-request.md"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two kernels and two arms, to their end in one command that waits. Made once."""
    folder = tmp_path_factory.mktemp("ablation")
    prepare(folder)
    with made_up.answering(folder, "twin.py", "momentum.py"), answering(folder):
        return Made(folder, pgo(*COMMAND, cwd=folder))


def test_every_cell_has_a_row_with_the_ratio_to_tuned_after_each_generation(made: Made) -> None:
    assert made.done.code == 0, made.done.err
    assert [(c["target"], c["insight"]) for c in made.cells] == [
        (t, i) for t in ("twin.py", "momentum.py") for i in ("none", "another")
    ]
    for cell in made.cells:
        (generation,) = cell["generations"]
        assert generation["best"] == pytest.approx(1.2) and generation["verdicts"] == ["accepted"]
        assert generation["gpu_seconds"] == 4 * made_up.SECONDS and generation["tokens"] == 990
        assert cell["to_near"] == cell["to_best"] == {"gpu_seconds": 4 * made_up.SECONDS, "tokens": 990}
        assert cell["first_try"] == {"tries": 1, "valid": 1} and cell["answered_by"] == ["a test"]
        assert cell["left_out"] == []


def test_the_baseline_of_a_kernel_is_taken_once_and_each_row_names_whose_it_is(made: Made) -> None:
    asked = [json.loads(line)["do"] for line in (made.folder / "box.asked").read_text().splitlines()]
    assert asked.count("sweep") == 2 and made.lenders.keys() == {"twin.py", "momentum.py"}
    lent = {target: line["run"] for target, line in made.lenders.items()}
    assert [c["baseline_of"] for c in made.cells] == [lent[c["target"]] for c in made.cells]
    others = {"twin.py": lent["momentum.py"], "momentum.py": lent["twin.py"]}
    assert [c["profile_of"] for c in made.cells] == [
        others[c["target"]] if c["insight"] == "another" else "" for c in made.cells
    ]


def test_who_answers_reads_nothing_of_the_arm_and_finds_no_other_run_beside_the_question(made: Made) -> None:
    folders = {r.parent for r in made.requests}
    assert len(folders) == len(made.requests) == len(made.cells)
    said = (r.read_text().partition("the prompt: ")[0] for r in made.requests)
    heads = {re.sub(r"\b(twin|momentum)-\w+|\d+-\w{8}", "", head) for head in said}
    assert len(heads) == 1 and all(re.fullmatch(r"[0-9a-f]+", f.name) for f in folders)


def test_only_the_model_proposes(made: Made) -> None:
    proposed = [e for e in made.done.events if e["type"] == "candidate.proposed"]
    assert {e["proposer"] for e in proposed} == {"model"} and len(proposed) == len(made.cells)


def test_what_is_not_waited_for_is_told_together_and_goes_on_with_the_same_command(tmp_path: Path) -> None:
    prepare(tmp_path)
    done = pgo(*COMMAND, "--no-wait", cwd=tmp_path)
    last = done.events[-1]
    assert (done.code, last["type"], last["missing"]) == (5, "ablation.completed", 6)
    assert [w["asked"] for w in last["waiting"]] == ["the judge"] * 2  # a cell waits for its lender
    shown = pgo(*COMMAND[:-1], "--no-wait", cwd=tmp_path).out
    assert f"--spool {tmp_path / 'box'} --once --target twin.py --target momentum.py" in shown


def test_several_processes_make_the_runs_in_one_workspace(tmp_path: Path) -> None:
    prepare(tmp_path)
    with made_up.answering(tmp_path, "twin.py", "momentum.py"), answering(tmp_path):
        done = Made(tmp_path, pgo(*COMMAND, "--at-once", "2", cwd=tmp_path))
    assert done.done.code == 0 and len(done.cells) == 4 and len(done.lines("begun")) == 6, done.done.err
    lent = {target: line["run"] for target, line in done.lenders.items()}
    assert [c["baseline_of"] for c in done.cells] == [lent[c["target"]] for c in done.cells]
    assert not (tmp_path / ".pgo-agent" / "at-once").exists()


@pytest.mark.slow
def test_what_several_processes_ask_is_told_together_and_no_run_is_begun_twice(tmp_path: Path) -> None:
    prepare(tmp_path)
    with made_up.answering(tmp_path, "twin.py", "momentum.py"):
        codes = [pgo(*COMMAND, "--no-wait", "--at-once", "2", cwd=tmp_path).code for _ in range(6)]
    done = Made(tmp_path, pgo(*COMMAND, "--no-wait", "--at-once", "2", cwd=tmp_path))
    asked = [file for w in done.done.events[-1]["waiting"] for file in w["files"]]
    assert {*codes, done.done.code} == {5} and sorted(asked) == [str(r) for r in done.requests] and len(asked) == 4
    assert len(done.lines("begun")) == 6


def test_jobs_of_slurm_are_refused_as_they_share_no_workspace(tmp_path: Path) -> None:
    prepare(tmp_path)
    done = pgo(*COMMAND[:-1], "--slurm", "cluster=local", cwd=tmp_path)
    assert done.code == 2 and "share the baselines of one workspace" in done.err


@pytest.mark.slow
def test_all_cells_of_a_generation_are_answered_and_judged_in_one_go(tmp_path: Path) -> None:
    prepare(tmp_path, ("generations = 1", "generations = 2"))
    done, rounds = pgo(*COMMAND, "--no-wait", cwd=tmp_path), []
    while done.code == 5:
        rounds.append(Counter(w["asked"] for w in done.events[-1]["waiting"]))
        answer(tmp_path)
        made_up.once(tmp_path, "twin.py", "momentum.py")
        done = pgo(*COMMAND, "--no-wait", cwd=tmp_path)
    assert done.code == 0, done.err
    assert {tuple(r.items()) for r in rounds if r["a model"] == 4} and len(rounds) < 15
    for cell in Made(tmp_path, done).cells:
        assert [g["best"] for g in cell["generations"]] == pytest.approx([1.2, 1.2])


def plan(**changes: Any) -> AblationPlan:
    limits = RunSettings(candidates=4, patience=4, minutes=10.0, generations=2)
    values = {"metric": "best", "targets": ("a", "b", "c"), "insights": tuple(Insight), "models": ("relay:x",)}
    return AblationPlan(**(values | {"seeds": (1, 2, 3), "limits": limits} | changes))


def test_lenders_come_first_and_embedded_arms_need_none() -> None:
    assert [w.arm for w in plan().runs[:4]] == [LENDER] * 3 + [Arm("relay:x", Insight.NONE)]
    assert LENDER not in [w.arm for w in plan(models=("embedded",)).runs]


def test_the_profile_that_is_told_in_place_of_a_kernels_own_is_the_next_ones() -> None:
    assert [plan().other(t) for t in ("a", "b", "c")] == ["b", "c", "a"]


def test_folders_of_questions_tell_runs_apart_and_no_arm_from_another() -> None:
    names = [plan().model_of(w) for w in plan().runs if w.arm != LENDER]
    assert len(set(names)) == len(names) == 45
    assert all(set(n.removeprefix("relay:x/")) <= set("0123456789abcdef") for n in names)


def test_settings_of_a_run_name_nothing_that_another_arm_would_not() -> None:
    of = [plan().settings_of(AblationRun("a", 1, Arm("relay:x", i)), RunSettings()) for i in Insight]
    alike = {s.changed({"models": (), "profile_visibility": of[0].profile_visibility}) for s in of}
    assert len(alike) == 1 and all(s.controlled and s.alone for s in of)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"relay:answers"', '"embedded"', "which models alone are told"),
        ('["twin.py", "momentum.py"]', '["twin.py"]', "of a second target"),
        ("generations = 1\n", "", "nothing says how many"),
        ("generations = 1", "generations = 1.5", "generations is no whole number"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace(old, new))
    with pytest.raises(UsageFault, match=problem):
        plans.read(tmp_path / "plan.toml")
