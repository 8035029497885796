"""Code that is not what it says: cubins swapped after the build, other code for an honest TTGIR, and state.

Candidates are real and built by the product; bundles are real ones on disk, changed after the build.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build.builder import limits_of
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle import elf, validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault
from pgo_agent.sandbox.judge.references import bundle_ref
from pgo_agent.sandbox.judge.timing.commands import Worker

from tests.sandbox import tracing
from tests.sandbox.attacks.inside import HONEST

if TYPE_CHECKING:
    from tests.sandbox.conftest import Forgery

PARAMETERS = ".param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n, .param .u64 s, .param .u64 t"
OTHER = f".visible .entry _add({PARAMETERS}) {{ ret; }}"  # what _add says it takes, and nothing of what it does
LIMITS = limits_of(devices.find("h200"))


@pytest.fixture
def contents(tmp_path: Path, add_contents: ContentStore) -> ContentStore:
    """A shelf of its own, to be tampered with."""
    shutil.copytree(add_contents.root, tmp_path / "shelf")
    return ContentStore(tmp_path / "shelf")


@pytest.fixture
def judge() -> Worker:
    """The judge's side of a GPU, as far as it goes without one: it reads bundles."""
    worker = Worker(lambda stage, seconds: None)
    worker.limits = LIMITS
    return worker


def read(judge: Worker, contents: ContentStore, bundle: str) -> validate.Bundle:
    return judge._load(bundle_ref(contents, bundle))


def image_of(contents: ContentStore, bundle: str) -> Path:
    (kernel,) = contents.manifest(bundle)["kernels"].values()
    return contents.artefacts / f"{kernel['files']['cubin']}.cubin"


# swapped after the build ----------------------------------------------------------------------------------------------


def test_the_judge_reads_an_honest_bundle(
    judge: Worker, contents: ContentStore, add_built: Built, add_image: bytes
) -> None:
    assert list(read(judge, contents, add_built.bundle).images.values()) == [add_image]


def test_a_cubin_swapped_after_the_build_is_refused(
    judge: Worker, contents: ContentStore, add_built: Built, ptxas: Callable[[str], bytes]
) -> None:
    image_of(contents, add_built.bundle).write_bytes(ptxas(OTHER))
    with pytest.raises(BadBundle, match=r"\.cubin was tampered with"):
        read(judge, contents, add_built.bundle)
    with pytest.raises(EnvironmentFault, match="is damaged"):
        contents.get(image_of(contents, add_built.bundle).stem, "cubin")


def test_a_cubin_swapped_together_with_its_hash_is_refused(
    judge: Worker, contents: ContentStore, add_built: Built, ptxas: Callable[[str], bytes]
) -> None:
    manifest = contents.manifest(add_built.bundle)
    (kernel,) = manifest["kernels"].values()
    kernel["files"]["cubin"] = contents.put(ptxas(OTHER), "cubin")
    other = contents.put_bundle(manifest)
    contents.bundle(other).replace(contents.bundle(add_built.bundle))
    assert validate.load(
        contents.bundle(add_built.bundle), contents.artefacts, LIMITS
    ).plans  # of itself it is a good bundle
    with pytest.raises(BadBundle, match=f"bundle {add_built.bundle[:12]} was tampered with"):
        read(judge, contents, add_built.bundle)


def test_ptx_in_place_of_a_cubin_is_refused(judge: Worker, contents: ContentStore, add_built: Built) -> None:
    """The driver would compile it: with another assembler and other options than what was judged before."""
    manifest = contents.manifest(add_built.bundle)
    (kernel,) = manifest["kernels"].values()
    ptx = contents.get(kernel["files"]["ptx"], "ptx")
    assert b".version" in ptx and b".entry _add" in ptx
    kernel["files"]["cubin"] = contents.put(ptx, "cubin")
    with pytest.raises(BadBundle, match="not a cubin: no 64-bit ELF"):
        read(judge, contents, contents.put_bundle(manifest))


# another code for an honest TTGIR -------------------------------------------------------------------------------------

SWAPPED = """
from triton.backends.nvidia.compiler import CUDABackend as _Backend

_make_ptx = _Backend.make_ptx


def _patched(self, *args, **kwargs):
    return _make_ptx(self, *args, **kwargs).replace("ld.global", "ld.volatile.global")


_Backend.make_ptx = _patched
"""
PLANTED = """
import atexit, os, sys
from pathlib import Path


def _plant():
    out = Path(sys.argv[1]) / "out"
    for text in out.glob("*.ttgir"):
        for suffix in ("cubin", "ptx", "json"):
            text.with_suffix("." + suffix).write_bytes(b"planted")


atexit.register(_plant)
"""
COMPILED = """
import sys, torch, triton
from pathlib import Path
from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.elf import code_id
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
module = target.load(Path(sys.argv[1]), "theirs")
signature = {"src": "*fp16", "dst": "*fp16", "n": "i32", "BLOCK": "constexpr"}
attrs = {(i,): [["tt.divisibility", 16]] for i in range(3)}
source = ASTSource(module._copy, signature, {"BLOCK": 1024}, attrs)
made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
print(code_id(made.asm["cubin"]))
"""


