"""`apply` writes an accepted candidate and nothing else, and never over something that the run did not see."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pgo_agent.agent.commands import apply
from pgo_agent.agent.commands.apply import Change
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.run_summary import CaseRates, MeasuredRun, SideRate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, TargetMoved, UsageFault
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.command_line import pgo, write
from tests.agent.proposed import proposed

COVERED = coverage.of(cases=1)

OLD, NEW = "num_warps=8)", "num_warps=2)"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A record with one accepted candidate, c1, that changes num_warps, and one that was wrong, c2."""
    path = write(tmp_path)
    found = target.read(path)
    opened = Store(tmp_path / ".pgo-agent")
    opened.add_run("add-1", path, found.digest, found.source, "h200", RunSettings(), RunFacts())
    sources = {"c1": found.source.replace(OLD, NEW), "c2": found.source.replace("return x + y", "return x + y + 0")}
    told = {"kind": "launch", "move": "num_warps=2", "rationale": "fewer warps"}
    opened.add_generation("add-1", 1, "shipped", [proposed(s, c, **told) for c, s in sources.items()])
    opened.set_verdict(
        "add-1",
        "c1",
        Judgement(Verdict.ACCEPTED, "confirm", plain("1.100x [1.090, 1.110] of the incumbent"), coverage=COVERED),
        1.1,
        1.0,
    )
    opened.set_verdict("add-1", "c2", Judgement(Verdict.WRONG, "smoke", plain("max error")), None, 1.0)
    environment = {"gpu": "NVIDIA H200", "driver": "1", "torch": "2"}
    case = CaseRates({"tuned": SideRate(2.0, 1.0, "GB/s")}, (1.0, 1.0, 1.0), {"tuned": (1.09, 1.1, 1.11)})
    summary = MeasuredRun(
        winner="c1",
        against={"tuned": (1.09, 1.1, 1.11)},
        cases={"CASES/a": case},
        times={},
        environment=environment,
        sides={},
        autotuned={},
        unfit=(),
        seconds=1.0,
    )
    opened.set_state("add-1", "done", summary)
    return opened


def test_the_winner_is_written_and_the_original_kept(store: Store, tmp_path: Path) -> None:
    before = (tmp_path / "add.py").read_text()
    backup = apply.write(apply.plan(store, "last", None))
    assert (tmp_path / "add.py").read_text() == before.replace(OLD, NEW)
    assert backup.read_text() == before


def test_the_diff_comes_first_and_nothing_is_written_without_a_yes(store: Store, tmp_path: Path) -> None:
    before = (tmp_path / "add.py").read_text()
    done = pgo("apply", cwd=tmp_path)
    assert done.code == 1 and "-    configs=[triton" in done.out and "--yes" in done.err
    assert (tmp_path / "add.py").read_text() == before


def test_only_an_accepted_candidate_is_applied(store: Store) -> None:
    with pytest.raises(UsageFault, match="is wrong, not accepted"):
        apply.plan(store, "last", "c2")


