"""What the tracer leaves unloaded because it takes long, and that a launcher that asks for it gets all of it."""

import pytest

from tests.sandbox.tracing import Traced, trace

SNIPPET = """
import contextlib
import sys


def plain(x):
    assert "torch._dynamo.symbolic_convert" not in sys.modules, "all of dynamo was imported"
    return _zeros_and_copy(x)


def failing(x):
    with contextlib.suppress(RuntimeError):
        x + torch.zeros(3, device=x.device)
    return plain(x)


def of_numbers(x):
    torch.tensor([1.0, 2.0])
    return plain(x)


def asking(x):
    import torch._dynamo.testing

    assert torch._dynamo.testing is sys.modules["torch._dynamo.testing"]
    from torch._dynamo.decorators import disable

    assert disable is torch._dynamo.disable and torch._dynamo is sys.modules["torch._dynamo"]
    assert torch._dynamo.config is sys.modules["torch._dynamo.config"] and not torch._dynamo.is_compiling()
    return _zeros_and_copy(x)


def _zeros_and_copy(x):
    y = torch.zeros_like(x)
    _copy[(4,)](x, y, 4096, BLOCK=1024)
    return y
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return trace(tmp_path_factory.mktemp("imports"), SNIPPET)


def test_a_launcher_is_traced_without_torchs_compiler(traced: Traced) -> None:
    assert [s.get("op", "launch") for s in traced.steps("plain")] == ["aten.zeros_like.default", "launch"]


def test_sizes_that_do_not_fit_are_told_without_it_too(traced: Traced) -> None:
    assert [s.get("op", "launch") for s in traced.steps("failing")[-2:]] == ["aten.zeros_like.default", "launch"]


def test_a_tensor_of_written_numbers_is_made_without_it_too(traced: Traced) -> None:
    assert [s.get("op", "launch") for s in traced.steps("of_numbers")[-2:]] == ["aten.zeros_like.default", "launch"]


def test_a_launcher_that_asks_torchs_compiler_something_gets_its_answer_and_the_same_plan(traced: Traced) -> None:
    assert traced.steps("asking") == traced.steps("plain")
