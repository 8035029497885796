"""A report says what the record holds, all of it and nothing else, whatever candidates call themselves."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.agent.views import show
from pgo_agent.agent.views.report import collect, markdown, page
from pgo_agent.agent.views.report.collect import Report, times
from pgo_agent.sandbox.judge.results.stress_inputs import STRESS_INPUTS
from pgo_agent.sandbox.judge.timing import bootstrap
from rich.console import Console

from tests.agent import reported
from tests.agent.views.test_profile_page import LOADING, Read
from tests.agent.views.test_report_markdown import HOSTILE

FORGE = MarkdownIt("commonmark", {"html": True}).enable("table")
BOTH = [page.render, markdown.render]


@dataclass(frozen=True)
class Made:
    """A workspace with one run."""

    folder: Path

    def report(self) -> Report:
        with closing(Store(self.folder / ".pgo-agent")) as store:
            return collect.report(store, "last")

    def change(self, sql: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.folder / ".pgo-agent" / "pgo.db")) as db, db:
            assert db.execute(sql, values).rowcount > 0

    def column(self, name: str) -> Any:
        with closing(sqlite3.connect(self.folder / ".pgo-agent" / "pgo.db")) as db:
            return json.loads(db.execute(f"SELECT {name} FROM runs").fetchone()[0])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A complete run that a GPU would have left. Made once."""
    folder = tmp_path_factory.mktemp("reported")
    reported.whole(folder)
    return Made(folder)


@pytest.fixture(scope="module")
def whole(kept: Made) -> Report:
    return kept.report()


@pytest.fixture
def made(kept: Made, tmp_path: Path) -> Iterator[Made]:
    """A copy, to be changed."""
    shutil.copytree(kept.folder, tmp_path / "copy")
    yield Made(tmp_path / "copy")


def text_of(html: str) -> str:
    return " ".join(" ".join(Read(html).text).split())


def said(render: Callable[[Report], str], report: Report) -> str:
    """The words of a report, without its markup."""
    made = render(report)
    html = made if made.startswith("<") else FORGE.render(made)
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.S)).split())


# what it says ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("render", BOTH)
def test_the_headline_is_against_both_baselines_and_every_library(
    render: Callable[[Report], str], kept: Made, whole: Report
) -> None:
    (samples,) = kept.column("summary")["times"].values()
    told = said(render, whole)
    for side in ("tuned", "shipped", "cuLibrary"):
        assert times(bootstrap.ratio(samples[side], samples["winner"])) in told
    tuned, shipped = (bootstrap.ratio(samples[s], samples["winner"]).mid for s in ("tuned", "shipped"))
    assert f"{tuned:.3f}x of tuned, {shipped:.3f}x of as shipped" in told
    assert "of cuLibrary: slower" in told and "of tuned: faster" in told


@pytest.mark.parametrize("render", BOTH)
def test_every_candidate_is_there_with_move_author_verdict_reason_and_ratio(
    render: Callable[[Report], str], whole: Report
) -> None:
    told = said(render, whole)
    assert len(whole.tried) == 3
    for t in whole.tried:
        for words in (t.id[:8], t.move, t.author, t.verdict, " ".join(t.reason.split())):
            assert words in told, words
        assert t.ratio is None or f"{t.ratio:.3f}" in told


@pytest.mark.parametrize("render", BOTH)
def test_it_says_why_by_what_changed_in_the_profile(render: Callable[[Report], str], whole: Report) -> None:
    (step,) = whole.steps
    listed = [x for found in step.changed.values() for x in found]
    told = said(render, whole)
    assert listed and all(x in told for x in listed)
    assert any("spilled 0" in x for x in listed)


@pytest.mark.parametrize("render", BOTH)
def test_resources_are_those_of_the_builds(render: Callable[[Report], str], whole: Report) -> None:
    assert whole.comparison is not None
    (kernels,) = whole.comparison.resources
    assert [(r.side, r.registers, r.spills > 0, r.blocks) for r in kernels.sides] == [
        ("as shipped", 96, True, 5),
        ("tuned", 96, True, 5),
        ("winner", kernels.sides[-1].registers, False, 2),
    ]
    told = said(render, whole)
    assert all(f"{r.shared:,}" in told and f"{r.blocks} blocks, {r.warps} of 64 warps" in told for r in kernels.sides)


