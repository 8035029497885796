"""What the tracer says of a mistake that Triton's compiler finds in a function that another one calls."""

from pathlib import Path

import pytest
from pgo_agent.sandbox import box, devices, target
from pgo_agent.sandbox.build import Builder
from pgo_agent.sandbox.bundle.shelf import Shelf

ADD = Path(__file__).parents[1] / "kernels" / "add.py"
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
    builder = Builder(subject, devices.find("h200"), box.choose(), Shelf(folder))
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
