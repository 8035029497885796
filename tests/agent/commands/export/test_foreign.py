"""What `export` writes is loaded and run by the packages whose forms they are. `make field` installs these."""

import json
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from pgo_agent.agent.commands.export import command

from tests.agent.commands.export.exported import RUN, add_run, fresh
from tests.agent.commands.problems.test_definition import RMS, SOLUTION, workload

pytestmark = pytest.mark.slow
ADDS = """
x, y = torch.randn(1000), torch.randn(1000)
print(torch.equal(kernel(x, y), x + y))
"""
DEFINITION = {
    "name": "add",
    "op_type": "elementwise",
    "axes": {"n": {"type": "var"}},
    "inputs": {n: {"shape": ["n"], "dtype": "float32"} for n in "xy"},
    "outputs": {"z": {"shape": ["n"], "dtype": "float32"}},
    "reference": "def run(x, y):\n    return x + y\n",
}


def needs(package: str) -> None:
    if package not in packages_distributions():  # our own folder kernels/ is no package
        pytest.skip(f"{package} is not installed: `make field` installs it")


def test_kernels_of_hugging_face_loads_the_folder(tmp_path: Path) -> None:
    needs("kernels")
    command.write(add_run(tmp_path), RUN, "hf-kernels", tmp_path / "to")
    program = """
from pathlib import Path
from kernels import get_local_kernel
from kernels._rust import Build

print(Build.open("to").general)
kernel = get_local_kernel(Path("to/build/torch-cuda").resolve()).kernel
"""
    general, same = fresh(program + ADDS, tmp_path).splitlines()
    assert "Cuda" in general and same == "True"


def test_flashinfer_bench_builds_and_runs_the_solution(tmp_path: Path) -> None:
    needs("flashinfer_bench")
    command.write(add_run(tmp_path), RUN, "flashinfer", tmp_path / "to")
    (tmp_path / "definition.json").write_text(json.dumps(DEFINITION))
    program = """
import os
from pathlib import Path
os.environ["FIB_CACHE_PATH"] = str(Path("cache").resolve())
from flashinfer_bench.compile.builders.triton_builder import TritonBuilder
from flashinfer_bench.data import Definition, Solution

definition = Definition.model_validate_json(Path("definition.json").read_text())
solution = Solution.model_validate_json(Path("to/solution.json").read_text())
assert TritonBuilder().can_build(solution) and solution.definition == definition.name
kernel = TritonBuilder().build(definition, solution)
"""
    assert fresh(program + ADDS, tmp_path) == "True"


def test_flashinfer_bench_reads_what_our_tests_call_its_forms(tmp_path: Path) -> None:
    needs("flashinfer_bench")
    (tmp_path / "all.json").write_text(json.dumps([RMS, workload(16), SOLUTION]))
    program = """
import json
from flashinfer_bench.data import Definition, Solution, Trace

definition, workload, solution = json.load(open("all.json"))
print(Definition(**definition).name, Trace(**workload).is_workload_trace(), Solution(**solution).definition)
"""
    assert fresh(program, tmp_path) == "rmsnorm_h64 True rmsnorm_h64"
