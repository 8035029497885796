"""A kernel's TTGIR is written out, edited and given to `check`: the whole way of a person, in real processes."""

import json
import shutil
from pathlib import Path

import pytest

from tests.agent.breaking import Whole
from tests.agent.command_line import Done, pgo, write


@pytest.fixture(scope="module")
def place(whole: Whole, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, a finished run on it, and the TTGIR of its tuned baseline under ir/."""
    folder = tmp_path_factory.mktemp("place")
    write(folder, alone=True)
    shutil.copytree(whole.folder / ".pgo-agent", folder / ".pgo-agent")
    assert pgo("show", "last", "tuned", "--ttgir", "ir", cwd=folder).code == 0
    return folder


def checked(place: Path, *edits: tuple[str, str]) -> Done:
    (path,) = (place / "ir").glob("*.ttgir")
    text = path.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (place / "new.ttgir").write_text(text)
    return pgo("check", "new.ttgir", "--target", "add.py", "--case", "1m", cwd=place)


def test_a_written_text_says_which_kernel_it_is_and_at_which_configuration(place: Path) -> None:
    (path,) = (place / "ir").glob("*.ttgir")
    first, second, *_ = path.read_text().splitlines()
    assert first.startswith("// replaces: ")
    assert json.loads(second.removeprefix("// at: "))["BLOCK"] == 512  # of the grid: the file's own list has no 512


@pytest.mark.slow
def test_unmodified_it_is_no_change(place: Path) -> None:
    done = checked(place)
    assert done.code == 0
    assert done.out.startswith("no_change: new.ttgir")
    assert "stage inspect" in done.out


@pytest.mark.long
def test_edited_it_is_built_and_says_that_nothing_here_runs_it(place: Path) -> None:
    done = checked(place, ("arith.addf", "arith.subf"))
    assert done.code == 4  # nobody compared its results
    assert done.out.startswith("built: new.ttgir")
    assert "arithmetic edit" in done.out and "does not run TTGIR" in done.out
    one = json.loads(pgo("show", "--json", cwd=place).out)["verdicts"][0]
    shown = pgo("show", "last", one["id"], cwd=place).out
    assert "-    %15 = arith.addf" in shown and "+    %15 = arith.subf" in shown
    assert "TTGIR: " in pgo("diff", "shipped", one["id"], cwd=place).out
    asked = ("profile", "add.py", "--candidate", f"last/{one['id'][:6]}", "--code")
    profiled = pgo(*asked, cwd=place).out
    assert "x = arg0_tile - arg1_tile" in profiled, "a profile shows the code of the candidate, and not the target's"
    assert "was built for h200" in pgo(*asked, "--device", "a100", cwd=place).err


@pytest.mark.slow
def test_what_triton_refuses_comes_back_with_its_line(place: Path) -> None:
    done = checked(place, ("tt.return", "tt.retur"))
    assert done.code == 1
    assert "build_error" in done.out and "custom op 'tt.retur' is unknown" in done.out and "line " in done.out


@pytest.mark.slow
def test_a_configuration_that_cannot_be_read_is_said_before_there_is_a_run(place: Path) -> None:
    before = len(json.loads(pgo("runs", "--json", cwd=place).out))
    done = checked(place, ("// at: {", "// at: {{"))
    assert done.code == 2
    assert "is not a configuration" in done.err
    assert len(json.loads(pgo("runs", "--json", cwd=place).out)) == before
