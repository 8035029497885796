"""sandbox/profile/counters/ncu.py: which ncu is taken, how a run of it ends, and what its refusals mean.

The programs called ncu here refuse, in the words that the real one was seen to use; none of them makes a report.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pgo_agent.sandbox.profile.counters import ncu
from pgo_agent.sandbox.profile.counters.ncu import Absent, Program, Tool

BANNER = "NVIDIA (R) Nsight Compute Command Line Profiler\\nCopyright (c) 2018-2024 NVIDIA Corporation\\nVersion {}\\n"
FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the"
    " target device 0. For instructions on enabling permissions and to get more information see"
    " https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)
REFUSALS = {
    FORBIDDEN: ncu.PERMISSION,
    "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).\n": (
        "ncu: Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?)."
    ),
    "==ERROR== Cuda driver is not compatible with Nsight Compute.\n": (
        "ncu: Cuda driver is not compatible with Nsight Compute."
    ),
    "==WARNING== No kernels were profiled.\n": "",
}
Installed = Callable[[str, str], Path]


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Puts an ncu into a folder that says it is this version, and nothing else."""

    def install(folder: str, version: str) -> Path:
        program = tmp_path / folder / "ncu"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nprintf '{BANNER.format(version)}'\n")
        program.chmod(0o755)
        return program

    return install


def test_where_there_is_no_ncu_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Absent, match=r"^Nsight Compute is not installed"):
        ncu.find(str(tmp_path), ())


def test_an_ncu_from_before_hopper_is_refused_with_the_version_that_is_needed(installed: Installed) -> None:
    old = installed("old", "2022.2.1.0 (build 31867688) (public-release)")
    with pytest.raises(Absent, match=r"ncu 2022\.2\.1 .* is too old: 2022\.3 or later is needed"):
        ncu.find(str(old.parent), ())


def test_the_one_on_path_is_taken_unless_it_is_too_old_and_then_the_newest(
    installed: Installed, tmp_path: Path
) -> None:
    own = installed("own", "2023.1.0.0 (build 1)")
    newest = [installed(f"nsight/{v}", f"{v}.0 (build 1)") for v in ("2024.3.2", "2025.10.0", "2025.3.1")][1]
    places = (str(tmp_path / "nsight/*/ncu"),)
    assert ncu.find(str(own.parent), places) == Tool(str(own), (2023, 1, 0))
    old = installed("old", "2019.5.0 (build 1)")
    assert ncu.find(str(old.parent), places) == Tool(str(newest), (2025, 10, 0))
    assert ncu.find(str(tmp_path), places).name == "ncu 2025.10.0"


def test_an_ncu_that_is_broken_is_told_with_what_it_prints(tmp_path: Path) -> None:
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\necho 'ERROR : nsight-compute directory is not found under /usr/local' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(Absent, match="does not tell its version: ERROR : nsight-compute directory is not found"):
        ncu.find(str(tmp_path), ())
    program.write_bytes(b"\x7fELF and no more")
    with pytest.raises(Absent, match="cannot be run"):
        ncu.find(str(tmp_path), ())


@pytest.mark.parametrize(("printed", "told"), REFUSALS.items())
def test_a_refusal_is_told_in_one_line_and_its_consequences_are_not(printed: str, told: str) -> None:
    output = f"the target says hello\n{printed}==ERROR== The application returned an error code (1).\n"
    assert ncu.refusal(output) == told
    assert "\n" not in told


def test_what_the_target_prints_is_no_refusal() -> None:
    assert ncu.refusal("my kernel handles ERR_NVGPUCTRPERM\n") == ""


def test_whatever_a_program_started_ends_with_it(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; echo started; wait"
    with Program(["sh", "-c", script], os.environ, tmp_path / "log") as program:
        assert program.within(60, lambda: program.output == "started\n")
        assert not program.within(0.1, lambda: False)
        assert not program.ended()
    assert program.ended()
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    until = time.monotonic() + 10
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2] and time.monotonic() < until:
        time.sleep(0.05)
    assert not child.exists() or "Z" in (child / "stat").read_text().split()[2]


def test_a_program_that_ends_is_not_waited_for_any_longer(tmp_path: Path) -> None:
    with Program(["true"], os.environ, tmp_path / "log") as program:
        assert program.within(60, lambda: False)


@pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute is not installed here")
def test_the_real_ncu_knows_every_option_and_section_that_it_is_given(tmp_path: Path) -> None:
    """Options are looked at before the program starts. It launches nothing, so there is no report in any case."""
    real = ncu.find()
    command = real.command(tmp_path / "report.ncu-rep", ["/bin/true"])
    complaints = ("unrecognised option", "unknown option", "did not match any section", "Invalid option", "invalid")
    said = printed(command, tmp_path / "log")
    assert not any(c in said for c in complaints), said
    for wrong in (["--no-such-option"], ["--section", "NoSuchSection"]):
        said = printed([real.path, *wrong, *command[1:]], tmp_path / "log")
        assert any(c in said for c in complaints), said


def printed(command: Sequence[str], log: Path) -> str:
    with Program(command, os.environ, log) as program:
        assert program.within(120, lambda: False)
        return program.output
