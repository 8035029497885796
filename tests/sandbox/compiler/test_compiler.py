"""TTGIR in, cubin out: the same code as Triton's own compiler makes, and failures that stay with their kernel."""

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.compiler import error_text
from pgo_agent.sandbox.errors import Killed
from pgo_agent.sandbox.isolation import box

from tests.sandbox import forked_python
from tests.sandbox.processes import alive, below, depth
from tests.sandbox.tracing import builder, write

ADD = Path(__file__).parents[2] / "kernels" / "add.py"
SNIPPET = """
@triton.jit
def _product(a, b, c, K, BLOCK: tl.constexpr):
    row, col, deep = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :], tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + row * K + k + deep[None, :])
        right = tl.load(b + (k + deep[:, None]) * BLOCK + col)
        acc = tl.dot(left, right, acc)
    tl.store(c + row * BLOCK + col, acc)


@triton.autotune(configs=[triton.Config({}), triton.Config({}, maxnreg=24)], key=[])
@triton.jit
def _hungry(src, dst, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    a = tl.load(src + at)
    tl.store(dst + at, tl.dot(tl.dot(a, a).to(a.dtype), a))


def product(x, q):
    c = torch.empty(64, 64, device=x.device)
    _product[(1,)](x, q, c, 512, BLOCK=64, num_warps=4, num_stages=3)
    return c


def hungry(x):
    y = torch.empty(64, 64, device=x.device)
    _hungry[(1,)](x, y, 64)
    return y
"""
TRITONS_OWN = """
import json, os, sys
from pathlib import Path

os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_CACHE_DIR": sys.argv[3], "TRITON_DEFAULT_FP_FUSION": "1"}

import triton
from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.elf import code_id
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

module, asked = target.load(Path(sys.argv[1]), "theirs"), json.loads(sys.argv[2])
kernel = getattr(module, asked["kernel"])
while not isinstance(kernel, JITFunction):
    kernel = kernel.fn
attrs = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(asked["signature"].values()) if kind != "constexpr"}
source = ASTSource(kernel, asked["signature"], asked["constants"], attrs)
print(code_id(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=asked["options"]).asm["cubin"]))
"""


@dataclass(frozen=True)
class Made:
    """A snippet's target, its builder and what was built of one of its cases."""

    path: Path
    builder: Builder
    built: Built

    def build(self, source: str) -> Built:
        return self.builder.build(source, {"CASES": ["product"]}, None)

    @property
    def ttgir(self) -> bytes:
        (kernel,) = self.builder.contents.manifest(self.built.bundle)["kernels"].values()
        return self.builder.contents.get(kernel["files"]["ttgir"], "ttgir")


def make(folder: Path, name: str = "snippet") -> Made:
    of = write(folder, SNIPPET, name)
    made = builder(folder, of)
    built = made.build(of.source, {"CASES": ["product"]}, None)
    assert built.ok, built.failures
    return Made(of.path, made, built)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("product"))


