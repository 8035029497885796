"""`pgo-agent profile`: what a kernel costs, read off its build; asked again, it is there at once."""

import json
import re
import time
from html import unescape
from pathlib import Path

import pytest
from pgo_agent.agent.commands import profile
from pgo_agent.agent.profile.case_profile import Profile
from pgo_agent.agent.views.profile import page
from pgo_agent.sandbox.json_codec import decoded
from pgo_agent.sandbox.profile.static_profile import StaticProfile

from tests.agent.command_line import pgo

ADD = Path(__file__).parents[2] / "kernels" / "add.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def profiled(folder: Path) -> str:
    """What the command prints of an addition, as JSON."""
    done = pgo("profile", str(ADD), "--case", "1m", "--json", cwd=folder)
    assert done.code == 0, done.err
    return done.out


def test_an_addition_of_128_threads_fits_an_sm_sixteen_times(profiled: str) -> None:
    (kernel,) = json.loads(profiled)["cases"][0]["kernels"]
    occupancy = kernel["static"]["occupancy"]
    assert kernel["kernel"] == "_add" and kernel["static"]["resources"]["warps"] == 4
    assert (occupancy["blocks"], occupancy["most_warps"]) == (16, 64)


def test_its_loads_and_its_store_are_on_their_line_of_the_source(profiled: str) -> None:
    (kernel,) = json.loads(profiled)["cases"][0]["kernels"]
    line = next(i for i, text in enumerate(ADD.read_text().splitlines(), 1) if "tl.store(" in text)
    assert [(a["op"], a["source"]) for a in kernel["static"]["accesses"]] == [("tt.load", line)] * 2 + [
        ("tt.store", line)
    ]


def test_the_same_profile_comes_back_at_once(profiled: str, folder: Path) -> None:
    started = time.monotonic()
    again = pgo("profile", str(ADD), "--case", "1m", "--json", cwd=folder)
    bare = time.monotonic()
    assert pgo("--help", cwd=folder).code == 0
    assert again.out == profiled
    assert (bare - started) - (time.monotonic() - bare) < 1.5  # nothing is traced or compiled, which take seconds


def test_a_profile_read_back_from_its_json_is_the_same(profiled: str) -> None:
    found = decoded(Profile, json.loads(profiled))
    assert json.dumps(found.as_json(), sort_keys=True) == profiled.strip()


def test_it_is_drawn_with_its_facts_and_its_lines(folder: Path, profiled: str) -> None:
    done = pgo("profile", str(ADD), "--case", "1m", cwd=folder)
    for told in ("16 blocks, 64 of 64 warps of an SM", "tl.store(z_ptr", "nothing was run or timed"):
        assert told in done.out


def test_its_pseudo_code_says_beside_each_line_what_it_became(folder: Path, profiled: str) -> None:
    done = pgo("profile", str(ADD), "--case", "1m", "--code", cwd=folder)
    lines = [line.split() for line in done.out.splitlines() if " instr" in line]
    stores = [words for words in lines if words[1] == "store"]
    assert stores and stores[0][-1] == "instr" and int(stores[0][-2]) > 0


def test_a_page_is_written_beside_what_is_printed_with_the_folders_above_it(folder: Path, profiled: str) -> None:
    done = pgo("profile", str(ADD), "--case", "1m", "--json", "--html", "new/deep/page.html", cwd=folder)
    page = folder / "new" / "deep" / "page.html"
    assert (done.code, done.out) == (0, profiled)
    assert "page.html written" in done.err
    assert "<!doctype html>" in page.read_text() and "_add" in page.read_text()
    assert list(page.parent.iterdir()) == [page]


def test_a_page_has_every_line_that_the_terminal_has_with_its_figures(profiled: str) -> None:
    found = decoded(Profile, json.loads(profiled))
    static = found.cases[0].kernels[0].static
    assert isinstance(static, StaticProfile)
    html = page.render(found, ADD.read_text(), {})
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", html)]
    for line in static.source:
        if line.line:
            (row,) = [r for r in rows if r[:1] == [str(line.line)]]
            assert unescape(row[1]) == ADD.read_text().splitlines()[line.line - 1].strip()
            assert row[2] == str(line.instructions) and row[-1] == str(line.live)


