"""A disk that is full, at every stage of a run: it ends with a message, and never with a verdict or a wrong record."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pgo_agent.agent.views.profile import output
from pgo_agent.sandbox.errors import EnvironmentFault

from tests.agent import breaking
from tests.agent.breaking import Whole
from tests.agent.command_line import pgo, write

Disk = Callable[[str], Path]
SIZES = (200, 320, 500, 4000)  # KiB; the run as a whole needs some 800


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mounts a file system of a size, or gives the mounted one that size."""
    place, mounted = tmp_path / "disk", list[Path]()
    place.mkdir()

    def sized(size: str) -> Path:
        how = ["-o", f"remount,size={size}"] if mounted else ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        done = subprocess.run(["mount", *how, str(place)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("mounting a small file system needs root")
        mounted.append(place)
        return place

    yield sized
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


def unbuilt(folder: Path) -> None:
    """A target of which nothing is built: a run has to write all of it."""
    write(folder)
    shutil.rmtree(folder / ".pgo-agent")


@pytest.mark.slow
def test_a_disk_that_is_full_again_and_again_changes_nothing_of_the_record(
    disk: Disk, whole: Whole, tmp_path: Path
) -> None:
    unbuilt(tmp_path)
    (tmp_path / ".pgo-agent").symlink_to(disk(f"{SIZES[0]}k"))
    for size in SIZES:
        disk(f"{size}k")
        done = pgo(*(breaking.RESUME if breaking.has_run(tmp_path) else breaking.SHORT), cwd=tmp_path)
        assert "Traceback" not in done.err
        if done.code == 0 or "is complete" in done.err:
            break
        assert done.code == 3 and "cannot write" in done.err and "pgo-agent resume" in done.err, done.err
    assert size > SIZES[1], "this disk was never full"
    assert breaking.record(tmp_path) == whole.record


def test_what_fails_on_a_full_disk_is_not_the_kernels_fault(disk: Disk, tmp_path: Path) -> None:
    write(tmp_path, ("    return z\n", "    raise OSError(28, 'No space left on device')\n"))
    done = pgo("optimize", "add.py", "--store", disk("4m") / "w", cwd=tmp_path)
    assert done.code == 3 and "less than 64 MiB free" in done.err, done.err
    disk("200m")
    done = pgo("resume", "--store", disk("200m") / "w", cwd=tmp_path)
    assert done.code == 2 and "add.py:" in done.err, done.err


def test_a_page_that_does_not_fit_leaves_the_one_that_is_there(disk: Disk) -> None:
    page = disk("64k") / "page.html"
    output.put(page, "<!doctype html>")
    with pytest.raises(EnvironmentFault, match="cannot write"):
        output.put(page, "x" * 100_000)
    assert [p.name for p in page.parent.iterdir()] == ["page.html"]
    assert page.read_text() == "<!doctype html>"


@pytest.mark.slow
def test_a_full_folder_for_temporary_files_is_not_the_kernels_fault(disk: Disk, tmp_path: Path) -> None:
    unbuilt(tmp_path)
    done = pgo(*breaking.SHORT, cwd=tmp_path, TMPDIR=str(disk("220k")))
    assert done.code == 3 and "/disk/" in done.err and "free some space" in done.err, done.err
    assert "Traceback" not in done.err and "candidate.verdict" not in done.out
