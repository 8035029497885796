"""Which libraries of a target the last session times. On CPU tensors: nothing is timed here."""

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
    vars(module).update(inputs=inputs, LIBRARIES=functions)
    unused: Any = None
    return TargetSession(module, {CASE: {"n": 8}}, torch.device("cpu"), unused, unused, unused)


def not_installed(x: torch.Tensor) -> Any:
    return importlib.import_module("a_library_that_nobody_has_installed").relu(x)


def refuses_the_case(x: torch.Tensor) -> Any:
    raise ValueError(f"rows of {len(x)} are not supported")


def test_a_library_that_is_not_installed_or_refuses_a_case_is_left_out_and_the_others_are_timed() -> None:
    bench = session(torch=torch.relu, missing=not_installed, refusing=refuses_the_case)
    assert last_session.libraries(bench, CASE) == {"torch": torch.relu}