def test_a_page_draws_the_live_registers_of_every_instruction(profiled: str) -> None:
    found = decoded(Profile, json.loads(profiled))
    static = found.cases[0].kernels[0].static
    assert isinstance(static, StaticProfile)
    curve = re.findall(r'<path class="running" d="([^"]*)"', page.render(found, ADD.read_text(), {}))[0]
    heights = [float(y) for y in re.findall(r"L\d+ ([\d.]+)H", curve)]
    most = max(x or 0 for x in static.curve)
    assert heights == pytest.approx([40 - 40 * (x or 0) / most for x in static.curve], abs=0.01)


def test_a_trace_without_a_timeline_is_refused_and_nothing_is_written(folder: Path, profiled: str) -> None:
    files = ("--perfetto", "trace.json", "--html", "beside.html")
    done = pgo("profile", str(ADD), "--case", "1m", "--passes", "static", *files, cwd=folder)
    assert done.code == 2 and "there is no timeline to write as a trace" in done.err and "GPU" in done.err
    assert not (folder / "trace.json").exists() and not (folder / "beside.html").exists()


def test_a_pass_that_needs_a_gpu_is_not_left_out_in_silence(folder: Path) -> None:
    done = pgo("profile", str(ADD), "--passes", "static,timeline,counters", cwd=folder, CUDA_VISIBLE_DEVICES="")
    assert done.code == 3 and "counters and timeline cannot be taken: no GPU is visible here" in done.err


def test_the_static_pass_alone_says_the_same_and_that_nobody_asked_for_others(folder: Path, profiled: str) -> None:
    done = pgo("profile", str(ADD), "--case", "1m", "--json", "--passes", "static", cwd=folder)
    alone, usual = (decoded(Profile, json.loads(text)).cases[0].kernels[0] for text in (done.out, profiled))
    assert alone.static == usual.static
    assert {m.why for m in alone.missing[:2]} == {"it was not asked for"}


def test_a_page_that_cannot_be_written_is_no_fault_of_the_target(folder: Path, profiled: str) -> None:
    (folder / "file").write_text("")
    done = pgo("profile", str(ADD), "--case", "1m", "--html", "file/page.html", cwd=folder)
    assert done.code == 3 and "cannot write file/page.html" in done.err


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--passes", "statik,timeline"), "no pass called statik\n  -> there are: static, timeline, counters"),
        (("--passes", ","), "--passes names no pass"),
        (("--html", "."), ". is a folder"),
        (("--html", "same", "--perfetto", "./same"), "both name same"),
        (("--case", "2m"), "no public case 2m"),
        (("--case", "1m", "--config", "BLOCK=3"), "it has: BLOCK="),
        (("--case", "1m", "--backend", "tpu"), "choose one of: nvidia, amd"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(
    wrong: tuple[str, ...], told: str, folder: Path, profiled: str
) -> None:
    done = pgo("profile", str(ADD), *wrong, cwd=folder)
    assert done.code == 2 and told in done.err


@pytest.mark.parametrize(
    ("best", "label", "why"),
    [
        ((), "B=16", "the first of the file's list"),
        (("B=64", "B=32"), "B=64", "the best of the last run"),
        (("B=512", "B=32"), "B=32", "the best of the last run"),  # tuned is in no list of the file
        (("B=512", "B=256"), "B=16", "the first of the file's list"),  # the list changed
    ],
)
def test_what_a_run_found_best_is_profiled_tuned_before_the_files_own(
    best: tuple[str, ...], label: str, why: str
) -> None:
    built = profile.Bundled("bundle", {"CASES/1m": ("B=16", "B=32", "B=64")}, (), {})
    chosen = profile._chosen("", built, "CASES/1m", None, {"CASES/1m": best}, "the best of the last run")
    assert (chosen.label, chosen.why) == (label, why)
