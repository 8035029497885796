"""What the tracer says of a mistake that Triton's compiler finds: in a function that another one calls, and where its
exception says nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.tracer import compiler_stderr

ADD = Path(__file__).parents[2] / "kernels" / "add.py"
STORE = "tl.store("
HELPER = """
@triton.jit
def _deeper(x):
    return x.{mistake}


@triton.jit
def _helper(x):
    return _deeper(x)


"""
MISTAKES = {  # what a helper does -> a word of what is wrong
    "no_such_method()": "no_such_method",
    "to(tl.float32, 1, 2, 3, 4, 5)": "multiple values",
    "reshape(3)": "power of 2",
}


def failing(folder: Path, mistake: str) -> str:
    """The message of a kernel whose helper's helper makes a mistake."""
    subject = target.read(ADD)
    builder = Builder(subject, devices.find("h200"), box.choose(), ContentStore(folder))
    helper = HELPER.format(mistake=mistake)
    source = subject.source.replace("@triton.autotune", f"{helper}@triton.autotune", 1)
    source = source.replace("tl.load(x_ptr + at, mask=inside)", "_helper(tl.load(x_ptr + at, mask=inside))", 1)
    assert helper in source and "_helper(tl.load" in source
    (failure, *_) = builder.build(source, {"CASES": None}, 1).failures
    return failure.message


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_innermost_line_and_what_is_wrong_there_are_told_with_the_calls(tmp_path: Path, mistake: str) -> None:
    message = failing(tmp_path, mistake)
    first, *shown = message.splitlines()
    assert first.startswith("CompilationError: at ") and first.count(", called at ") >= 2
    assert f"return x.{mistake}" in message
    assert MISTAKES[mistake] in shown[-1] and "^" in message


GEMM = Path(__file__).parents[3] / "kernels" / "gemm.py"
LARGE = '{"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 8}, num_warps=8, num_stages=4'


def test_a_kernel_that_asks_for_too_much_shared_memory_is_told_of_its_buffers(tmp_path: Path) -> None:
    subject = target.read(GEMM)
    builder = Builder(subject, devices.find("h200"), box.choose(), ContentStore(tmp_path))
    source = f"{subject.source}\n_gemm.configs[:] = [triton.Config({LARGE})]\n"
    (failure,) = builder.build(source, {"CASES": ["8k"]}, 1).failures
    assert "out of shared memory: " in failure.message and "the device has 232448; " in failure.message
    assert "4x128x256xf16 (262144 B), 4x128x128xf16 (131072 B)" in failure.message, failure.message


SPECIALIZED = Path(__file__).parents[3] / "evals" / "corpus" / "targets" / "attention_specialized.py"
MLIR = """\
"k.py":57:4: error: 'ttg.local_load' op result must be a tensor
"k.py":57:4: note: see current operation: %0 = "ttg.local_load"()
loc("k.py":60:8): error: Operand 0 has an invalid layout
error: a third
"""


def test_what_mlir_prints_of_a_layout_is_told_beside_an_assertion_without_words(tmp_path: Path) -> None:
    subject = target.read(SPECIALIZED)
    builder = Builder(subject, devices.find("h200"), box.choose(), ContentStore(tmp_path))
    source = subject.source.replace("N=N, num_warps=4)", "N=N, num_warps=8)")
    assert source != subject.source
    (failure, *_) = builder.build(source, {"CASES": ["d128-4k"]}, 1).failures
    assert "AssertionError at `assert reduce_op.verify()`" in failure.message
    assert "has an invalid layout" in failure.message


def test_the_first_errors_that_a_compiler_printed_are_quoted_with_their_lines() -> None:
    first, second = "'ttg.local_load' op result must be a tensor", "Operand 0 has an invalid layout"
    assert compiler_stderr.errors(MLIR) == f"{first} (line 57 of the file); {second} (line 60 of the file)"
    assert compiler_stderr.errors("error: " + "x" * 9000) == "x" * compiler_stderr.LONGEST
    assert compiler_stderr.errors("no errors here\nnothing: error-free") == ""


def test_what_is_caught_is_passed_on_and_standard_error_is_as_before() -> None:
    code = (
        "import os\n"
        "from pgo_agent.sandbox.tracer import compiler_stderr\n"
        "with compiler_stderr.caught() as printed:\n"
        "    os.write(2, b'error: inside\\n')\n"
        "    told = printed()\n"
        "os.write(2, b'behind ' + told.encode())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "error: inside\nbehind inside"
