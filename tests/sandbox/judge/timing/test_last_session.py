"""Which libraries the last session times, and what is said of them. On CPU tensors: nothing is timed here."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox.judge.results.checks import TargetSession
from pgo_agent.sandbox.judge.timing import last_session

CASE = "CASES/one"


def session(**functions: Callable[[Any], Any]) -> TargetSession:
    """A session of a target with these libraries."""

    def inputs(case: dict[str, int], generator: torch.Generator) -> dict[str, Any]:
        return {"x": torch.randn(case["n"], generator=generator)}

    module = ModuleType("target")
    vars(module).update(inputs=inputs, LIBRARIES=functions, reference=torch.relu)
    unused: Any = None
    bench = TargetSession(module, {CASE: {"n": 8}}, torch.device("cpu"), unused, lambda *_: None, unused)
    bench.new_seeds()
    return bench


def not_installed(x: torch.Tensor) -> Any:
    return importlib.import_module("a_library_that_nobody_has_installed").relu(x)


def refuses_the_case(x: torch.Tensor) -> Any:
    raise ValueError(f"rows of {len(x)} are not supported")


def test_a_library_that_is_not_installed_or_refuses_a_case_is_left_out_and_says_why() -> None:
    taken, said = last_session.libraries(
        session(torch=torch.relu, missing=not_installed, refusing=refuses_the_case), CASE
    )
    assert taken == {"torch": torch.relu}
    assert said == {
        "missing": "not timed: ModuleNotFoundError: No module named 'a_library_that_nobody_has_installed'",
        "refusing": "not timed: ValueError: rows of 8 are not supported",
    }


def test_a_library_that_computes_something_else_is_timed_and_it_is_said() -> None:
    bench = session(gelu=torch.nn.functional.gelu, pair=lambda x: (x, x), nothing=lambda x: None)
    taken, said = last_session.libraries(bench, CASE)
    assert list(taken) == ["gelu", "pair", "nothing"]
    assert "outputs of type NoneType, and no tensors" in said["nothing"]
    assert said["gelu"].startswith("its results would not be accepted: output 0: max error")
    assert "outputs are" in said["pair"]
