"""The newest Triton that is supported, in an environment of its own: every shipped kernel traces and compiles there.

`make test-triton-3.9` makes that environment and runs these. Compiled, never measured: no GPU has run this code.
"""

import os
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.questions import Check
from pgo_agent.sandbox.profile.timeline import instrumented_build

ROOT = Path(__file__).parents[2]
KERNELS = sorted(p for p in (ROOT / "kernels").glob("[!_]*.py") if not p.stem.endswith(".target"))
SETS = ("CASES", "SMALL", "HELD_OUT")
GIVEN = "TRITON_39_PYTHON"  # names the interpreter; then its absence is a failure
CONFIGURATIONS = 2  # of each case
pytestmark = [pytest.mark.triton39, pytest.mark.slow]
every_kernel = pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)


@pytest.fixture(scope="module")
def python() -> str:
    path = Path(os.environ.get(GIVEN) or ROOT / ".venv-triton-3.9" / "bin" / "python").absolute()
    if not path.exists() and not os.environ.get(GIVEN):
        pytest.skip(f"no interpreter with Triton 3.9: `make test-triton-3.9` makes one, {GIVEN} names another")
    assert triton_version(str(path)).startswith("3.9."), path
    return str(path)


@every_kernel
def test_every_case_of_a_kernel_traces_and_compiles(path: Path, python: str, tmp_path: Path) -> None:
    found, contents = target.read(path), ContentStore(tmp_path)
    builder = Builder(found, devices.find("h200"), box.choose("auto", python), contents)
    built = builder.build(found.source, dict.fromkeys(SETS), CONFIGURATIONS)
    assert built.ok and not built.failures, built.failures
    sets = built.described["sets"]
    assert set(built.choices) == {f"{s}/{n}" for s in SETS for n in sets[s]}
    assert {k["triton"] for k in contents.manifest(built.bundle)["kernels"].values()} == {triton_version(python)}
    assert all(s["registers"] and s["sass"]["all"] for s in built.statics.values())


@every_kernel
def test_a_kernel_that_records_its_parts_compiles(path: Path, python: str, tmp_path: Path) -> None:
    found, contents = target.read(path), ContentStore(tmp_path)
    builder = Builder(found, devices.find("h200"), box.choose("auto", python), contents)
    built = builder.build(found.source, {"CASES": None}, 1)
    case, (choice, *_) = next(iter(built.choices.items()))
    for kernel in choice.kernels:
        made, refused = instrumented_build.build(
            builder, instrumented_build.KernelRef(built.bundle, case, choice.label, kernel)
        )
        assert made and not refused
        assert all(set(t.numbers.values()) == set(t.plan.scopes.scopes) for t in made)


@every_kernel
def test_a_kernel_is_right_on_its_small_cases_in_its_interpreter(path: Path, python: str) -> None:
    judge = GpuJudge(target.read(path), python, gpu=None)
    try:
        found = judge.verdict(Check(source=judge.target.source))
    finally:
        judge.close()
    assert found.verdict == Verdict.CHECKED, found.reason
