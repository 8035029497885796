"""`pgo-agent report` on runs without a GPU, on half of one, and on what is no run at all."""

import re
import shutil
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from pgo_agent.agent.run.facts import GivenFile, RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.views.report import collect, markdown, page
from pgo_agent.agent.views.report.collect import Report
from pgo_agent.agent.views.report.write import ReportPaths, write
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.breaking import Whole
from tests.agent.command_line import pgo
from tests.agent.proposed import proposed
from tests.agent.views.test_profile_page import Read


def report(workspace: Path) -> Report:
    with closing(Store(workspace)) as store:
        return collect.report(store, "last")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store(tmp_path / "w")
    opened.add_run("add-1", Path("/x/add.py"), "d", "pass\n", "h200", RunSettings(), RunFacts())
    return opened


# without a GPU --------------------------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_that_nothing_was_measured_and_draws_nothing(whole: Whole) -> None:
    found = report(whole.folder / ".pgo-agent")
    html, text = page.render(found), markdown.render(found)
    Read(html)
    for told in (html, text):
        assert "nothing was measured" in told and "No figure in here is a time of this run." in told
        assert "Raw samples" not in told and "Timeline, before" not in told
    assert "<circle" not in html and found.session is None and not found.gains


def test_without_a_gpu_every_candidate_and_what_was_compared_is_there(whole: Whole) -> None:
    found = report(whole.folder / ".pgo-agent")
    html = page.render(found)
    assert found.tried and found.proofs and all(t.id[:8] in html and t.verdict in html for t in found.tried)
    assert all(c.share <= 1 for p in found.proofs for c in p.comparisons)
    assert "outputs against the float64 reference" in html
    assert (
        "What its profile said" in html
        and found.shipped_profile
        and all(text in unescape(html) for text in found.shipped_profile.values())
    )


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_run_that_was_killed_half_way_tells_what_is_there_and_what_is_not(
    which: str, whole: Whole, tmp_path: Path
) -> None:
    shutil.copytree(getattr(whole, which), tmp_path / "w")
    found = report(tmp_path / "w")
    html = page.render(found)
    assert found.outcome == "unfinished" and found.tried and "the last session was not reached" in html
    waiting = sum(t.verdict == "not judged" for t in found.tried)
    assert (f"{waiting} of {len(found.tried)} candidates were not judged" in html) == bool(waiting)
    assert f"pgo-agent resume {found.run.id}" in html and f"pgo-agent resume {found.run.id}" in markdown.render(found)


# places and bad input -------------------------------------------------------------------------------------------------


def test_both_forms_are_written_here_by_default_and_it_says_where(whole: Whole, tmp_path: Path) -> None:
    done = pgo("report", "--store", whole.folder / ".pgo-agent", cwd=tmp_path)
    assert done.code == 0 and done.out == "", done.err
    names = sorted(p.name for p in tmp_path.iterdir())
    run = report(whole.folder / ".pgo-agent").run.id
    assert names == [f"{run}-report.html", f"{run}-report.md"]
    assert [line.split()[0] for line in done.err.splitlines()] == names


def test_markdown_is_printed_for_a_pipe_and_nothing_is_written(whole: Whole, tmp_path: Path) -> None:
    done = pgo("report", "last", "--markdown", "-", "--store", whole.folder / ".pgo-agent", cwd=tmp_path)
    assert done.code == 0 and done.out.startswith("## `add`: ") and done.err == "" and not list(tmp_path.iterdir())


def test_a_place_that_is_asked_for_is_made_and_the_other_form_is_not(store: Store, tmp_path: Path) -> None:
    write(store, "add", ReportPaths(html=tmp_path / "deep" / "er" / "a.html"))
    assert [p.name for p in (tmp_path / "deep").rglob("*") if p.is_file()] == ["a.html"]


def test_a_run_of_which_nothing_is_recorded_has_a_report(store: Store) -> None:
    found = collect.report(store, "add-1")
    assert "not complete" in page.render(found) and "none was proposed" in markdown.render(found)


@pytest.mark.parametrize("run", ["nobody", "", "add-2", "%", "'; DROP TABLE runs; --"])
def test_an_unknown_run_is_named_and_nothing_is_written(run: str, store: Store, tmp_path: Path) -> None:
    store.add_run("bad-1", Path("/x/bad.py"), "d", "pass\n", "h200", RunSettings(), RunFacts())
    with pytest.raises(UsageFault, match=r"begin.* with"):
        write(store, run, ReportPaths(html=tmp_path / "a.html"))
    assert not (tmp_path / "a.html").exists() and store.run("add-1")


def test_an_unknown_run_ends_with_2_and_says_where_runs_are_listed(whole: Whole, tmp_path: Path) -> None:
    done = pgo("report", "nobody", "--store", whole.folder / ".pgo-agent", cwd=tmp_path)
    assert (
        done.code == 2 and "pgo-agent runs" in done.err and "Traceback" not in done.err and not list(tmp_path.iterdir())
    )


def test_a_file_that_cannot_be_written_is_said_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(EnvironmentFault, match="cannot write"):
        write(store, "add-1", ReportPaths(markdown=tmp_path / "file" / "a.md"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "w"] and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "names, problem", [(("w", None), "is a folder"), (("a", "a"), "both name"), (("-", None), "--html -")]
)
def test_places_that_are_none_are_refused_before_anything_is_read(
    names: tuple[str, str | None], problem: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    html, text = (Path(n) if n else None for n in names)
    with pytest.raises(UsageFault, match=problem):
        write(store, "add-1", ReportPaths(html, text))


def test_a_report_changes_nothing_in_the_record(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder / ".pgo-agent", tmp_path / "w")
    with closing(Store(tmp_path / "w")) as store:
        before = list(store.db.iterdump())
        page.render(collect.report(store, "last"))
        assert list(store.db.iterdump()) == before


def test_no_command_of_a_report_names_an_option_that_is_not_there(whole: Whole) -> None:
    found = report(whole.folder / ".pgo-agent")
    for _, command in found.commands:
        for line in command.splitlines():
            name, options = line.split()[1], set(re.findall(r" (--[\w-]+)", line))
            assert options <= set(re.findall(r"--[\w-]+", pgo(name, "--help", cwd=whole.folder, COLUMNS="200").out))


def checked(store: Store, verdict: Verdict | None) -> Report:
    """A run of `check` on a file `new.py`."""
    facts = RunFacts(given=(GivenFile("/x/new.py", "source", "pass\n"),))
    store.add_run("check-1", Path("/x/add.py"), "d", "pass\n", "h200", RunSettings(), facts)
    given = proposed("pass\n", "c1", move="given", rationale="given", author="given")
    store.add_generation("check-1", 1, "shipped", [given])
    if verdict:
        store.set_verdict("check-1", "c1", Judgement(verdict, "smoke", plain("why")), None, 1.0)
    return collect.report(store, "check-1")


def test_a_check_says_what_became_of_the_file(store: Store) -> None:
    found = checked(store, Verdict.WRONG)
    assert found.title == "new.py gives wrong results"
    assert ("check the same file again", "pgo-agent check new.py --target add.py") in found.commands


def test_a_check_that_was_not_judged_says_that(store: Store) -> None:
    assert checked(store, None).title == "new.py was not judged"
