"""Whether two files hold the same statements."""

import pytest
from pgo_agent.agent.evaluation import given_file

from tests.agent.command_line import ADD

READING = "import inspect\n\n\ndef kernel(x, y):\n    return x if 'twice' in inspect.getsource(kernel) else y\n"


def test_comments_and_layout_mean_nothing_in_code_that_cannot_read_itself() -> None:
    assert given_file.same(ADD, f"# twice\n\n{ADD}")
    assert not given_file.same(ADD, ADD.replace("x + y", "x - y"))


@pytest.mark.parametrize(
    "kernel",
    [
        READING,
        "def kernel(x, y):\n    return x if 'twice' in open(__file__).read() else y\n",
        "from sys import _getframe\n\n\ndef kernel(x, y):\n    return x if _getframe().f_lineno > 9 else y\n",
        "def kernel(x, y):\n    return x if _add.raw_src else y\n",
    ],
)
def test_they_may_mean_something_in_code_that_reads_itself(kernel: str) -> None:
    assert given_file.same(kernel, kernel)
    assert not given_file.same(kernel, f"# twice\n\n{kernel}")
