"""What a judge imports: all of torch.compile takes half as long as torch, and most judges compile nothing.

Each test looks at a process of its own, which has what any process has that is forked for a judge, and no less than one
that is begun anew.
"""

from tests.sandbox import forked_python

IDLE = """
import sys, torch
from types import SimpleNamespace
from pgo_agent.sandbox.judge.interpreted import cases
from pgo_agent.sandbox.judge.results.fp8_arithmetic import TensorCores

a = torch.ones(32, 32).to(torch.float8_e4m3fn).float()
with TensorCores() as cores:
    a @ a
module = SimpleNamespace(
    flops=lambda p: 1.0, bytes_moved=lambda p: 1.0, inputs=lambda p, g: {"x": torch.ones(p["n"])}
)
assert cases.large(module, {"n": (8,)}) == ""
assert "a tensor of" in cases.large(module, {"n": (1 << 30,)})
print("torch._dynamo" in sys.modules)
"""
COMPILING = """
import torch, torch._dynamo
from pgo_agent.sandbox.judge.results.fp8_arithmetic import TensorCores

frames = []
hook = torch._dynamo.convert_frame.register_bytecode_hook(lambda old, new: frames.append(old.co_name))


def reference(x):
    return x @ x + 1


compiled = torch.compile(reference, backend="eager")
x = torch.ones(8, 8)
with TensorCores():
    found = compiled(x)
assert torch.equal(found, reference(x))
print(*frames)
"""


def printed(code: str) -> str:
    done = forked_python.ran(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_judge_of_what_is_not_compiled_imports_no_compiler() -> None:
    assert printed(IDLE) == "False"


def test_a_compiled_reference_is_compiled_and_what_the_judge_does_beneath_it_is_not() -> None:
    assert "__torch_dispatch__" not in printed(COMPILING)