@pytest.mark.parametrize("render", BOTH)
def test_the_source_diff_is_whole_and_the_ttgir_diff_counted(render: Callable[[Report], str], whole: Report) -> None:
    assert whole.comparison is not None
    changed = [line[1:].strip() for line in whole.comparison.source[2:] if line[0] in "+-"]
    told = said(render, whole)
    assert len(changed) == 2 and all(line in told for line in changed)
    (ir,) = whole.comparison.ttgir
    assert f"{ir.differ} lines differ" in told and ir.differ == sum(line[0] in "+-" for line in ir.lines[2:]) > 0


def test_the_page_holds_the_ttgir_diff_itself(whole: Report) -> None:
    assert whole.comparison is not None
    rows = [unescape(x) for x in re.findall(r'<span class="\w+">(.*?)</span>', page.render(whole))]
    assert all(line.rstrip("\n") in rows for line in whole.comparison.ttgir[0].lines)


def test_every_comparison_of_both_looks_is_in_the_page_with_its_seed_and_its_bounds(whole: Report) -> None:
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", page.render(whole))]
    (proof,) = whole.proofs
    assert len(proof.comparisons) == 2 * (1 + len(STRESS_INPUTS)) and {c.look for c in proof.comparisons} == {
        "first look",
        "again, in a fresh process",
    }
    for c in proof.comparisons:
        under = f"{c.case} with {c.stress_input}" if c.stress_input else c.case
        figures = [f"{x:.3g}" for x in (c.worst, c.worst_allowed, c.mean, c.mean_allowed)]
        assert any(row[:7] == [under, "0", c.seed, *figures] for row in rows), c


@pytest.mark.parametrize("render", BOTH)
def test_stress_inputs_race_and_the_second_look_are_told(render: Callable[[Report], str], whole: Report) -> None:
    told = said(render, whole)
    for words in (
        f"under {len(STRESS_INPUTS) - 1} stress inputs too",
        "race was made up",
        "again, and made up",
        "wholly masked rows on 2k",
    ):
        assert words in told, words


def test_every_raw_sample_is_a_dot(kept: Made, whole: Report) -> None:
    samples = [ms for case in kept.column("summary")["times"].values() for ms in case.values()]
    assert page.render(whole).count('-side sample"') == sum(map(len, samples)) == 5 * 30


def test_before_and_after_are_drawn_on_one_scale(whole: Report) -> None:
    """The loop of the winner was made up to turn half as often."""
    html = page.render(whole)
    loops = [float(x) for x in re.findall(r'<rect class="loop" x="[\d.]+%" width="([\d.]+)%"', html)]
    assert len(loops) == 2 and loops[0] == pytest.approx(2 * loops[1], rel=0.01)
    told = said(page.render, whole)
    assert told.count("Critical path: 10,194 cycles") >= 2 and "as it began" in told


@pytest.mark.parametrize("render", BOTH)
def test_environment_and_the_commands_that_make_it_again_are_told(
    render: Callable[[Report], str], kept: Made, whole: Report
) -> None:
    told, (winner, *_) = said(render, whole), whole.tried
    for words in ("0+made.up", "NVIDIA H200", whole.run.digest, kept.column("settings")["pgo_agent"]["commit"]):
        assert words in told, words
    for command in ("pgo-agent optimize spilling.py --device h200", f"pgo-agent apply {whole.run.id}"):
        assert command in told
    assert f"pgo-agent show {whole.run.id} {winner.id[:8]} --source > winner.py" in told


@pytest.mark.parametrize("render", BOTH)
def test_what_a_person_asked_of_the_run_is_told_with_what_came_of_it(
    render: Callable[[Report], str], made: Made, whole: Report
) -> None:
    with closing(Store(made.folder / ".pgo-agent")) as store:
        for kind, body in ((Kind.BUDGET, {"name": "minutes", "value": 40}), (Kind.GUIDE, {"text": "try <b> TMA"})):
            user_requests.add(store, whole.run.id, kind, body)
        user_requests.take(store, whole.run.id, 1, 1, "the budget is 40 minutes from here on")
    told = said(render, made.report())
    assert "budget: minutes, 40" in told and "the budget is 40 minutes from here on" in told
    assert "guide: try <b> TMA" in told and "nothing came of it: the run did not get to it" in told
    assert "without what a person asked of it" in told and "a person asked" not in said(render, whole)
    made.change("UPDATE runs SET state = 'interrupted', summary = NULL")
    assert "guide: try <b> TMA" in (paused := said(render, made.report())) and "not taken yet" in paused


def test_the_evidence_of_a_candidate_is_told_whole_in_80_columns(kept: Made) -> None:
    told = StringIO()
    with closing(Store(kept.folder / ".pgo-agent")) as store:
        for c in store.candidates("made-1"):
            show.findings(store, c, Console(file=told, width=80))
    assert "registers" in told.getvalue() and "…" not in told.getvalue()


