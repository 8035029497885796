"""`pgo-agent init DEFINITION.json`: a definition of flashinfer-bench becomes a target, its workloads cases."""

import json
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.commands.export import forms
from pgo_agent.agent.commands.problems import definition, definition_target
from pgo_agent.agent.llm.replies.merge_contract import merge
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo

REFERENCE = """import torch


@torch.no_grad()
def run(hidden_states, weight, eps):
    x = hidden_states.to(torch.float32)
    scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)
    return ((x * scale) * weight.to(torch.float32)).to(hidden_states.dtype)
"""
RMS: dict[str, Any] = {
    "name": "rmsnorm_h64",
    "op_type": "rmsnorm",
    "axes": {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 64}},
    "inputs": {
        "hidden_states": {"shape": ["batch_size", "hidden_size"], "dtype": "float16"},
        "weight": {"shape": ["hidden_size"], "dtype": "float16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"output": {"shape": ["batch_size", "hidden_size"], "dtype": "float16"}},
    "reference": REFERENCE,
}
KERNEL = """import triton
import triton.language as tl


@triton.jit
def _rms(x, w, z, eps, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / columns + eps)
    result = value * scale * tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(z + row * columns + at, result, mask=inside)


def run(hidden_states, weight, eps, output):
    rows, columns = hidden_states.shape
    _rms[(rows,)](hidden_states, weight, output, eps, columns, BLOCK=triton.next_power_of_2(columns))
"""
SOLUTION = {
    "name": "rms_triton",
    "definition": "rmsnorm_h64",
    "author": "somebody",
    "spec": {"language": "triton", "target_hardware": ["cuda"], "entry_point": "main.py::run"},
    "sources": [{"path": "main.py", "content": KERNEL}],
}


def workload(rows: int, **inputs: Any) -> dict[str, Any]:
    given = {"hidden_states": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}} | inputs
    return {
        "definition": "rmsnorm_h64",
        "workload": {"axes": {"batch_size": rows}, "inputs": given, "uuid": f"w{rows}"},
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "rms.json").write_text(json.dumps(RMS))
    (tmp_path / "w.jsonl").write_text("\n".join(json.dumps(workload(rows)) for rows in (16, 4096)))
    (tmp_path / "s.json").write_text(json.dumps(SOLUTION))
    return tmp_path


def read(folder: Path, **changes: Any) -> definition.Definition:
    (folder / "changed.json").write_text(json.dumps(RMS | changes))
    return definition.definition(folder / "changed.json")


@pytest.mark.long
def test_the_reference_is_the_kernel_where_there_is_no_solution(place: Path) -> None:
    done = pgo("init", "rms.json", "--workloads", "w.jsonl", cwd=place)
    assert done.code == 0 and "0 lines to write" in done.out, done.err
    text = (place / "rms_target.py").read_text()
    assert '"w16": dict(batch_size=16)' in text and '"w4096": dict(batch_size=4096)' in text and '"eps": 1e-06' in text
    assert "x = cast(hidden_states, torch.float32)" in text  # float64 stays
    checked = pgo("init", "--check", "rms_target.py", cwd=place)
    assert checked.code == 0, checked.out + checked.err


@pytest.mark.long
def test_a_solution_that_writes_into_its_results_is_the_kernel(place: Path) -> None:
    assert pgo("init", "rms.json", "--workloads", "w.jsonl", "--solution", "s.json", cwd=place).code == 0
    text = (place / "rms_target.py").read_text()
    assert "output = torch.empty((batch_size, hidden_size), dtype=torch.float16, device=hidden_states.device)" in text
    checked = pgo("init", "--check", "rms_target.py", cwd=place)
    assert checked.code == 0 and "1 kernel" in checked.out, checked.out + checked.err


def test_what_only_a_file_holds_is_left_to_write(place: Path) -> None:
    of = RMS | {"inputs": RMS["inputs"] | {"places": {"shape": ["batch_size"], "dtype": "int32"}}}
    (place / "rms.json").write_text(json.dumps(of | {"reference": REFERENCE.replace("eps)", "eps, places)")}))
    kept = {"type": "safetensors", "path": "x.safetensors", "tensor_key": "places"}
    (place / "w.jsonl").write_text(json.dumps(workload(16, places=kept)))
    done = pgo("init", "rms.json", "--workloads", "w.jsonl", cwd=place)
    assert done.code == 0 and "1 lines to write" in done.out and "keep in a file" in done.out


def test_a_reference_that_asks_for_values_needs_a_solution(place: Path) -> None:
    (place / "rms.json").write_text(
        json.dumps(RMS | {"reference": REFERENCE.replace("+ eps)", "+ eps * weight[0].item())")})
    )
    refused = pgo("init", "rms.json", "--workloads", "w.jsonl", cwd=place)
    assert refused.code == 2 and "no plan can hold the reference" in refused.err and "--solution" in refused.err
    assert not (place / "rms_target.py").exists()


def test_an_axis_that_a_constraint_ties_follows_it(tmp_path: Path) -> None:
    axes = RMS["axes"] | {"length": {"type": "var"}}
    of = read(tmp_path, axes=axes, constraints=["length == batch_size * 2 + 1", "batch_size > 0"])
    assert definition_target.sized(of, (4, 8)) == {"batch_size": 4, "length": 9}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "an axis that is not there": ({"axes": {"batch_size": {"type": "var"}}}, "hidden_size is an axis that it does not"),
    "a type that no plan has": (
        {"outputs": {"z": {"shape": ["batch_size"], "dtype": "float4_e2m1"}}},
        "float4_e2m1 is",
    ),
    "a name that is none": ({"inputs": {"a b": {"shape": None, "dtype": "float32"}}}, "a b is no name"),
    "no shape": ({"inputs": {"a": {"dtype": "float32"}}}, "is no definition: KeyError: 'shape'"),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_it_refuses(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageFault, match=message):
        read(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"definition": "other"}, "is a solution of other"),
        ({"spec": SOLUTION["spec"] | {"language": "cuda"}}, "is written in cuda"),  # type: ignore[operator]
        ({"sources": [*SOLUTION["sources"], {"path": "b.py", "content": "x"}]}, "has 2 files"),  # type: ignore[misc]
        ({"sources": []}, "is no solution"),
    ],
)
def test_a_solution_that_is_no_file_in_triton_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SOLUTION | changes))
    with pytest.raises(UsageFault, match=message):
        definition.solution(tmp_path / "s.json", read(tmp_path))


def test_the_export_of_its_candidate_names_the_definition(place: Path) -> None:
    of = definition.definition(place / "rms.json")
    text = definition_target.text(of, definition.workloads(place / "w.jsonl", of), None, Path("rms.json"))
    assert forms.DEFINITION.findall(text) == ["rmsnorm_h64"]
    replaced = merge(text, KERNEL.replace("def run(", "def kernel("))
    assert forms.DEFINITION.findall(replaced) == ["rmsnorm_h64"]  # whatever a candidate leaves of the kernel part
    assert target.of_texts(Path("t.py"), text, Path("t.py"), text).name == "t"
