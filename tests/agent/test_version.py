"""Which commit a result is said to come from: the one checked out, unless its code was edited or is somebody else's."""

import subprocess
from pathlib import Path

import pytest
from pgo_agent.agent.version import UNKNOWN, commit_of, short


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PGO_AGENT_COMMIT", raising=False)
    commit_of.cache_clear()
    for name in ("agent/a.py", "sandbox/a.py", "evals/nightly.toml", "evals/results/a.py", "prompts/cards/a.j2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        git(tmp_path, *words)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")


def now(folder: Path) -> str:
    """What a process that begins now would say."""
    commit_of.cache_clear()
    return commit_of(folder)


def test_a_checkout_is_named_by_its_commit(checkout: Path) -> None:
    assert commit_of(checkout) == head(checkout)
    assert short(commit_of(checkout)) == head(checkout)[:10]


@pytest.mark.parametrize(
    "name", ["sandbox/a.py", "prompts/cards/a.j2", "agent/new.py", "evals/corpus/wrong/new.edit", "prompts/new.j2"]
)
def test_edited_code_is_said_to_be_and_told_from_other_edits(checkout: Path, name: str) -> None:
    found = []
    for text in ("x = 2\n", "x = 3\n"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
        found.append(now(checkout))
    digests = [commit.removeprefix(f"{head(checkout)}, edited ") for commit in found]
    assert len(set(digests)) == 2 and {len(d) for d in digests} == {8}
    assert [short(c) for c in found] == [f"{head(checkout)[:10]}, edited {d}" for d in digests]


def test_code_that_was_taken_away_is_edited(checkout: Path) -> None:
    (checkout / "sandbox" / "a.py").unlink()
    assert ", edited " in now(checkout)


@pytest.mark.parametrize(
    "name", ["evals/results/a.py", "evals/recordings/new.py", "evals/nightly.toml", "agent/ignored.py", "agent/notes"]
)
def test_what_is_no_code_may_be_edited(checkout: Path, name: str) -> None:
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("x = 2\n")
    assert now(checkout) == head(checkout)


def test_an_edit_is_the_same_however_git_draws_it_and_wherever_it_keeps_it(checkout: Path) -> None:
    (checkout / "sandbox" / "a.py").write_text("x = 2\n")
    found = now(checkout)
    for name in ("diff.noprefix", "diff.mnemonicPrefix", "diff.relative", "core.quotePath"):
        git(checkout, "config", name, "true")
        assert now(checkout) == found
    git(checkout, "add", ".")
    assert now(checkout) == found
    (checkout / "sandbox" / "a.py").write_text("x = 1\n")
    assert now(checkout) == head(checkout)


def test_a_copy_in_somebody_elses_repository_has_no_commit(checkout: Path) -> None:
    inside = checkout / "venv"
    (inside / "agent").mkdir(parents=True)
    assert commit_of(inside) == UNKNOWN


def test_a_commit_may_be_told_where_there_is_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGO_AGENT_COMMIT", "abc")
    commit_of.cache_clear()
    assert commit_of(tmp_path) == "abc"