def codes(folder: Path, attack: str) -> set[str]:
    made = tracing.write(folder, HONEST)
    built = tracing.builder(folder, made).build(f"{attack}\n{made.source}", {"CASES": None}, None)
    assert built.ok, built.failures
    return set(built.codes.values())


def test_an_honest_ttgir_cannot_be_paired_with_another_cubin(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tracer, where the candidate's Python runs, hands over TTGIR alone; another process makes the cubin of it."""
    attack = f"{SWAPPED}\n{PLANTED}"
    assert codes(tmp_path_factory.mktemp("a"), attack) == codes(tmp_path_factory.mktemp("b"), "")


@pytest.mark.slow
def test_in_the_candidates_own_process_the_patch_would_work(tmp_path: Path) -> None:
    def compiled(name: str, text: str) -> str:
        made = tracing.write(tmp_path, text, name)
        env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / f"cache-{name}")}
        command = [sys.executable, "-c", COMPILED, str(made.path)]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()

    assert compiled("swapped", f"{SWAPPED}\n{HONEST}") != compiled("honest", HONEST)


# state ----------------------------------------------------------------------------------------------------------------

KEEPING = """
@triton.jit
def _kept(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.inline_asm_elementwise(
        "{ .global .align 4 .u32 kept; atom.global.add.u32 $0, [kept], 1; }", "=r,r", [at], tl.int32, False, 1)
    tl.store(dst + at, tl.load(src + at, mask=at < n) + old.to(tl.float16), mask=at < n)


def kept(x):
    y = torch.empty_like(x)
    _kept[(4,)](x, y, 4096, BLOCK=1024)
    return y
"""


def test_a_kernel_that_counts_its_launches_is_refused(tmp_path: Path) -> None:
    made = tracing.write(tmp_path, KEEPING)
    b = tracing.builder(tmp_path, made)
    built = b.build(made.source, {"CASES": None}, None)
    assert [(f.kind, f.message) for f in built.failures] == [
        ("rejected", "device variables: state that would outlive a launch")
    ]
    (image,) = b.contents.artefacts.glob("*.cubin")  # Triton and ptxas have nothing against it
    assert any(s.name.startswith(".nv.global") for s in elf.sections(image.read_bytes()))


HEAP = f"""
.extern .func (.param .b64 at) malloc (.param .b64 size);
.visible .entry _add({PARAMETERS}) {{
    .reg .b64 p;
    .param .b64 size;
    .param .b64 at;
    st.param.b64 [size], 64;
    call.uni (at), malloc, (size);
    ld.param.b64 p, [at];
    st.global.u64 [p], 7;
    ret;
}}
"""
SAYING = """
@triton.jit(debug=True)
def _said(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(src + at, mask=at < n)
    tl.device_print("x", at)
    tl.device_assert(n > 0, "nothing")
    tl.store(dst + at, x, mask=at < n)


def said(x):
    y = torch.empty_like(x)
    _said[(4,)](x, y, 4096, BLOCK=1024)
    return y
"""


def test_a_kernel_that_takes_memory_of_the_devices_heap_is_refused(
    forgery: "Forgery", ptxas: Callable[[str], bytes]
) -> None:
    """What lies there stays, at the same address, for the next launch to find; no poison reaches it."""
    image = ptxas(HEAP)
    assert not elf.keeps_state(image)
    forgery.swap_cubin(image)
    with pytest.raises(BadBundle, match="a call of 'malloc': a heap on the device would outlive a launch"):
        forgery.load()


@pytest.mark.slow
def test_what_a_kernel_prints_and_asserts_calls_no_other_function(tmp_path: Path) -> None:
    made = tracing.write(tmp_path, SAYING)
    b = tracing.builder(tmp_path, made)
    built = b.build(made.source, {"CASES": None}, None)
    called = {name for p in b.contents.artefacts.glob("*.cubin") for name in elf.calls(p.read_bytes())}
    assert "vprintf" in called and called <= validate._CALLS, (called, built.failures)
    assert all("tl.device_print" in f.message for f in built.failures), built.failures
