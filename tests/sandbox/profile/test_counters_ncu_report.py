"""sandbox/profile/counters/ncu_report.py on what Nsight Compute wrote, and on what it did not."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pgo_agent.sandbox.judge.worker_process import environment
from pgo_agent.sandbox.profile import sass
from pgo_agent.sandbox.profile.counters import metrics, ncu_report
from pgo_agent.sandbox.profile.counters.metrics import Code
from pgo_agent.sandbox.profile.counters.ncu import Absent
from pgo_agent.sandbox.profile.counters.types import Counters

from tests.sandbox.ncu_samples import needs_reader, needs_reports, reports

SMALL_L2 = 8 << 20  # bytes that a kernel of the samples may have written and left in the cache


def facts(report: Path, tmp_path: Path) -> ncu_report.Facts:
    return ncu_report.facts(Path(shutil.copy(report, tmp_path / "report.ncu-rep")), None)


@needs_reader
@needs_reports
@pytest.mark.parametrize("report", reports(), ids=lambda p: p.stem)
def test_every_figure_of_a_real_report_is_found_and_its_instructions_add_up(report: Path, tmp_path: Path) -> None:
    found = facts(report, tmp_path)
    c = metrics.counters(found, "ncu", Code(unlined="nobody knows its lines"))
    assert c.dram_bytes == pytest.approx(found.metrics[metrics.MOVED].value * c.duration_ns / 1e9)
    peaks = [found.metrics[n + metrics.OF_PEAK].value for n in (metrics.READ, metrics.WRITTEN)]
    assert c.speed_of_light["dram"] == pytest.approx(sum(peaks) / 100, rel=1e-3)
    assert set(c.speed_of_light) == {"sm", "tensor", "l1", "l2", "dram"}
    shares = [*c.speed_of_light.values(), *c.stalls.values(), c.l1_hit, c.l2_hit, c.warps_active]
    assert all(s is not None and 0 <= s <= 1 for s in shares)
    assert sum(c.stalls.values()) == pytest.approx(1)
    assert sum(i.executed for i in c.code) == c.executed == c.metrics[metrics.EXECUTED]
    assert sum(i.samples for i in c.code) > 0
    assert c.code[0].offset == 0 and c.code[0].executed > 0
    assert c.bank_conflicts is not None and 0 <= c.bank_conflicts.share <= 1
    assert Counters.from_json(c.as_json()) == c


@needs_reader
@needs_reports
def test_nvidias_two_transposes_differ_by_their_bank_conflicts_and_little_else(tmp_path: Path) -> None:
    """One reads columns of a tile of 32 x 32 floats, the other of 32 x 33; both move 2 x 256 MiB."""
    found = {r.stem: r for r in reports() if r.stem.startswith("transpose")}
    if len(found) != 2:
        pytest.skip("these samples are not among the reports")
    bad, good = (
        metrics.counters(facts(found[n], tmp_path), "ncu", Code())
        for n in ("transposeCoalesced", "transposeNoBankConflicts")
    )
    assert bad.bank_conflicts and good.bank_conflicts
    assert bad.bank_conflicts.share > 0.9 and bad.bank_conflicts.stores == 0
    assert good.bank_conflicts.loads == 0
    assert bad.executed == good.executed
    assert next(iter(bad.stalls)) == "mio_throttle"
    for c in (bad, good):
        assert c.dram_bytes is not None and 0 < 2 * (256 << 20) - c.dram_bytes < SMALL_L2


@needs_reader
@needs_reports
@pytest.mark.parametrize("report", reports(), ids=lambda p: p.stem)
def test_an_offset_names_the_instruction_that_nvdisasm_finds_there(report: Path, tmp_path: Path) -> None:
    """A report brings its cubin: Triton's own nvdisasm must see at each offset what ncu says was executed there."""
    found = facts(report, tmp_path)
    built = sass.instructions(disassembled(report, found.kernel, tmp_path))
    opcodes = {i.address: i.opcode for i in built}
    theirs = {s.offset: metrics.opcode(s.text) for s in found.instructions if s.offset in opcodes and s.text}
    assert len(theirs) > 10
    assert theirs == {at: opcodes[at] for at in theirs}
    assert metrics.counters(found, "ncu", Code(built)).unlined == ""
    moved = tuple(ncu_report.Seen(s.offset + 16, s.text, s.executed, s.stalls) for s in found.instructions)
    assert metrics.counters(ncu_report.Facts(found.kernel, found.metrics, moved), "ncu", Code(built)).unlined


def disassembled(report: Path, kernel: str, folder: Path) -> str:
    triton = pytest.importorskip("triton", reason="needs the nvdisasm that comes with Triton")
    nvdisasm = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    whole, image = report.read_bytes(), folder / "image.cubin"
    image.write_bytes(whole[whole.index(b"\x7fELF") :])
    text = subprocess.run([nvdisasm, "-c", image], capture_output=True, text=True, check=True).stdout
    names_and_texts = re.split(r"^\s*//-+ \.text\.(\S+) -+\s*$", text, flags=re.M)[1:]
    return dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))[kernel]


@needs_reader
@pytest.mark.parametrize("content", [b"", b"NVR\0", b"not a report\n" * 1000])
def test_a_file_that_is_no_report_is_told_as_one_that_the_reader_does_not_know(content: bytes, tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(content)
    with pytest.raises(Absent, match=r"^the report cannot be read: .+$"):
        ncu_report.facts(report, None)


@needs_reader
@needs_reports
def test_a_report_that_was_cut_off_is_told(tmp_path: Path) -> None:
    whole, report = reports()[0].read_bytes(), tmp_path / "report.ncu-rep"
    report.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Absent, match="cannot be read"):
        ncu_report.facts(report, None)


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    """An interpreter without its site-packages has no package ncu-report."""
    command = [
        sys.executable,
        "-S",
        "-m",
        ncu_report.__name__,
        str(tmp_path / "report.ncu-rep"),
        str(tmp_path / "out.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(None))
    assert (done.returncode, done.stderr.strip()) == (1, ncu_report.INSTALL)
    assert not (tmp_path / "out.json").exists()
