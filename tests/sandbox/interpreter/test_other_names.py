"""Functions of Triton's language that a kernel's module holds under names of its own."""

from pathlib import Path

from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.questions import Check

from tests.judges import judge_of

ADD = Path(__file__).parents[2] / "kernels" / "add.py"
IMPORT = "import triton.language as tl\n"


def test_a_kernel_that_calls_a_function_of_triton_by_a_name_of_its_module_is_interpreted() -> None:
    judge = judge_of(ADD)
    source = judge.target.source
    other = source.replace("tl.load(", "read(").replace(IMPORT, f"{IMPORT}read = tl.load\n", 1)
    assert "read = tl.load" in other and "read(x_ptr" in other
    assert judge.verdict(Check(other)).verdict == Verdict.CHECKED
