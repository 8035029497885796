"""What a profile is worth: plans are whole, scores and intervals are what they are said to be, and runs go on.

The numbers of scores and differences are made up; the runs are not.
"""

import json
import math
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.settings import ProfileVisibility, RunSettings
from pgo_agent.evals.ablation import plan as plans
from pgo_agent.evals.ablation import run, scores
from pgo_agent.evals.ablation.compare import apart, differences
from pgo_agent.evals.ablation.plan import AblationPlan, AblationRun, Arm
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import command, pgo, write
from tests.agent.proposed import judged

TEXT = """
metric = "right"
targets = ["add.py"]
insights = ["none", "all"]
models = ["embedded"]
seeds = [1]
candidates = 1
patience = 1
minutes = 10
"""
BASE, ARM = Arm("embedded", ProfileVisibility.NONE), Arm("embedded", ProfileVisibility.ALL)


def plan(targets: tuple[str, ...] = ("a", "b"), seeds: tuple[int, ...] = (1, 2, 3)) -> AblationPlan:
    limits = RunSettings(candidates=4, patience=4, minutes=10.0)
    return AblationPlan(
        "anytime", targets, (ProfileVisibility.NONE, ProfileVisibility.ALL), ("embedded",), seeds, limits
    )


def candidate(
    name: str, verdict: str | None, speedup: float | None = None, against: str | None = "shipped"
) -> Candidate:
    return judged(verdict, speedup, name, against)


