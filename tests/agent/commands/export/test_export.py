"""`pgo-agent export`: what leaves runs without us, says where it is from and what is known of it, or does not leave."""

import json
from pathlib import Path

import pytest
import typer
from pgo_agent.agent.commands.export import command, standalone
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent.command_line import pgo
from tests.agent.commands.export.exported import NORM, RUN, add_run, apart, fresh, problem_run

ADDED = """
x, y = torch.randn(1000), torch.randn(1000)
print(torch.equal(kernel(x, y), x + y), [n for n in sys.modules if n.startswith("pgo_agent")])
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("problem")
    (folder / "norm.py").write_text(NORM)
    assert pgo("init", "norm.py", cwd=folder).code == 0
    problem_run(folder)
    return folder


def written(folder: Path, form: str = "module", **how: object) -> Path:
    """The folder that an export of a run of `add` wrote."""
    command.write(add_run(folder, **how), RUN, form, folder / "to")  # type: ignore[arg-type]
    return folder / "to"


@pytest.mark.long
def test_a_module_runs_in_a_fresh_python_without_us(tmp_path: Path) -> None:
    place = written(tmp_path)
    assert [p.name for p in place.iterdir()] == ["add.py"]
    assert fresh("from add import kernel" + ADDED, tmp_path, place) == "True []"


def test_it_holds_the_kernel_part_alone_and_says_what_is_known(tmp_path: Path) -> None:
    text = (written(tmp_path) / "add.py").read_text()
    assert "def kernel(x, y):" in text and "def reference" not in text and "HELD_OUT" not in text
    assert f"# Candidate c1 of run {RUN}: fewer warps." in text
    assert "# It was measured on no GPU: nobody knows whether it is faster." in text


def test_of_an_accepted_one_nothing_is_taken_back(tmp_path: Path) -> None:
    text = (written(tmp_path, verdict=Verdict.ACCEPTED) / "add.py").read_text()
    assert "# accepted at" in text and "measured on no GPU" not in text


def test_where_functions_came_from_stands_in_it_with_the_licence_of_their_package(tmp_path: Path) -> None:
    origin = f"# Taken from {typer.__file__}, sha256 {'0' * 64}"
    text = (written(tmp_path, edit=origin) / "add.py").read_text()
    assert f"# Taken from typer/__init__.py, sha256 {'0' * 64}. typer " in text
    head = text.partition("import")[0]
    assert "licence: MIT. Keep its notice." in head and str(Path(typer.__file__).parent.parent) not in head


def test_a_kernel_that_needs_another_module_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="the kernel needs numpy") as refused:
        written(tmp_path, edit="import numpy as np\n\nLEAST = np.float32(0)\n\n\nprint(LEAST)")
    assert "pgo-agent init FILE -- PROGRAM" in refused.value.hint
    assert not (tmp_path / "to").exists()


def test_what_only_the_contract_imports_is_left_out(tmp_path: Path) -> None:
    assert "numpy" not in (written(tmp_path, edit="import numpy as np") / "add.py").read_text()


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.BUILT, Verdict.UNDECIDED, Verdict.SLOWER])
def test_what_is_not_right_does_not_leave(tmp_path: Path, verdict: Verdict) -> None:
    store = add_run(tmp_path, verdict)
    with pytest.raises(UsageFault, match="has no candidate that was accepted"):
        command.write(store, RUN, "module", tmp_path / "to")
    with pytest.raises(UsageFault, match=f"candidate c1 is {verdict}"):
        command.write(store, f"{RUN}/c1", "module", tmp_path / "to")


def test_ttgir_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = add_run(tmp_path, Verdict.ACCEPTED, kind="ttgir")
    with pytest.raises(UsageFault, match="is TTGIR, which no Triton source says") as refused:
        command.write(store, RUN, "module", tmp_path / "to")
    assert "ir_override=" in refused.value.hint


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    with pytest.raises(UsageFault, match="to is there already"):
        written(tmp_path)
    assert not list((tmp_path / "to").iterdir())


def test_the_command_names_the_forms(tmp_path: Path) -> None:
    add_run(tmp_path)
    refused = pgo("export", RUN, "--as", "wheel", "--to", "to", cwd=tmp_path)
    assert refused.code == 2 and "choose one of: module, flashinfer, hf-kernels, kernelbench" in refused.err
    done = pgo("export", f"{RUN}/c1", "--to", "to", cwd=tmp_path)
    assert done.code == 0 and "to/add.py written" in done.out and "measured on no GPU" in done.out


def test_a_solution_runs_as_its_entry_point_says(tmp_path: Path) -> None:
    solution = json.loads((written(tmp_path, "flashinfer") / "solution.json").read_text())
    file, function = solution["spec"]["entry_point"].split("::")
    assert solution["spec"]["destination_passing_style"] is False and function == "kernel"
    (tmp_path / file).write_text(solution["sources"][0]["content"])
    assert apart(f"from {Path(file).stem} import {function} as kernel" + ADDED, tmp_path, tmp_path) == "True []"


def test_a_folder_of_hugging_face_has_sources_and_what_is_built_of_them(tmp_path: Path) -> None:
    place = written(tmp_path, "hf-kernels")
    for imported in (place / "torch-ext", place / "build"):
        name = "add" if imported.name == "torch-ext" else "torch-cuda"
        program = f"import importlib\nkernel = importlib.import_module('{name}').kernel\n"
        assert apart(program + ADDED, tmp_path, imported) == "True []"
    assert json.loads((place / "build/torch-cuda/metadata.json").read_text())["license"] == "other"


def test_model_new_gives_what_the_model_gives_with_the_same_seed(problem: Path, tmp_path: Path) -> None:
    done = pgo("export", "last", "--as", "kernelbench", "--to", tmp_path / "to", cwd=problem)
    assert done.code == 0, done.err
    program = """
import norm as theirs, norm_new as ours
torch.manual_seed(1)
model = theirs.Model(24)
torch.manual_seed(1)
new = ours.ModelNew(24)
assert [n for n, _ in new.named_parameters()] == [n for n, _ in model.named_parameters()]
with torch.no_grad():
    for a, b in zip(model.parameters(), new.parameters()):
        a.normal_(), b.copy_(a)
x = torch.randn(7, 24)
print(torch.allclose(model(x), new(x), atol=1e-5), type(new(x)).__name__)
"""
    (tmp_path / "to" / "norm.py").rename(tmp_path / "norm_new.py")
    assert apart(program, tmp_path, tmp_path, problem) == "True Tensor"


def test_a_target_of_no_problem_has_no_model_new(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="is not of a problem in KernelBench's form") as refused:
        written(tmp_path, "kernelbench")
    assert "--as module" in refused.value.hint


def test_a_file_of_no_package_has_the_licence_of_its_repository() -> None:
    assert standalone._licence(Path("kernels/mine.py")) == "Its licence is that of the repository that it is from."
