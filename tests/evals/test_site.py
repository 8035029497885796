"""The leaderboard: pages that load nothing and run nothing, whatever rows say, with the figures of the rows."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pgo_agent.evals.field import run as field
from pgo_agent.evals.field import suite
from pgo_agent.evals.field.targets import FieldTarget
from pgo_agent.evals.gate import report
from pgo_agent.evals.leaderboard import pages, rank, site
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly.load import Found
from pgo_agent.evals.nightly.report import interval
from pgo_agent.evals.nightly.row import Row

from tests.agent.command_line import pgo
from tests.evals.rows import FA_FWD, H200, RECORDED, WON, case, failed, row

RESULTS = suite.FOLDER / "results"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}"
ALONE = {"meta", "img", "br", "link", "input"}  # elements that have no end


class Page(HTMLParser):
    """What a page is made of; raises where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in ALONE:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of a drawing: it is closed already."""
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(*rows: Row) -> dict[str, str]:
    return dict(site.site(Found(rows), ["a.jsonl"]))


@pytest.fixture(scope="module")
def shipped() -> Found:
    """The real runs that ship."""
    return load.files(RECORDED)


@pytest.fixture(scope="module")
def recorded(shipped: Found) -> dict[str, str]:
    """The pages of them."""
    return dict(site.site(shipped, [f.name for f in RECORDED]))


def test_the_recorded_runs_have_a_page_each_and_the_gate_its_rates(recorded: dict[str, str], shipped: Found) -> None:
    new = ("attn_decode", "cross_attn", "gemm_fp8", "grouped_gemm", "rms_norm_quant")
    on_both = {f"{k}-{gpu}.html" for k in ("fa_fwd", "fa_bwd", "gemm") for gpu in ("h100", "h200")}
    pages = on_both | {f"{k}-h100.html" for k in new}
    names = {"index.html", "results.json"} | pages
    first = Page(recorded["index.html"])
    assert set(recorded) == names and set(first.links) <= names
    lines = shipped.gate
    bad = [line for line in lines if line["what"] == "gate" and not line["entry"].startswith("honest/")]
    assert f"of {len(bad)} bad ones admitted" in first.text
    assert Page(recorded["fa_fwd-h200.html"]).text.count("@gluon.jit") >= 1


def test_no_page_loads_or_runs_anything(recorded: dict[str, str]) -> None:
    for name, text in recorded.items():
        if name.endswith(".html"):
            page = Page(text)
            assert not page.tags & {"script", "img", "link", "iframe", "object", "video", "form"}
            assert not [a for a in page.attributes if a.startswith("on")]
            assert all(link in recorded for link in page.links)
            assert "url(" not in text and "@import" not in text and "default-src 'none'" in text


def test_results_json_has_the_figures_of_the_rows(recorded: dict[str, str], shipped: Found) -> None:
    told = json.loads(recorded["results.json"])["gpus"]
    for r in shipped.rows:
        (own,) = [line for line in told[r.gpu]["last"] if line["run"] == r.run]
        assert own["ratio"]["tuned"] == r.ratio("tuned").as_json()
        assert (interval(r.ratio("tuned")) if r.winner else "no winner: 1") in recorded["index.html"]


def test_hostile_words_stay_words() -> None:
    winner = replace(WON, moves=(HOSTILE,), reason=HOSTILE, diff=f"--- a\n+++ b\n+{HOSTILE}\n", author=HOSTILE)
    winner = replace(winner, stages=({"stage": HOSTILE, "verdict": HOSTILE, "seconds": 1, "reason": HOSTILE},))
    named = {"kernel": HOSTILE, "optimizer": HOSTILE, "run": HOSTILE, "commit": HOSTILE, "when": HOSTILE}
    tried = replace(row().candidates[0], move=HOSTILE, reason=HOSTILE, verdict="accepted")
    bad = row({HOSTILE: case()}, winner=winner, candidates=(tried,), models=(HOSTILE,), **named)
    for name, text in made(bad, failed(kernel=HOSTILE, optimizer="x", failed=HOSTILE)).items():
        assert re.fullmatch(r"[\w-]+\.(html|json)", name)
        if name.endswith(".html"):
            page = Page(text)
            assert not page.tags & {"script", "img"} and "49" not in page.text.replace("{{ 7*7 }}", "")


def test_two_names_that_would_be_one_file_are_two() -> None:
    found = rank.boards([row(kernel="a/b"), row(kernel="a.b", run="2")])[0]
    assert len({pages.page(found, k) for k in found.kernels}) == 2


def test_a_failure_is_shown_with_its_reason_and_counts_as_one() -> None:
    first = Page(made(row(), failed(kernel="broken"))["index.html"])
    assert "the kernel does not compile" in first.text and "failed: 1" in first.text
    assert "1 failed" in first.text


def test_a_kernel_whose_runs_all_failed_is_said_to_have_failed_and_not_to_be_fast_enough() -> None:
    site = made(failed(kernel="broken", failed="it does not compile\nline 3: no such name"))
    assert "every run failed: it does not compile" in Page(site["index.html"]).text
    assert "Every run failed." in Page(site["broken-h200.html"]).text
    assert not any("faster beyond" in text or "shipped beyond" in text for text in site.values())


def test_an_optimizer_of_fewer_kernels_stands_below_and_says_so() -> None:
    rows = [row(kernel=k, run=k) for k in ("add", "sub")]
    less = row({"CASES/1m": case(3.0)}, optimizer="model", run="m")
    (board,) = rank.boards([*rows, less])
    assert board.optimizers == ["embedded", "model"]
    assert "1 of 2 kernels" in Page(made(*rows, less)["index.html"]).text
    assert "of 2 kernels" not in Page(made(*rows)["index.html"]).text


def of_packages(*rows: Row, targets: Sequence[FieldTarget] = ()) -> dict[str, str]:
    return dict(site.site(Found(rows), ["a.jsonl"], targets))


def test_kernels_of_public_packages_stand_in_a_section_of_their_own() -> None:
    own, other = row(), row({"CASES/1m": case(3.0)}, kernel="rope", run="2", suite="field")
    found = of_packages(own, other)
    told = json.loads(found["results.json"])
    assert [r["kernel"] for r in told["gpus"][own.gpu]["last"]] == ["add"]
    (section,) = told["kernels of public packages"]
    assert section["mean"]["tuned"] == pytest.approx(3.0, rel=0.01)
    first = Page(found["index.html"])
    assert {"add-h200.html", "field-rope-h200.html"} <= set(first.links) & set(found)
    assert "Kernels of public packages" in first.text and "Kernels of public packages" not in made(own)["index.html"]


def test_a_kernel_that_never_got_to_a_run_is_listed_with_its_reason_and_counts_as_one() -> None:
    untold = FieldTarget("unwritten", HOSTILE, "1.0", False, 0, False, 9.0, "", "", 0.0)
    found = of_packages(row({"CASES/1m": case(4.0)}, suite="field"), targets=[untold])
    (section,) = json.loads(found["results.json"])["kernels of public packages"]
    assert section["mean"]["tuned"] == pytest.approx(2.0, rel=0.01)
    page = Page(found["index.html"])
    assert "found no launcher" in page.text and not page.tags & {"script", "img"}


def test_the_recorded_kernels_of_public_packages_are_all_on_the_page() -> None:
    found = of_packages(*load.files([RESULTS / "h100.jsonl"]).rows, targets=field.of_files([RESULTS / "targets.jsonl"]))
    page = Page(found["index.html"])
    assert all(k.name in page.text for k in suite.read()) and all(link in found for link in page.links)


def test_times_of_two_gpus_are_never_put_together() -> None:
    other = row({"CASES/1m": case(1.3)}, environment=replace(H200, gpu="NVIDIA B200"), run="2")
    found = rank.boards([row(), other])
    assert [b.gpu for b in found] == ["NVIDIA B200", "NVIDIA H200"]
    assert {"add-h200.html", "add-b200.html"} <= set(made(row(), other))


def test_the_gpu_that_most_is_known_of_comes_first() -> None:
    other = row(environment=replace(H200, gpu="NVIDIA B200"), run="2")
    found = rank.boards([other, row(), row(run="3", seed=2)])
    assert [b.gpu for b in found] == ["NVIDIA H200", "NVIDIA B200"]


def test_the_last_row_of_a_key_stands_and_the_trend_has_every_night() -> None:
    nights = [
        row({"CASES/1m": case(1 + n / 10)}, run=f"r{n}", when=f"2026-11-2{n}T00:00", file=f"{n}.jsonl")
        for n in range(4)
    ]
    (board,) = rank.boards(reversed(nights))
    assert [r.run for r in board.last] == ["r3"] and board.nights[0][0] == "2026-11-20"
    assert "Night by night" in made(*nights)["add-h200.html"]
    assert "Night by night" not in made(nights[0])["add-h200.html"]


def test_a_table_of_seeds_says_the_lowest_and_the_highest() -> None:
    found = [row({"CASES/1m": case(1 + n / 10)}, seed=n, run=f"r{n}") for n in (1, 2, 3)]
    cell = rank.boards(found)[0].cell("add", "embedded")
    assert cell and cell.won == 3 and cell.span == pytest.approx((1.1, 1.3), rel=0.01)


def test_without_entries_there_is_no_gate() -> None:
    assert report.rates([]) is None and "The gate" not in Page(made(row())["index.html"]).text


# the command ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_command_writes_a_site_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    done = pgo("eval", "site", FA_FWD, "-o", "site", cwd=tmp_path)
    assert done.code == 0, done.err
    assert sorted(f.name for f in (tmp_path / "site").glob("*.json")) == ["results.json"]
    (tmp_path / "file").touch()
    assert "is no folder" in pgo("eval", "site", FA_FWD, "-o", "file", cwd=tmp_path).err