@pytest.mark.parametrize("render", BOTH)
def test_no_folder_of_the_machine_is_told(render: Callable[[Report], str], kept: Made) -> None:
    text = render(kept.report())
    assert str(kept.folder) not in text and str(Path.home()) not in text.replace("/root", str(Path.home()))


# hostile --------------------------------------------------------------------------------------------------------------


def hostile(made: Made, text: str) -> Report:
    """The run, in which everything that a candidate, its author or a judge's reason chooses is that text."""
    made.change(
        "UPDATE candidates SET move = ?, rationale = ?, author = ?, reason = ?, why = NULL, stage = ?", *[text] * 5
    )
    made.change("UPDATE candidates SET source = source || ?", "".join(f"\n# {x}" for x in text.splitlines()))
    made.change("INSERT INTO skipped VALUES ('made-1', 'shipped', ?, ?)", text, text)
    bodies = "UPDATE evidence SET body = replace(replace(body, 'made up', ?), 'holds nothing', ?)"
    made.change(bodies, *[json.dumps(text)[1:-1]] * 2)
    summary = json.dumps(made.column("summary")).replace("cuLibrary", json.dumps(text)[1:-1])
    made.change("UPDATE runs SET summary = ?, target = ?", summary, f"/x/{text.replace('/', '')}.py")
    return made.report()


@pytest.mark.parametrize("text", [HOSTILE[0], "\n".join(HOSTILE), "</style></pre>\"'&{{ 7*7 }}{% raw %}"])
def test_hostile_texts_are_text_in_the_page_and_nothing_else(text: str, made: Made) -> None:
    plain = Read(page.render(hostile(Made(shutil.copytree(made.folder, made.folder.with_name("plain"))), "plain")))
    html = page.render(hostile(made, text))
    found = Read(html)
    assert {t for t, _ in found.elements} == {t for t, _ in plain.elements} and not {
        t for t, _ in found.elements
    } & LOADING
    assert not [a for _, attrs in found.elements for a in attrs if a.startswith("on") or a in ("src", "href")]
    assert not set(html) & set("\u202e\u2066\u200b")


@pytest.mark.parametrize("text", ["\n".join(HOSTILE), *HOSTILE[:4]])
def test_hostile_texts_are_code_in_the_markdown_and_nothing_else(text: str, made: Made) -> None:
    html = FORGE.render(markdown.render(hostile(made, text)))
    found = Read(html)
    allowed = {"h2", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "ul", "li", "strong", "details"}
    assert {t for t, _ in found.elements} <= allowed | {"summary"}
    assert [t for t, _ in found.elements].count("details") == 6
    outside = re.sub(r"<code.*?</code>", "", html, flags=re.S)
    assert not re.search(r"@everyone|#1|GH-2|evil|script", outside)


