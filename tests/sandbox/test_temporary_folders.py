"""What a killed process left is removed by the next one; what a living one holds, and what is not ours, is not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOLDS = """
import sys
from pgo_agent.sandbox.temporary_folders import folder_of_process, temporary_folder
with temporary_folder("box") as folder:
    (folder / "input").write_bytes(bytes(1000))
    print(folder_of_process("import"), folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(elsewhere: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.kill()


def _folders(process: "subprocess.Popen[str]") -> list[Path]:
    assert process.stdout
    return [Path(word) for word in process.stdout.readline().split()]


def _another() -> None:
    """Have another process make a folder, an hour later, as it believes."""
    late = "import time; now = time.time; time.time = lambda: now() + 3600\n" + HOLDS
    subprocess.run([sys.executable, "-c", late], stdin=subprocess.DEVNULL, check=True, capture_output=True)


def test_a_killed_process_leaves_folders_until_the_next_process_makes_one(
    holder: "subprocess.Popen[str]", elsewhere: Path
) -> None:
    left = _folders(holder)
    holder.kill()
    holder.wait()
    assert [p.exists() for p in left] == [True, True]
    _another()
    assert list(elsewhere.iterdir()) == []


def test_a_living_process_keeps_its_folders_and_removes_them_at_its_end(
    holder: "subprocess.Popen[str]", elsewhere: Path
) -> None:
    held = _folders(holder)
    _another()
    assert sorted(elsewhere.iterdir()) == sorted(held)
    assert len((held[1] / "input").read_bytes()) == 1000
    holder.communicate("")
    assert list(elsewhere.iterdir()) == []


def test_nothing_else_is_removed_whatever_it_is_called(elsewhere: Path) -> None:
    clone, linked = elsewhere / "pgo-agent", elsewhere / "pgo-box-abcd1234.tmp"
    clone.mkdir()
    linked.symlink_to(clone)
    (elsewhere / "pgo-box-file0000.tmp").write_text("a file")
    before = sorted(elsewhere.iterdir())
    _another()
    assert sorted(elsewhere.iterdir()) == before