def theirs(path: Path, folder: Path, **asked: Any) -> str:
    """The code id of what `triton.compile` makes of a kernel, in a process of its own."""
    done = forked_python.ran(TRITONS_OWN, path, json.dumps(asked), folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_pipelined_product_is_the_code_that_triton_itself_compiles(product: Made, tmp_path: Path) -> None:
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32", "BLOCK": "constexpr"}
    options = {"num_warps": 4, "num_stages": 3}
    asked = {
        "kernel": "_product",
        "tuned": False,
        "signature": signature,
        "constants": {"BLOCK": 64},
        "options": options,
    }
    assert [theirs(product.path, tmp_path, **asked)] == list(product.built.codes.values())


def test_an_autotuned_kernel_is_the_code_that_triton_itself_compiles(add_built: Built, tmp_path: Path) -> None:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "z_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    options = {"num_warps": 4, "num_stages": 3}
    asked = {"kernel": "_add", "signature": signature, "constants": {"BLOCK": 1024}, "options": options}
    assert [theirs(ADD, tmp_path, **asked)] == list(add_built.codes.values())


def test_the_same_program_elsewhere_has_the_same_code(product: Made, tmp_path: Path) -> None:
    again = make(tmp_path, "elsewhere")
    assert list(again.built.codes.values()) == list(product.built.codes.values())


def test_lines_above_a_kernel_do_not_change_its_bundle(product: Made) -> None:
    moved = product.path.read_text().replace("@triton.jit\ndef _product", "# A remark.\n\n\n@triton.jit\ndef _product")
    assert product.build(moved).bundle == product.built.bundle


def test_another_program_has_another_code(product: Made) -> None:
    other = product.build(
        product.path.read_text().replace(
            "tl.store(c + row * BLOCK + col, acc)", "tl.store(c + row * BLOCK + col, acc + 1)"
        )
    )
    assert other.ok
    assert set(other.codes.values()).isdisjoint(product.built.codes.values())


def test_ttgir_that_does_not_compile_fails_alone(product: Made, tmp_path: Path) -> None:
    texts = {"garbage": b"this is not mlir", "aborting": b"", "good": product.ttgir}
    contents = ContentStore(tmp_path)
    trace_and_compile.compile_missing(box.choose(), contents, devices.find("h200"), texts, {k: {} for k in texts}, 1)
    builds = {k: contents.build(k) or {} for k in texts}
    assert "custom op 'this' is unknown" in builds["garbage"]["error"]
    assert builds["aborting"]["error"].startswith("the compiler died of SIGABRT")
    assert builds["good"]["code_id"] in product.built.codes.values()


def test_a_kernel_that_ptxas_refuses_is_a_failure_with_its_diagnostic(product: Made) -> None:
    built = product.builder.build(product.path.read_text(), {"CASES": ["hungry"]}, None)
    (failure,) = built.failures
    assert (failure.kind, failure.case) == ("build_error", "CASES/hungry")
    assert "maxnreg=24" in failure.message.splitlines()[0]
    assert "C7602" in failure.message
    assert len(built.choices["CASES/hungry"]) == 1


def test_a_crash_of_ptxas_is_told_as_what_it_is() -> None:
    log, ended = "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n\n", 1 << 8
    assert error_text.describe(log, ended, 120.0).startswith("PTXAS error")
    died = error_text.describe(
        log + "triton.runtime.errors.PTXASError: `ptxas` failed with error code -11", ended, 120.0
    )
    assert died.startswith("error: ptxas died of SIGSEGV: a fault of its own")


def test_a_sanitized_build_is_assembled_alike_whatever_a_candidate_asks_of_ptxas(
    add_contents: ContentStore, add_built: Built, tmp_path: Path
) -> None:
    (kernel,) = add_contents.manifest(add_built.bundle)["kernels"].values()
    ttgir = add_contents.get(kernel["files"]["ttgir"], "ttgir")

    def code(flags: str, sanitize: bool) -> str:
        contents = ContentStore(tmp_path / f"{sanitize}{flags}")
        options = {"sanitize": sanitize, "ptx_options": flags}
        trace_and_compile.compile_missing(box.choose(), contents, devices.find("h200"), {"k": ttgir}, {"k": options}, 1)
        return str((contents.build("k") or {})["code_id"])

    asked = "--opt-level=1"
    assert code("", False) != code(asked, False) and code("", True) == code(asked, True)


# a compiler that somebody kills ---------------------------------------------------------------------------------------


def victims() -> dict[str, list[int]]:
    """What compiles now among the descendants of this process: compiler, child, ptxas, nvdisasm -> pids."""
    processes = alive()

    def compiles(pid: int) -> str:
        return (
            {1: "compiler", 2: "child"}.get(depth(pid, "sandbox.compiler", processes), "") if pid in processes else ""
        )

    found: dict[str, list[int]] = {}
    for pid in below(os.getpid(), processes):
        parent, command = processes[pid]
        tool = Path(command.split(" ")[0]).name if compiles(parent) == "child" else ""
        if name := compiles(pid) or tool:
            found.setdefault(name, []).append(pid)
    return found


def kill_once(victim: str, killed: list[int], ended: threading.Event) -> None:
    """Ends the compiler, the child that it compiles a kernel in, or a tool of it, as soon as that child is there."""
    while not killed and not ended.is_set():
        found = victims()
        if "child" in found and victim in found:
            try:
                os.kill(found[victim][0], signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(found[victim][0])
        time.sleep(0.001)


def compiled_while_one_is_killed(victim: str, ttgir: bytes, folder: Path, **options: bool) -> ContentStore:
    killed: list[int] = []
    for attempt in range(20):  # a tool lives for some milliseconds: the killer may come too late
        ended, contents = threading.Event(), ContentStore(folder / str(attempt))
        thread = threading.Thread(target=kill_once, args=(victim, killed, ended))
        thread.start()
        trace_and_compile.compile_missing(
            box.choose(), contents, devices.find("h200"), {"good": ttgir}, {"good": options}, 1
        )
        ended.set()
        thread.join()
        if killed:
            break
    assert killed
    return contents


@pytest.mark.parametrize("victim", ["compiler", "child", "ptxas"])
def test_a_compiler_that_somebody_kills_is_started_again(victim: str, product: Made, tmp_path: Path) -> None:
    build = compiled_while_one_is_killed(victim, product.ttgir, tmp_path).build("good") or {}
    assert build.get("code_id") in product.built.codes.values(), build
    (key,) = (k for k, code in product.built.codes.items() if code == build["code_id"])
    told = {n: build["kernel"][n] for n in ("name", "num_warps")}
    assert build["static"] | told == product.built.statics[key]


def test_listings_whose_tool_somebody_kills_are_made_again(product: Made, tmp_path: Path) -> None:
    contents = compiled_while_one_is_killed("nvdisasm", product.ttgir, tmp_path, lines=True)
    files = (contents.build("good") or {})["kernel"]["files"]
    assert all(contents.get(files[name], name) for name in trace_and_compile.LISTED)


def test_a_compiler_that_is_always_killed_is_a_fault_and_leaves_no_diagnostic(product: Made, tmp_path: Path) -> None:
    contents, ended = ContentStore(tmp_path), threading.Event()

    def kill_all() -> None:
        while not ended.is_set():
            kill_once("compiler", [], ended)

    thread = threading.Thread(target=kill_all)
    thread.start()
    try:
        with pytest.raises(Killed, match=f"the compiling process was killed {box.ATTEMPTS} times in a row"):
            trace_and_compile.compile_missing(
                box.choose(), contents, devices.find("h200"), {"good": product.ttgir}, {"good": {}}, 1
            )
    finally:
        ended.set()
        thread.join()
    assert not (contents.root / "builds").exists()
