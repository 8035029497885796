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
        ("tl.store(x, n)", "tl.store(x, n + 1)", {"made", "_inner"}),
        ("import triton\n", "import triton\nimport other\n", set()),
        ("def kernel(x):", "print('begins')\n\n\ndef kernel(x):", None),  # a statement that may do anything
        ("OWN = [", "LOG2E = 1.0\nOWN = [", {"_scaled", "_one", "kernel"}),
        ("import triton\n", "import triton\nimport triton\n", {"_scaled", "_one", "_two", "made", "_inner", "kernel"}),
        ("def kernel(x):", "def kernel(x:", None),  # no Python
    ],
)
def test_a_kernel_changes_with_anything_that_it_mentions(old: str, new: str, changed: set[str] | None) -> None:
    assert FILE.count(old) == 1
    assert changed_kernels(FILE, FILE.replace(old, new)) == changed
