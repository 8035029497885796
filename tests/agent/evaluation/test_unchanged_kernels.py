"""Which kernels of a file are said to be as they were."""

import pytest
from pgo_agent.agent.evaluation.unchanged_kernels import unchanged_kernels

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


def kernel(x):
    _one[(1,)](x, x, 1)
    _two[(1,)](x, x, 1)
    return x
"""


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("+ 1)", "+ 1)  # as before", {"_scaled", "_one", "_two"}),
        ("+ 1)", "+ 2)", {"_scaled", "_one"}),
        ("return x * LOG2E", "return LOG2E * x", {"_two"}),
        ("= 1.44", "= 1.45", {"_two"}),
        ("(128,)", "(32,)", {"_scaled", "_one"}),
        ("configs=OWN", "configs=OWN[:1]", {"_scaled", "_one"}),
        ("_two[(1,)]", "_two[(2,)]", {"_scaled", "_one", "_two"}),
        ("def kernel(x):", "print('begins')\n\n\ndef kernel(x):", set()),
        ("OWN = [", "LOG2E = 1.0\nOWN = [", set()),  # which of the two a kernel sees is not said
        ("def kernel(x):", "def kernel(x:", set()),  # no Python
    ],
)
def test_a_kernel_is_as_it_was_where_all_that_it_mentions_is(old: str, new: str, kept: set[str]) -> None:
    assert FILE.count(old) == 1
    assert unchanged_kernels(FILE, FILE.replace(old, new)) == kept
