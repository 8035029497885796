"""Whether two files hold the same statements, and which of a given file's configurations were measured."""

import pytest
from pgo_agent.agent.evaluation import given_file
from pgo_agent.agent.run.record.baseline import BaselinePoint, TimeSource

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


def point(ms: float, **config: int) -> BaselinePoint:
    named = {k.replace("__", "."): v for k, v in config.items()}
    how = {"case": "CASES/a", "bundle": "", "choice": "", "said": "", "plan_id": "", "codes": ()}
    return BaselinePoint(ms=ms, how=TimeSource.MEASURED, config=named, **how)


def test_a_configuration_was_measured_where_what_it_varies_was() -> None:
    """The baseline measured while the other launch stood at the first of its list, and not at its best."""
    points = [
        point(3.0, _one__B=32, _two__B=32),
        point(2.0, _one__B=64, _two__B=32),
        point(1.0, _one__B=32, _two__B=64),
    ]
    base = {"_one.B": 64, "_two.B": 64}
    found = given_file.measured_as(points, {"_one.B": 64, "_two.B": 32}, base)
    assert found == points[1]  # of two that have it the faster one
    assert given_file.measured_as(points, {"_one.B": 128, "_two.B": 64}, base) is None
    assert given_file.measured_as(points, base, base) is None