def test_a_page_loads_nothing(whole: Report) -> None:
    html = page.render(whole)
    made = Read(html)
    assert not {t for t, _ in made.elements} & LOADING and "url(" not in html and "@import" not in html
    policy = next(a["content"] for t, a in made.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_markdown_of_very_many_candidates_still_fits_a_pull_request(made: Made) -> None:
    """GitHub takes 65,536 characters."""
    row = "INSERT INTO candidates (run, id, generation, position, parent, kind, move, rationale, author, source)"
    with closing(sqlite3.connect(made.folder / ".pgo-agent" / "pgo.db")) as db, db:
        values = [(f"{n:016x}", n, "`|" * 400, "r" * 5000) for n in range(500)]
        db.executemany(f"{row} VALUES ('made-1', ?, 9, ?, 'shipped', 'source', ?, ?, 'embedded', '')", values)
    found = made.report()
    text = markdown.render(found)
    assert len(text) < 65_536 and "1.060x" in text
    assert len(re.findall('<div class="tried">', page.render(found))) == 503


# damaged, and of another version --------------------------------------------------------------------------------------


def test_without_the_answers_of_passes_it_draws_the_profiles_that_the_record_names(made: Made) -> None:
    shutil.rmtree(made.folder / ".pgo-agent" / "passes")
    assert [p.timed for p in made.report().profiles] == [True]


def test_of_a_workspace_without_whole_profiles_it_says_so_and_runs_nothing(made: Made) -> None:
    made.change("UPDATE profiles SET profile = NULL")  # as older records have none
    before = sorted(p.name for p in (made.folder / ".pgo-agent").rglob("*") if p.is_file() and "pgo.db" not in p.name)
    found = made.report()
    assert not any(p.timed for p in found.profiles) and any("no profile: its profile is not" in x for x in found.absent)
    assert "Timeline, before" not in page.render(found) and found.session is not None
    after = sorted(p.name for p in (made.folder / ".pgo-agent").rglob("*") if p.is_file() and "pgo.db" not in p.name)
    assert after == before


def test_without_artefacts_the_figures_of_the_record_stay(made: Made) -> None:
    shutil.rmtree(made.folder / ".pgo-agent" / "artefacts")
    found = made.report()
    assert found.comparison is None and any(x.startswith("builds: ") for x in found.absent)
    assert found.session is not None and "1.060x" in markdown.render(found)


def test_a_run_from_before_versions_were_recorded_says_that(made: Made) -> None:
    settings = {k: v for k, v in made.column("settings").items() if k not in ("pgo_agent", "triton", "models")}
    made.change("UPDATE runs SET settings = ?", json.dumps(settings))
    told = said(page.render, made.report())
    assert "pgo-agent not recorded: the run is of an older version" in told and "triton 0.made.up" in told


@pytest.mark.parametrize("column", ["summary", "baseline", "settings"])
def test_a_record_that_lacks_any_one_thing_is_told_without_it(column: str, made: Made) -> None:
    whole = made.column(column)
    made.change("DELETE FROM profiles")
    shutil.rmtree(made.folder / ".pgo-agent" / "artefacts")  # what is read last, and takes longest
    for key in whole:
        for value in (None, {"other": 1}):
            changed = {k: v for k, v in whole.items() if k != key} | ({key: value} if value is not None else {})
            made.change(f"UPDATE runs SET {column} = ?", json.dumps(changed))
            found = made.report()
            assert found.tried and "spilling" in page.render(found) and "spilling" in markdown.render(found)


def test_evidence_of_another_shape_costs_its_part_and_no_other(made: Made) -> None:
    made.change('UPDATE evidence SET body = \'{"numerics": [{"what": 1}], "stages": [3]}\'')
    found = made.report()
    assert any("the record of it is damaged, or of another version" in x for x in found.absent)
    assert found.session is not None and "1.060x of tuned" in said(page.render, found)


# half-way -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "interrupted", "waiting"])
def test_a_run_that_died_after_its_win_tells_what_its_last_look_said(state: str, made: Made) -> None:
    made.change("UPDATE runs SET summary = NULL, state = ?", state)
    found = made.report()
    told = said(page.render, found)
    assert found.outcome == "unfinished" and "not complete; at its last look 1.05" in told
    assert "the last session was not reached" in told and "cuLibrary" not in told
    assert page.render(found).count('-side sample"') == 4 * 24  # of the second look
    assert "pgo-agent resume made-1" in told and found.comparison is not None


def test_a_run_that_died_before_its_baseline_has_a_report(made: Made) -> None:
    made.change("UPDATE runs SET summary = NULL, baseline = NULL, state = 'running'")
    for table in ("evidence", "samples", "candidates", "profiles"):
        made.change(f"DELETE FROM {table}")
    found = made.report()
    told = said(page.render, found)
    assert "candidates: none was proposed" in told and "profiles: run made-1 has no baseline" in told
    assert "<svg" not in page.render(found) and "not complete" in said(markdown.render, found)


def test_a_run_without_a_winner_says_so_and_compares_no_builds(made: Made) -> None:
    summary = made.column("summary")
    for times_ in summary["times"].values():
        del times_["winner"]
    made.change(
        "UPDATE runs SET summary = ?, state = 'none_found'", json.dumps(summary | {"winner": None, "against": {}})
    )
    made.change("UPDATE candidates SET verdict = 'slower' WHERE verdict = 'accepted'")
    found = made.report()
    told = said(page.render, found)
    assert "no candidate was faster than the kernel beyond the noise" in told
    assert found.comparison is None and "Raw samples" in told and "Every candidate" in told


def test_an_error_of_several_lines_stays_one(made: Made) -> None:
    summary = json.dumps({"error": "it does not compile:\n    x = y +\n            ^"})
    made.change("UPDATE runs SET summary = ?, state = 'failed'", summary)
    html, text = page.render(made.report()), markdown.render(made.report())
    assert "<pre>it does not compile:\n    x = y +\n            ^</pre>" in html
    assert "it does not compile:\n    x = y +\n            ^\n" in text


def test_a_failed_run_says_why(made: Made) -> None:
    made.change("UPDATE runs SET summary = '{\"error\": \"inputs() raised\"}', state = 'failed'")
    assert "the run failed inputs() raised" in said(page.render, made.report())