# plans ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('metric = "right"', "", "says nothing of metric"),
        ('"right"', '"fast"', "metric is none of"),
        ('["add.py"]', "[]", "targets is no list of different texts"),
        ('["none", "all"]', '["none", "none"]', "insights is no list of different"),
        ('["none", "all"]', '["some"]', "insights is no list of different"),
        ("[1]", "[true]", "seeds is no list of different numbers"),
        ("[1]", "[-1]", "seeds is no list of different numbers"),
        ("candidates = 1", "candidates = 1.5", "candidates is no whole number"),
        ("minutes = 10", "minutes = nan", "minutes is no number above 0"),
        ("minutes = 10", "minutes = 10\ngoal = 3", "may not say anything of goal"),
        ("minutes = 10", "minutes =", "is no TOML"),
    ],
)
def test_a_plan_that_is_not_whole_is_refused_by_what_is_wrong(tmp_path: Path, old: str, new: str, problem: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(UsageFault, match=problem):
        plans.read(file)


def test_the_plan_that_help_shows_is_one(tmp_path: Path) -> None:
    told = pgo("eval", "ablation", "--help", cwd=tmp_path, COLUMNS="200").out
    lines = [line.strip() for line in told.splitlines() if " = " in line]
    (tmp_path / "plan.toml").write_text("\n".join(lines))
    assert plans.read(tmp_path / "plan.toml").seeds == (1, 2, 3, 4, 5)


def test_arms_take_turns_to_be_first() -> None:
    first = [w.arm for w in plan().runs[::2]]
    assert first == [BASE, ARM, BASE] * 2 and len(set(plan().runs)) == 12


def test_the_digest_is_of_what_a_plan_says(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(TEXT)
    (tmp_path / "other.toml").write_text("# the same\n" + TEXT)
    one, other = (plans.read(tmp_path / name) for name in ("one.toml", "other.toml"))
    assert one.digest == other.digest != plan().digest


# scores ---------------------------------------------------------------------------------------------------------------


def test_an_early_win_is_worth_more_than_a_late_one() -> None:
    won, lost = candidate("won", "accepted", 1.2), candidate("lost", "slower", 0.9)
    early, late = scores.anytime([won, lost], 4), scores.anytime([lost, won], 4)
    assert early == pytest.approx(math.log(1.2)) and late == pytest.approx(0.75 * math.log(1.2))


def test_gains_on_top_of_one_another_multiply() -> None:
    both = [candidate("one", "accepted", 1.2), candidate("two", "accepted", 1.1, "one")]
    assert scores.anytime(both, 2) == pytest.approx((math.log(1.2) + math.log(1.2 * 1.1)) / 2)


def test_a_speedup_that_was_not_accepted_counts_nothing() -> None:
    assert scores.anytime([candidate("fast", "race", 3.0)], 1) == 0.0


def test_what_was_not_judged_is_neither_right_nor_wrong() -> None:
    found = [candidate("a", "checked"), candidate("b", "wrong"), candidate("c", None)]
    assert scores.right(found) == 0.5 and scores.right([]) == 0.0


# differences ----------------------------------------------------------------------------------------------------------


@given(st.floats(-1, 1), st.lists(st.floats(-1, 1), min_size=6, max_size=6))
def test_the_same_difference_everywhere_is_the_difference_and_its_interval(by: float, base: list[float]) -> None:
    pairs = [(w.target, w.seed) for w in plan().runs[::2]]
    known = {AblationRun(*p, BASE): s for p, s in zip(pairs, base, strict=True)}
    known |= {AblationRun(*p, ARM): s + by for p, s in zip(pairs, base, strict=True)}
    (found,) = differences(plan(), known)
    assert (found.low, found.mid, found.high) == pytest.approx((by, by, by), abs=1e-9) and found.pairs == 6


def test_a_run_without_its_pair_counts_nothing() -> None:
    assert differences(plan(), {AblationRun("a", 1, BASE): 0.1, AblationRun("a", 2, ARM): 0.3}) == []


def test_runs_of_two_commits_make_no_pair_and_are_counted() -> None:
    known = {AblationRun("a", s, a): 0.3 * (a == ARM) for s in (1, 2) for a in (BASE, ARM)}
    commits = {w: "later" if w == AblationRun("a", 2, ARM) else "earlier" for w in known}
    (found,) = differences(plan(), known, commits)
    assert found.pairs == 1 and apart(plan(), known, commits) == 1


def test_every_target_weighs_the_same() -> None:
    known = {AblationRun("a", s, a): 0.3 * (a == ARM) for s in (1, 2, 3) for a in (BASE, ARM)}
    known |= {AblationRun("b", 1, BASE): 0.0, AblationRun("b", 1, ARM): 0.1}
    (found,) = differences(plan(), known)
    assert found.mid == pytest.approx(0.2) and found.targets == pytest.approx({"a": 0.3, "b": 0.1})


# runs -----------------------------------------------------------------------------------------------------------------


def planned(folder: Path, *changes: tuple[str, str]) -> tuple[str, ...]:
    write(folder)
    text = TEXT
    for old, new in changes:
        text = text.replace(old, new)
    (folder / "plan.toml").write_text(text)
    return ("eval", "ablation", "plan.toml", "-o", "out.jsonl")


def lines(folder: Path, what: str) -> list[dict[str, object]]:
    told = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [line for line in told if line["what"] == what]


def test_times_are_not_compared_where_nothing_is_timed(tmp_path: Path) -> None:
    done = pgo(*planned(tmp_path, ('"right"', '"final"')), "--judge", "cpu", cwd=tmp_path)
    assert done.code == 2 and "needs a GPU" in done.err and not (tmp_path / "out.jsonl").exists()


def test_results_of_a_gpu_are_shown_where_there_is_none_once_they_are_whole(tmp_path: Path) -> None:
    own = (*planned(tmp_path, ('"right"', '"final"')), "--judge", "cpu")
    written = run.Results(tmp_path / "out.jsonl", plans.read(tmp_path / "plan.toml"))
    base, arm = written.plan.runs
    written.add("run", run="a", **base.named, score=0.0, truncated=False)
    assert pgo(*own, cwd=tmp_path).code == 2
    written.add("run", run="b", **arm.named, score=math.log(1.25), truncated=False)
    done = pgo(*own, cwd=tmp_path)
    assert done.code == 0 and "against embedded, told none: 1.2500x" in done.out


@pytest.mark.long
def test_a_run_has_its_result_and_another_plan_none_beside_it(tmp_path: Path) -> None:
    own = planned(tmp_path, ('["none", "all"]', '["none"]'))
    assert pgo(*own, "--judge", "cpu", cwd=tmp_path).code == 0
    (result,) = lines(tmp_path, "run")
    assert (result["score"], result["judged"], result["insight"], result["truncated"]) == (1.0, 1, "none", False)
    planned(tmp_path, ("seeds = [1]", "seeds = [2]"))
    done = pgo(*own, "--judge", "cpu", cwd=tmp_path)
    assert done.code == 2 and "results of another plan" in done.err


@pytest.mark.slow
def test_an_ablation_that_is_killed_goes_on_with_the_run_that_it_was_at(tmp_path: Path) -> None:
    own = (*planned(tmp_path), "--judge", "cpu")
    first = subprocess.Popen(command(*own, "--json"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    next(line for line in first.stdout if json.loads(line)["type"] == "baseline.completed")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done = pgo(*own, "--json", cwd=tmp_path)
    begun, ended = lines(tmp_path, "begun"), lines(tmp_path, "run")
    assert done.code == 0 and [b["run"] for b in begun] == [e["run"] for e in ended] and len(ended) == 2
    assert done.events[-1]["type"] == "ablation.completed" and done.events[-1]["missing"] == 0
    assert pgo(*own, "--json", cwd=tmp_path).events[-1] == done.events[-1]
