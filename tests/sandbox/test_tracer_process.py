"""The tracer's process: the device it pretends to have, registers on demand, Gluon, deadlines, reproducible bundles."""

import os

import pytest
from tracing import build, builder, once_looping, trace, trace_for, write

SIZED = """
def sized(x):
    y = torch.empty_like(x)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    shared = triton.runtime.driver.active.utils.get_device_properties(0)["max_shared_mem"]
    _copy[(blocks, *torch.cuda.get_device_capability())](x, y, shared, BLOCK=1024)
    return y
"""
REGISTERS = """
def registers(x):
    y = torch.empty_like(x)
    compiled = _copy.warmup(x, y, 4096, BLOCK=1024, grid=(1,))
    compiled._init_handles()
    compiled[(65536 // (compiled.n_regs * 128), 1 + compiled.n_spills, 1)](x, y, 4096, 1024)
    return y
"""
GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _doubled(src, dst, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(dst + at, gl.load(src + at, mask=at < n) * 2.0, mask=at < n)


def doubled(x):
    y = torch.empty_like(x)
    _doubled[(8,)](x, y, 4096, BLOCK=512, num_warps=4)
    return y
"""
LISTED = """
def _inputs(tensor):
    return {"parts": [tensor(4096), tensor(4096)]}


def gathered(parts):
    y = torch.empty_like(parts[0])
    _copy[(4,)](parts[1], y, 4096, BLOCK=1024)
    return y
"""
ENDLESS = """
import time


def endless(x):
    print("looping", flush=True)
    while True:
        time.sleep(1)
"""


@pytest.mark.parametrize(("device", "answers"), [("h200", [132, 9, 0, 232448]), ("a100", [108, 8, 0, 166912])])
def test_a_launcher_sees_the_properties_of_the_device_asked_for(
    device: str, answers: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # A grid of 0 would be skipped by the judge; here it carries the minor capability.
    (step,) = trace(tmp_path_factory.mktemp(device), SIZED, device).steps("sized")
    assert [*step["grid"], step["args"][2]] == answers


@pytest.mark.xfail(strict=True, reason="started over, the process meets its own stopped builds in Triton's cache")
def test_a_launcher_that_reads_the_registers_of_a_kernel_gets_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    (step,) = trace(tmp_path_factory.mktemp("registers"), REGISTERS).steps("registers")
    blocks, spills, _ = step["grid"]
    assert 65536 // (255 * 128) < blocks <= 65536 // (8 * 128)
    assert spills == 1


@pytest.mark.xfail(strict=True, reason="tensors in a list are not taken for inputs")
def test_an_input_may_be_a_list_of_tensors(tmp_path_factory: pytest.TempPathFactory) -> None:
    traced = trace(tmp_path_factory.mktemp("listed"), LISTED)
    (step,) = traced.steps("gathered")
    assert step["args"][0] == traced.plan("gathered")["inputs"]["parts"][1]


def test_a_gluon_kernel_traces_and_builds(tmp_path_factory: pytest.TempPathFactory) -> None:
    built = build(tmp_path_factory.mktemp("gluon"), GLUON)
    assert built.ok, built.failures
    (static,) = built.statics.values()
    assert static["registers"] > 0


def test_a_bundle_is_the_same_in_another_folder_under_another_file_time(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    bundles = []
    for name, seconds in (("one", 10**9), ("two", 2 * 10**9)):
        folder = tmp_path_factory.mktemp(name)
        made = write(folder, GLUON, name)
        os.utime(made.path, (seconds, seconds))
        b = builder(folder, made)
        bundles.append(b.shelf.bundle(b.build(made.source, {"CASES": None}, None).bundle).read_bytes())
    assert bundles[0] == bundles[1]


def test_a_launcher_that_never_ends_is_ended_at_its_deadline(tmp_path_factory: pytest.TempPathFactory) -> None:
    ran = once_looping(lambda seconds: trace_for(tmp_path_factory.mktemp("endless"), ENDLESS, seconds))
    assert ran.timed_out
    assert not ran.killed