def test_a_file_that_changed_since_is_left_alone(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "add.py"
    path.write_text("<<<<<<< ours\n" + path.read_text())
    with pytest.raises((TargetMoved, UsageFault)):
        apply.plan(store, "last", None)
    path.write_text(path.read_text().removeprefix("<<<<<<< ours\n") + "# a remark\n")
    with pytest.raises(TargetMoved, match="changed since run add-1"):
        apply.plan(store, "last", None)


def test_a_read_only_file_is_left_alone(store: Store, tmp_path: Path) -> None:
    (tmp_path / "add.py").chmod(0o444)
    with pytest.raises(EnvironmentFault, match="read-only"):
        apply.write(apply.plan(store, "last", None))
    assert not (tmp_path / "add.py.orig").exists()


def test_an_earlier_backup_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    (tmp_path / "add.py.orig").write_text("precious")
    with pytest.raises(UsageFault, match="exists already"):
        apply.write(apply.plan(store, "last", None))
    assert (tmp_path / "add.py.orig").read_text() == "precious"


@pytest.fixture
def git(tmp_path: Path, store: Store) -> Callable[..., str]:
    """git in a repository whose only commit holds the target."""

    def run(*args: str) -> str:
        done = subprocess.run(["git", "-C", str(tmp_path), *args], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    run("init", "-q", "-b", "main")
    for key, value in (("user.name", "t"), ("user.email", "t@t"), ("commit.gpgsign", "false")):
        run("config", key, value)
    run("add", "add.py")
    run("commit", "-q", "-m", "kernel")
    return run


def conflict(git: Callable[..., str], folder: Path, command: str) -> None:
    """Leaves a `git merge`, `rebase` or `cherry-pick` of two changes of the file in the middle."""
    for branch, said in (("theirs", "# theirs"), ("ours", "# ours")):
        git("switch", "-q", "-c", branch, "main")
        (folder / "add.py").write_text(said + "\n" + git("show", "main:add.py"))
        git("commit", "-q", "-am", said)
    assert "CONFLICT" in git(command, "theirs")


def test_a_file_with_the_markers_of_a_merge_conflict_is_left_alone(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "add.py"
    theirs = path.read_text().replace(OLD, NEW)
    path.write_text(f"<<<<<<< ours\n{path.read_text()}=======\n{theirs}>>>>>>> theirs\n")
    done = pgo("apply", "--yes", cwd=tmp_path)
    assert done.code == 2 and "holds the markers of a merge conflict" in done.err and "apply again" in done.err
    assert path.read_text().startswith("<<<<<<< ours") and not (tmp_path / "add.py.orig").exists()


def test_a_file_that_git_calls_unmerged_is_left_alone(store: Store, tmp_path: Path, git: Callable[..., str]) -> None:
    conflict(git, tmp_path, "merge")
    (tmp_path / "add.py").write_text(git("show", "main:add.py"))  # settled, and not yet added
    done = pgo("apply", "--yes", cwd=tmp_path)
    assert done.code == 2 and "is not merged yet" in done.err and "`git add` the file" in done.err
    assert not (tmp_path / "add.py.orig").exists()


@pytest.mark.parametrize("command", ["merge", "rebase", "cherry-pick"])
def test_no_branch_is_begun_in_the_middle_of_a_merge(
    store: Store, tmp_path: Path, git: Callable[..., str], command: str
) -> None:
    conflict(git, tmp_path, command)
    change = Change(tmp_path / "add.py", "", "", "")
    git("checkout", "-q", "HEAD", "--", "add.py")  # nothing about the file itself is in the way
    with pytest.raises(UsageFault, match=f"a {command} is under way.*\n.*git {command} --continue"):
        apply.branch(change, "faster")
    assert git("branch", "--list", "faster") == ""


def test_a_linked_work_tree_gets_its_branch_as_well(store: Store, tmp_path: Path, git: Callable[..., str]) -> None:
    git("worktree", "add", "-q", "-b", "aside", str(tmp_path / "aside"))
    plan = apply.plan(store, "last", None)
    apply.branch(Change(tmp_path / "aside" / "add.py", plan.old, plan.new, plan.message), "faster")
    assert git("show", "faster:add.py") == plan.new


def test_a_branch_gets_one_commit_with_the_evidence_and_the_work_tree_stays(
    store: Store, tmp_path: Path, git: Callable[..., str]
) -> None:
    before = (tmp_path / "add.py").read_text()
    apply.branch(apply.plan(store, "last", None), "faster")
    assert git("show", "faster:add.py") == before.replace(OLD, NEW)
    assert "1.100x [1.090, 1.110] of tuned" in git("log", "-1", "--format=%B", "faster")
    assert (tmp_path / "add.py").read_text() == before and git("status", "--porcelain", "add.py") == ""


def test_a_branch_of_that_name_is_not_moved(store: Store, git: Callable[..., str]) -> None:
    git("branch", "faster")
    with pytest.raises(UsageFault, match="already exists"):
        apply.branch(apply.plan(store, "last", None), "faster")
    assert git("rev-parse", "faster") == git("rev-parse", "main")
