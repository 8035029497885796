"""What a person can get wrong, each with the exit code and a message that says what to do next."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from pgo_agent.sandbox.judge.gpus import visible_gpu

from tests.agent.command_line import pgo, write

RETURN = "    return z\n"


def test_no_such_file(tmp_path: Path) -> None:
    done = pgo("optimize", "nothing.py", cwd=tmp_path)
    assert (done.code, "no such file: nothing.py" in done.err) == (2, True)
    assert not (tmp_path / ".pgo-agent" / "artefacts").exists()


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("def kernel(:\n")
    done = pgo("optimize", "k.py", cwd=tmp_path)
    assert done.code == 2 and "k.py:1 is not Python" in done.err


def test_contract_names_missing(tmp_path: Path) -> None:
    write(tmp_path, ("def reference(", "def referenz("), ("HELD_OUT =", "OTHER ="))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "add.py does not define: reference, HELD_OUT" in done.err
    assert "def reference(...): the same result in plain PyTorch" in done.err


def test_a_launcher_that_raises_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, (RETURN, "    raise RuntimeError('not today')\n"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    line = (tmp_path / "add.py").read_text().splitlines().index("    raise RuntimeError('not today')") + 1
    assert done.code == 2 and f"add.py:{line}" in done.err and "not today" in done.err


def test_a_launcher_that_needs_a_tensors_value_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, (RETURN, "    return z * x.sum().item()\n"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "needed on the host" in done.err and "line " in done.err


@pytest.mark.slow
def test_a_reference_of_another_shape(tmp_path: Path) -> None:
    write(tmp_path, ("    return x + y\n", "    return (x + y)[1:]\n"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "outputs are float32[2048], the reference gives float32[2047]" in done.err


def test_a_reference_of_another_dtype(tmp_path: Path) -> None:
    write(tmp_path, ("    return x + y\n", "    import torch\n    return (x + y).to(torch.float16)\n"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "the reference gives float16[2048]" in done.err


@pytest.mark.slow
def test_a_reference_that_raises(tmp_path: Path) -> None:
    write(tmp_path, ("    return x + y\n", "    return x @ y[:5]\n"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "reference() raised" in done.err


def test_a_reference_that_is_not_deterministic_is_named_though_its_noise_would_hide_any_error(tmp_path: Path) -> None:
    write(tmp_path, ("    return x + y\n", "    return x + y + torch.rand_like(x)\n"))
    done = pgo("init", "--check", "add.py", cwd=tmp_path)
    assert done.code == 2 and "reference() gives other results when it is called again" in done.err
    assert "random numbers" in done.err


def test_a_baseline_that_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, ("mask=inside) + tl.load", "mask=inside) - tl.load"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "does not pass its own reference" in done.err and "max error" in done.err
    assert "TOLERANCE" not in done.err


def test_a_baseline_that_rounds_more_is_told_the_tolerance_that_admits_it(tmp_path: Path) -> None:
    write(tmp_path, ("tl.load(y_ptr + at, mask=inside), mask", "tl.load(y_ptr + at, mask=inside) * 1.000002, mask"))
    done = pgo("init", "--check", "add.py", cwd=tmp_path)
    advised = re.search(r"TOLERANCE = dict\(max_ratio=([\d.]+), mean_ratio=([\d.]+)\)", done.err)
    assert done.code == 2 and advised and float(advised[1]) > 2 and float(advised[2]) > 1.5, done.err
    text = (tmp_path / "add.py").read_text()
    (tmp_path / "add.py").write_text(f"{text}\n\nTOLERANCE = dict(max_ratio=1000.0, mean_ratio=1000.0)\n")
    again = pgo("init", "--check", "add.py", cwd=tmp_path)  # that of the worst case may be larger than of the first
    assert again.code == 0, again.err


def test_a_baseline_that_does_not_compile(tmp_path: Path) -> None:
    write(tmp_path, ("tl.arange(0, BLOCK)\n", "tl.arange(0, BLOCK + 1)\n"))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "the kernel as it stands" in done.err and "power of 2" in done.err


def test_a_library_with_the_name_of_a_side_would_be_timed_in_its_place(tmp_path: Path) -> None:
    write(tmp_path, ("HELD_OUT =", 'LIBRARIES = {"tuned": reference, "A/A": reference, "eager": 0}\nHELD_OUT ='))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "add.py: LIBRARIES holds A/A, tuned: so a side of the timing is called" in done.err
    assert "give it another name; these are taken: shipped," in done.err


def test_an_unknown_device_lists_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--device", "h2000", cwd=tmp_path)
    assert done.code == 2 and "unknown device 'h2000'" in done.err and "h200, h100" in done.err


def test_an_unknown_case_lists_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--case", "2m", cwd=tmp_path)
    assert done.code == 2 and "no public case is called 2m" in done.err and "1m, 16m" in done.err


def test_a_gpu_that_is_asked_for_and_is_not_there(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--judge", "gpu", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.code == 3 and "no GPU is visible" in done.err


def test_a_sandbox_that_does_not_work_is_not_replaced_by_none(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--sandbox", "bubblewrap", cwd=tmp_path, PATH="/nonexistent")
    assert done.code == 3 and "apt-get install bubblewrap" in done.err


@pytest.mark.slow
def test_a_launch_space_with_an_unknown_parameter(tmp_path: Path) -> None:
    write(tmp_path, ('LAUNCH_SPACE = {"BLOCK"', 'LAUNCH_SPACE = {"BLOCKS"'))
    done = pgo("optimize", "add.py", cwd=tmp_path)
    assert done.code == 2 and "LAUNCH_SPACE names BLOCKS" in done.err


def test_a_read_only_place_for_the_record(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "file").write_text("")
    done = pgo("optimize", "add.py", "--store", tmp_path / "file" / "w", cwd=tmp_path)
    assert done.code == 3 and "cannot write the record" in done.err
    itself = pgo("runs", "--store", tmp_path / "file", cwd=tmp_path)
    assert itself.code == 2 and "is no folder" in itself.err


@pytest.mark.long
def test_a_full_disk_ends_with_a_message_and_the_record_stays_readable(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        write(tmp_path)
        done = pgo("optimize", "add.py", "--store", disk / "w", cwd=tmp_path)
        assert done.code == 3 and "cannot write" in done.err and "resume" in done.err
        assert pgo("runs", "--store", disk / "w", cwd=tmp_path).code == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_resuming_after_the_target_changed_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    assert pgo("optimize", "add.py", "--minutes", "0", cwd=tmp_path).code == 4
    path = write(tmp_path, (RETURN, "    torch.cuda.Stream()\n" + RETURN), name="other.py")
    assert pgo("optimize", "other.py", cwd=tmp_path).code == 2
    done = pgo("resume", "other", cwd=tmp_path)
    assert done.code == 2 and "failed" in done.err and "torch.cuda.Stream" in done.err
    path.unlink()


def test_a_run_from_another_machine_asks_for_an_interpreter_of_this_one(tmp_path: Path) -> None:
    write(tmp_path)
    assert pgo("optimize", "add.py", "--minutes", "0", cwd=tmp_path).code == 4
    with sqlite3.connect(tmp_path / ".pgo-agent" / "pgo.db") as db:
        ((settings,),) = db.execute("select settings from runs")
        moved = json.loads(settings) | {"python": "/elsewhere/python"}
        db.execute("update runs set state = 'interrupted', settings = ?", (json.dumps(moved),))
    done = pgo("resume", cwd=tmp_path)
    assert done.code == 3 and "/elsewhere/python cannot be run" in done.err and "--python" in done.err
    assert pgo("resume", "--python", sys.executable, cwd=tmp_path).code == 4


@pytest.mark.slow
def test_a_damaged_artefact_of_the_workspace_is_found_and_made_again(tmp_path: Path) -> None:
    write(tmp_path)
    run = ("optimize", "add.py", "--candidates", "1", "--case", "1m")
    assert pgo(*run, cwd=tmp_path).code == 0
    artefacts, bundles = (tmp_path / ".pgo-agent" / name for name in ("artefacts", "bundles"))
    whole = {p.name: p.read_bytes() for p in artefacts.iterdir()}
    for cubin in artefacts.glob("*.cubin"):
        cubin.write_bytes(cubin.read_bytes()[:-1] + b"X")
    shutil.rmtree(bundles)
    assert pgo(*run, cwd=tmp_path).code == 0
    manifests = [json.loads(p.read_text()) for p in bundles.rglob("*.json")]
    used = {f"{k['files']['cubin']}.cubin" for m in manifests for k in m["kernels"].values()}
    assert used and all((artefacts / name).read_bytes() == whole[name] for name in used)


@pytest.mark.skipif(visible_gpu() is not None, reason="there is a GPU here")
def test_gpus_that_are_not_there_are_asked_for_in_vain(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--gpus", "0,1", cwd=tmp_path)
    assert done.code == 3 and "--gpus 0,1: no GPU is visible here" in done.err and "nvidia-smi" in done.err


def test_gpus_for_the_interpreter_are_a_contradiction(tmp_path: Path) -> None:
    write(tmp_path)
    done = pgo("optimize", "add.py", "--gpus", "0", "--judge", "cpu", cwd=tmp_path)
    assert done.code == 2 and "--gpus names GPUs, and --judge cpu uses none" in done.err
