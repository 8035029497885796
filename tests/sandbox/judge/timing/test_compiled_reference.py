"""`torch.compile` of a reference, as the last session gets it. On the CPU it compiles and computes; nothing is timed.

Not covered: times, which need a GPU (`tests/gpu/test_compiled_reference_on_gpu.py`).
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pgo_agent.sandbox.judge.results.checks import TargetSession
from pgo_agent.sandbox.judge.timing import compiled_reference

CASES = {"CASES/small": {"n": 64}, "CASES/large": {"n": 96}}
pytestmark = pytest.mark.slow  # Inductor calls a C++ compiler


def normal(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def wrong_when_compiled(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.compiler.is_compiling() else x * 2


@torch.compiler.disable
def _eager(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def never_compiled(x: torch.Tensor) -> torch.Tensor:
    return _eager(x)


def session(reference: Callable[..., Any]) -> tuple[TargetSession, list[str]]:
    """A session of a target with this reference, and the steps that it announces."""

    def inputs(case: dict[str, int], generator: torch.Generator) -> dict[str, Any]:
        return {"x": torch.randn(case["n"], case["n"], generator=generator).to(torch.bfloat16)}

    module, steps = ModuleType("target"), list[str]()
    vars(module).update(reference=reference, inputs=inputs)
    unused: Any = None
    bench = TargetSession(module, CASES, torch.device("cpu"), unused, lambda step, _: steps.append(step), unused)
    bench.new_seeds()
    return bench, steps


@pytest.fixture(scope="module", autouse=True)
def _compiling() -> Iterator[None]:
    with compiled_reference.compiling():
        yield


def test_each_case_is_compiled_for_its_shapes_from_inputs_in_their_own_precision() -> None:
    bench, steps = session(normal)
    for case, sizes in CASES.items():
        function, why = compiled_reference.of(bench, case)
        assert function is not None, why
        x = bench.inputs(case, 7)["x"]
        torch.testing.assert_close(function(x), normal(x))
        assert x.dtype == torch.bfloat16 and len(x) == sizes["n"]
    assert steps == [f"{step} {case}" for case in CASES for step in ("reference", compiled_reference.STEP)]


def test_what_is_wrong_is_not_timed() -> None:
    function, why = compiled_reference.of(session(wrong_when_compiled)[0], "CASES/small")
    assert function is None and why.startswith("its results are not right: output 0")


def test_a_machine_without_a_compiler_is_a_note_in_one_line() -> None:
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("no-such-compiler",)}):
        function, why = compiled_reference.of(session(normal)[0], "CASES/small")
    assert function is None and "no-such-compiler" in why and "\n" not in why


def test_what_runs_without_being_compiled_does_not_count_as_compiled() -> None:
    function, why = compiled_reference.of(session(never_compiled)[0], "CASES/small")
    assert function is None and "nothing in it to compile" in why


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def test_what_is_compiled_lies_in_a_folder_of_its_own_and_no_process_is_left() -> None:
    folders = {name: Path(os.environ[name]) for name in compiled_reference.CACHES}
    before = children()  # of other tests
    compiled_reference.of(session(normal)[0], "CASES/small")
    compiled = folders["TORCHINDUCTOR_CACHE_DIR"]
    assert list(compiled.rglob("*.so")) and compiled.parent.stat().st_mode & 0o077 == 0
    assert children() <= before
