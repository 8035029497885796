"""Which commit a result is said to come from: the one checked out, unless its code was edited or is somebody else's."""

import subprocess
from pathlib import Path

import pytest
from pgo_agent.agent.version import UNKNOWN, commit_of, short


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PGO_AGENT_COMMIT", raising=False)
    commit_of.cache_clear()
    for name in ("agent", "sandbox", "evals/results"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("x = 1\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def head(folder: Path) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_checkout_is_named_by_its_commit(checkout: Path) -> None:
    assert commit_of(checkout) == head(checkout)
    assert short(commit_of(checkout)) == head(checkout)[:10]


def test_edited_code_is_said_to_be_and_told_from_other_edits(checkout: Path) -> None:
    found = set()
    for text in ("x = 2\n", "x = 3\n"):
        (checkout / "sandbox" / "a.py").write_text(text)
        commit_of.cache_clear()
        found.add(commit_of(checkout))
    assert len(found) == 2
    assert {short(c) for c in found} == {f"{head(checkout)[:10]}, edited"}


def test_results_that_were_written_are_no_edits_of_the_code(checkout: Path) -> None:
    (checkout / "evals" / "results" / "a.py").write_text("x = 2\n")
    assert commit_of(checkout) == head(checkout)


def test_a_copy_in_somebody_elses_repository_has_no_commit(checkout: Path) -> None:
    inside = checkout / "venv"
    (inside / "agent").mkdir(parents=True)
    assert commit_of(inside) == UNKNOWN


def test_a_commit_may_be_told_where_there_is_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGO_AGENT_COMMIT", "abc")
    commit_of.cache_clear()
    assert commit_of(tmp_path) == "abc"
