"""A candidate in a person's own editor: whatever the editor does, nothing that was written is lost."""

from pathlib import Path

import pytest
from pgo_agent.agent.cli.session import editor as editing
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.store import Store
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

from tests.agent import searching


@pytest.fixture
def ctx(store: Store) -> Context:
    return searching.begin(store, "second-1", sandbox="auto", python=searching.box.choose().python)


def editor(folder: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets EDITOR to a script of the shell; the file is `$1`."""
    script = folder / "an editor.sh"
    script.write_text(f"#!/bin/sh\n{words}\n")
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", f"'{script}'")
    monkeypatch.delenv("VISUAL", raising=False)


def test_what_was_saved_is_read_as_check_reads_a_file(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, 'sed -i "s/    z = torch.empty_like(x)/    z = torch.empty_like(x)  # mine/" "$1"', monkeypatch)
    c = searching.propose(ctx, searching.another(5))[0]
    path = editing.edit(ctx.store, ctx.run, c.id)
    body = editing.submission(ctx.store, ctx.run, path, c.id)
    assert "# mine" in body["source"] and (body["kind"], body["parent"], body["of"]) == ("source", c.id, c.id)


def test_a_text_that_was_not_changed_is_not_submitted(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, "true", monkeypatch)
    with pytest.raises(UsageFault, match="nothing changed"):
        editing.edit(ctx.store, ctx.run, "shipped")
    assert not list((ctx.store.root / "edits").iterdir())


def test_an_editor_that_fails_submits_nothing_and_its_file_is_kept(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, 'echo half >> "$1"; exit 3', monkeypatch)
    with pytest.raises(UsageFault, match="ended with 3") as e:
        editing.edit(ctx.store, ctx.run, "shipped")
    (kept,) = (ctx.store.root / "edits").iterdir()
    assert str(kept) in e.value.hint and kept.read_text().endswith("half\n")


@pytest.mark.parametrize(("told", "fault", "words"), [
    ("", UsageFault, "neither VISUAL nor EDITOR is set"),
    ("no-such-editor-here", EnvironmentFault, "does not start"),
    ("'", UsageFault, "EDITOR cannot be read"),
])  # fmt: skip
def test_an_editor_that_is_none_is_said_to_be_none(
    ctx: Context, monkeypatch: pytest.MonkeyPatch, told: str, fault: type[Exception], words: str
) -> None:
    monkeypatch.setenv("EDITOR", told)
    monkeypatch.delenv("VISUAL", raising=False)
    with pytest.raises(fault, match=words):
        editing.edit(ctx.store, ctx.run, "shipped")


@pytest.mark.parametrize(("old", "new", "words"), [
    ("def kernel(", "def kernel((", "bad.py:18 is not Python"),
    ("return x + y", "return x - y", "reference"),
    ("def kernel(x, y)", "def launcher(x, y)", "kernel"),
])  # fmt: skip
def test_a_text_that_check_refuses_is_refused(ctx: Context, tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in searching.SOURCE
    path = tmp_path / "bad.py"
    path.write_text(searching.SOURCE.replace(old, new))
    with pytest.raises(UsageFault, match=words):
        editing.submission(ctx.store, ctx.run, path, "shipped")


def test_a_text_that_the_run_has_already_is_named(ctx: Context, tmp_path: Path) -> None:
    c = searching.propose(ctx, searching.another(5))[0]
    for text, words in ((c.source, f"candidate {c.id[:8]}, not judged yet"), (ctx.run.source, "as shipped")):
        path = tmp_path / "same.py"
        path.write_text(text)
        with pytest.raises(UsageFault, match=words):
            editing.submission(ctx.store, ctx.run, path, "shipped")
