"""The tracer's process: registers on demand, inputs in lists, Gluon, reproducible bundles, deadlines."""

import os
from pathlib import Path

import pytest
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import Killed
from pgo_agent.sandbox.isolation import box

from tests.sandbox.tracing import build, builder, once_looping, trace, trace_for, write

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
SUICIDE = """
def dying(x):
    import os
    os.kill(os.getpid(), 9)  # looks as if somebody else had done it
"""


@pytest.fixture(scope="module")
def gluon_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gluon")


@pytest.fixture(scope="module")
def gluon(gluon_folder: Path) -> Built:
    return build(gluon_folder, GLUON)


def test_a_launcher_that_reads_the_registers_of_a_kernel_gets_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    (step,) = trace(tmp_path_factory.mktemp("registers"), REGISTERS).steps("registers")
    blocks, spills, _ = step["grid"]
    assert 65536 // (255 * 128) < blocks <= 65536 // (8 * 128)
    assert spills == 1


def test_an_input_may_be_a_list_of_tensors(tmp_path_factory: pytest.TempPathFactory) -> None:
    traced = trace(tmp_path_factory.mktemp("listed"), LISTED)
    (step,) = traced.steps("gathered")
    assert step["args"][0] == traced.plan("gathered")["inputs"]["parts"][1]


def test_a_gluon_kernel_traces_and_builds(gluon: Built) -> None:
    assert gluon.ok, gluon.failures
    (static,) = gluon.statics.values()
    assert static["registers"] > 0


def test_a_bundle_is_the_same_in_another_folder_under_another_file_time(
    gluon: Built, gluon_folder: Path, tmp_path: Path
) -> None:
    made = write(tmp_path, GLUON, "another")
    os.utime(made.path, (10**9, 10**9))
    other = builder(tmp_path, made)
    bundle = other.build(made.source, {"CASES": None}, None).bundle
    assert (
        other.contents.bundle(bundle).read_bytes()
        == ContentStore(gluon_folder / "shelf").bundle(gluon.bundle).read_bytes()
    )


def test_a_launcher_that_never_ends_is_ended_at_its_deadline(tmp_path_factory: pytest.TempPathFactory) -> None:
    ran = once_looping(lambda seconds: trace_for(tmp_path_factory.mktemp("endless"), ENDLESS, seconds))
    assert ran.timed_out
    assert not ran.killed


def test_a_tracer_killed_again_and_again_is_a_fault_and_not_the_candidates(tmp_path: Path) -> None:
    of = write(tmp_path, SUICIDE)
    with pytest.raises(Killed, match=f"the tracing process was killed {box.ATTEMPTS} times in a row"):
        builder(tmp_path, of).build(of.source, {"CASES": None}, None)


@pytest.mark.skipif(not box.choose().isolates, reason="no sandbox works here")
def test_foreign_code_that_kills_its_tracer_is_a_failure_that_blames_nobody(tmp_path: Path) -> None:
    of = write(tmp_path, SUICIDE)
    built = builder(tmp_path, of).build(of.source, {"CASES": None}, None, untrusted=True)
    assert [f.kind for f in built.failures] == ["killed"]
