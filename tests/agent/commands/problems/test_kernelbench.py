"""`pgo-agent init PROBLEM`: a model in KernelBench's form becomes a target without an edit; PyTorch is what to beat."""

from pathlib import Path

import pytest
from pgo_agent.agent.commands.problems import kernelbench
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo

PROBLEM = """
import torch
import torch.nn as nn

FACTOR = 2.0


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return torch.relu(self.drop(self.norm(self.linear(x)))) * FACTOR


batch_size = 128
features = 64
hidden = 2 * features


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features, hidden]


if __name__ == "__main__":
    print(Model(*get_init_inputs())(*get_inputs()))
"""
NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return [512]
"""


def sizes_of(file: Path) -> dict[str, dict[str, dict[str, int]]]:
    """The cases of a target by their set."""
    scope: dict[str, dict[str, dict[str, int]]] = {}
    lines = file.read_text().split("\n")
    for name in ("CASES", "SMALL", "HELD_OUT"):
        first = lines.index(f"{name} = {{")
        exec("\n".join(lines[first : lines.index("}", first) + 1]), scope)
    return {name: scope[name] for name in ("CASES", "SMALL", "HELD_OUT")}


def test_a_size_is_a_number_that_inputs_are_made_of() -> None:
    problem = kernelbench.read(PROBLEM)
    assert problem.sizes == {"batch_size": 128, "features": 64}  # hidden follows features
    assert problem.given.sizes == ("batch_size", "features") and problem.init.sizes == ("features",)
    assert "hidden = 2 * features" in problem.init.text and "FACTOR = 2.0" in problem.model
    assert "__main__" not in problem.text


def test_equal_numbers_without_a_name_are_one_size() -> None:
    problem = kernelbench.read(NORM)
    assert problem.sizes == {"size_256": 256, "size_512": 512}
    assert problem.given.text.startswith("def get_inputs(size_256, size_512):")
    assert problem.init.text.startswith("def get_init_inputs(size_512):")


def test_a_number_that_the_model_itself_reads_is_no_size() -> None:
    text = PROBLEM.replace("* FACTOR", "* FACTOR / features")
    assert kernelbench.read(text).sizes == {"batch_size": 128}


def test_a_name_that_a_target_defines_is_refused() -> None:
    with pytest.raises(UsageFault, match="what a target defines: flops"):
        kernelbench.read(PROBLEM.replace("FACTOR", "flops"))


def test_a_problem_becomes_a_target_without_an_edit(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    written = pgo("init", "problem.py", cwd=tmp_path)
    assert written.code == 0, written.err
    assert "dropout is off" in written.out and "batch norm uses the statistics of the batch" in written.out
    cases = sizes_of(tmp_path / "problem_target.py")
    assert cases["CASES"] == {"given": {"batch_size": 128, "features": 64}}
    assert {"batch_size": 5, "features": 33} in cases["SMALL"].values()
    checked = pgo("init", "--check", "problem_target.py", cwd=tmp_path)
    assert checked.code == 0, checked.out + checked.err
    assert "problem_target.py is right, and no other code than the target has" in checked.out


@pytest.mark.slow
def test_pytorchs_compiler_proposes_a_kernel_that_is_checked(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    assert pgo("init", "norm.py", cwd=tmp_path).code == 0
    run = pgo("optimize", "norm_target.py", "--candidates", "1", cwd=tmp_path)
    assert run.code == 0, run.out + run.err
    assert "checked     PyTorch's compiler" in run.err
    profile = pgo("profile", "norm_target.py", cwd=tmp_path)
    assert profile.code == 0 and "torch operators alone" in profile.out


def test_a_table_that_is_read_in_part_is_not_counted_whole(tmp_path: Path) -> None:
    text = NORM.replace("nn.LayerNorm(shape)", "nn.Embedding(shape, 64)").replace(
        "torch.rand(256, 512)", "torch.randint(0, 512, (256,))"
    )
    (tmp_path / "table.py").write_text(text)
    assert pgo("init", "table.py", cwd=tmp_path).code == 0
    assert "What is read of the inputs depends on what they hold." in (tmp_path / "table_target.py").read_text()


def test_a_model_that_does_not_run_is_refused_with_what_it_raised(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM.replace("return [512]", "return [511]"))
    refused = pgo("init", "norm.py", cwd=tmp_path)
    assert refused.code == 2 and "the model does not run: RuntimeError" in refused.err
    assert not (tmp_path / "norm_target.py").exists()


REFUSED = {
    "attention as one kernel of a GPU": (
        "torch.nn.functional.scaled_dot_product_attention(x, x, x)",
        "scaled_dot_product",
    ),
    "random numbers": ("x + torch.randn_like(x)", "it calls aten.randn_like.default"),
}


@pytest.mark.parametrize(("result", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_model_that_no_plan_may_hold_is_refused_at_once(tmp_path: Path, result: str, why: str) -> None:
    (tmp_path / "norm.py").write_text(NORM.replace("self.norm(x)", result))
    refused = pgo("init", "norm.py", cwd=tmp_path)
    assert refused.code == 2 and f"no plan can hold what the model does: {why}" in refused.err
    assert not (tmp_path / "norm_target.py").exists()


def test_a_problem_is_no_target_and_says_how_it_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    refused = pgo("optimize", "norm.py", cwd=tmp_path)
    assert refused.code == 2 and "pgo-agent init norm.py" in refused.err


def test_the_target_reads_as_one(tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    assert pgo("init", "norm.py", "-o", "made.py", cwd=tmp_path).code == 0
    assert target.read(tmp_path / "made.py").in_place == ()
    again = pgo("init", "norm.py", "-o", "made.py", cwd=tmp_path)
    assert again.code == 2 and "is there already" in again.err
