"""`init FILE -- PROGRAM`: which function is the launcher, what it is given, and what a reference may call."""

import pytest
from pgo_agent.agent.commands.init.program_text import Made
from pgo_agent.sandbox import parsing

from tests.agent.command_line import pgo

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def _scaled(X, S, Y, n, stride, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row + i * stride, i < n, 0.0)
    tl.store(Y + row * n + i, x * tl.load(S + row), i < n)


def scaled(x, s):
    y = torch.empty(x.shape, device=x.device)
    _scaled[(x.shape[0],)](x, s, y, x.shape[1], x.stride(1), BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def careful(w, s):
    if not (s > 0).all():
        raise ValueError("scales are positive")
    return scaled(w.T, s)
"""
PROGRAM = """import torch
from scales import careful

w = torch.randn(300, 80, device="cuda") * 0.5
s = torch.rand(80, device="cuda") + 1
torch.testing.assert_close(careful(w, s), w.T * s[:, None])
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The target of a function that asks for values on the host before it calls another one."""
    folder = tmp_path_factory.mktemp("choice")
    (folder / "scales.py").write_text(KERNEL)
    (folder / "program.py").write_text(PROGRAM)
    done = pgo("init", "scales.py", "-o", "target.py", "--", "python", "program.py", cwd=folder)
    assert done.code == 0, done.out + done.err
    return (folder / "target.py").read_text()


def test_a_function_that_needs_values_on_the_host_is_no_launcher_where_another_one_is(target: str) -> None:
    assert "return scaled(x, s)" in target and "careful" not in target


def test_inputs_that_were_computed_are_found_with_their_axes_in_another_order(target: str) -> None:
    assert "* 0.5" in target and '"x": w.permute(1, 0),' in target


@pytest.mark.parametrize(
    ("value", "module", "mentioned"),
    [
        ("softmax(x)", "", True),
        ("kernels.softmax(x)", "import kernels\n", True),
        ("package.ops.softmax(x)", "import package.ops\n", True),
        ("torch.softmax(x, 1)", "import torch\n", False),
        ("x.softmax(1)", "import kernels\n", False),
    ],
)
def test_a_reference_that_calls_the_launcher_itself_is_none(value: str, module: str, mentioned: bool) -> None:
    assert Made((), (parsing.expression(value),), module).mentions("softmax") == mentioned
