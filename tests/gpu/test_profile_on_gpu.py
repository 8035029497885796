"""What the static profile counts on paper, and the driver on a GPU: both must say the same."""

import ctypes
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.static_profile import StaticProfile

from tests.sandbox.profiling import profile_static

KERNELS = Path(__file__).parents[2] / "kernels"
OPT_IN_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fa_fwd", "gemm", "fa_bwd"])
def test_the_driver_counts_the_same_occupancy(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.zeros(1, device="cuda")  # makes the driver's context
    device = devices.named(torch.cuda.get_device_name())
    if device is None:
        pytest.skip("a GPU that is not in the table of devices")
    subject, contents = target.read(KERNELS / f"{name}.py"), ContentStore(tmp_path)
    bench = Workbench(Builder(subject, device, box.choose(), contents))
    built = bench.builder.build(subject.source, {"CASES": None}, 2)
    manifest = contents.manifest(built.bundle)
    for case in built.choices:
        for key, p in profile_static(bench, subject.source, built.bundle, case).items():
            assert isinstance(p, StaticProfile), p
            kernel = manifest["kernels"][key]
            image = contents.get(kernel["files"]["cubin"], "cubin")
            assert p.occupancy.blocks == _by_the_driver(image, p), (name, case, key)


def _by_the_driver(image: bytes, p: StaticProfile) -> int:
    """Blocks of one SM, as cuOccupancyMaxActiveBlocksPerMultiprocessor has it."""
    cuda, r = ctypes.CDLL("libcuda.so.1"), p.resources
    module, function, blocks = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, p.kernel.encode()) == 0
    assert cuda.cuFuncSetAttribute(function, OPT_IN_SHARED, r.shared_bytes) == 0
    threads, shared = r.warps * r.lanes, ctypes.c_size_t(r.shared_bytes)
    answer = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(blocks), function, threads, shared)
    assert answer == 0
    assert cuda.cuModuleUnload(module) == 0
    return blocks.value
