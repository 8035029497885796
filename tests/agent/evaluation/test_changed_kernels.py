"""Which kernels of a file are said to have changed."""

import pytest
from pgo_agent.agent.evaluation.changed_kernels import changed_kernels

FILE = """
import triton
import triton.language as tl

SHARED = [triton.Config({"BLOCK": b}) for b in (64, 256)]
OWN = [triton.Config({"BLOCK": b}) for b in (128,)]
LOG2E: tl.constexpr = 1.44


@triton.jit
def _scaled(x):
    return x * LOG2E


@triton.autotune(configs=SHARED, key=["n"])
@triton.jit
def _one(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, _scaled(tl.load(x)))


@triton.autotune(configs=OWN, key=["n"])
@triton.jit
def _two(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x) + 1)


def made(n):
    @triton.jit
    def _inner(x):
        tl.store(x, n)

    return _inner


@triton.jit
def _gelu(x):
    return x


@triton.jit
def _plain(x, ACT: tl.constexpr):
    tl.store(x, ACT(tl.load(x)))


_tuned = triton.autotune(configs=[triton.Config({}, num_warps=4)], key=[])(_plain)
_made = made(64)
for b in (1, 2):
    SHARED.append(triton.Config({"BLOCK": b}))


def act(x):
    _tuned[(1,)](x, ACT=_gelu)
    _made[(1,)](x)


def kernel(x):
    _one[(1,)](x, x, 1)
    _two[(1,)](x, x, 1)
    return x
"""


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("+ 1)", "+ 1)  # as before", set()),
        ("+ 1)", "+ 2)", {"_two", "kernel"}),
        ("return x * LOG2E", "return LOG2E * x", {"_scaled", "_one", "kernel"}),
        ("= 1.44", "= 1.45", {"_scaled", "_one", "kernel"}),
        ("(128,)", "(32,)", {"_two", "kernel"}),
        ("configs=OWN", "configs=OWN[:1]", {"_two", "kernel"}),
        ("_two[(1,)]", "_two[(2,)]", {"kernel"}),
        ("num_warps=4)], key=[])(", "num_warps=8)], key=[])(", {"act", "_plain"}),  # its tuner stands beside it
        (
            "return x\n\n\n@triton.jit\ndef _plain",
            "return x + 1\n\n\n@triton.jit\ndef _plain",
            {"_gelu", "act", "_plain", "made", "_inner"},
        ),
        ("made(64)", "made(32)", {"made", "_inner", "act"}),
        ("import triton\n", "import triton\nimport other\n", set()),
        ("import triton\n", "import triton\nimport triton\n", None),
        ("def kernel(x):", "if __name__ == '__main__':\n    kernel(1)\n\n\ndef kernel(x):", set()),
        # what may bind any name, or change any value
        ("def kernel(x):", "print('begins')\n\n\ndef kernel(x):", None),
        ("import triton\n", "import triton\nfrom other import *\n", None),
        ("(64, 256)", "(64,)", None),
        ("def kernel(x):", "def kernel(x:", None),  # no Python
    ],
)
def test_a_kernel_changes_with_anything_that_it_mentions(old: str, new: str, changed: set[str] | None) -> None:
    assert FILE.count(old) == 1
    assert changed_kernels(FILE, FILE.replace(old, new)) == changed
