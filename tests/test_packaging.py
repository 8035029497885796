"""The folders install as one namespace, from a checkout and from a wheel, with kernels and recorded results in it."""

import os
import subprocess
import sys
import tomllib
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_folder_is_listed_for_the_build() -> None:
    tops = PROJECT["tool"]["setuptools"]["package-dir"].values()
    found = {p.parent.relative_to(ROOT) for top in tops for p in (ROOT / top).rglob("__init__.py")}
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    assert {"pgo_agent." + ".".join(p.parts) for p in found} == listed


def test_every_template_is_listed_for_the_build() -> None:
    tops = PROJECT["tool"]["setuptools"]["package-dir"].values()
    found = {p.parent.relative_to(ROOT) for top in tops for p in (ROOT / top).rglob("*.j2")}
    data = PROJECT["tool"]["setuptools"]["package-data"]
    assert {"pgo_agent." + ".".join(p.parts) for p in found} == {name for name, what in data.items() if "*.j2" in what}


def test_kernels_and_results_are_found_from_the_installation() -> None:
    assert resources.files("pgo_agent.kernels").joinpath("fa_fwd.py").is_file()
    assert resources.files("pgo_agent.evals").joinpath("results").is_dir()


def test_a_kept_profile_is_read_without_numpy_or_torch() -> None:
    code = "import sys, pgo_agent.agent.commands.profile, pgo_agent.agent.profile.summarize; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "torch", "langgraph"} & set(done.stdout.split())


def test_help_imports_nothing_but_what_prints_it() -> None:
    """What prints it is typer with rich; a third of a second then goes to them and to Python."""
    before, after = (_printed(f"import {what}; {TOPS}") for what in ("typer.rich_utils", "pgo_agent.agent.cli.main"))
    assert after - before <= {"pgo_agent", "__editable___pgo_agent_0_1_0_finder"} | set(sys.stdlib_module_names)


def test_help_takes_little_more_than_what_prints_it() -> None:
    """In seconds of the processor, in turns: other work of the machine slows both."""
    help_itself = ["-m", "pgo_agent.agent.cli.main", "--help"]
    took = [(_cpu_seconds(*help_itself), _cpu_seconds("-c", "import typer.rich_utils")) for _ in range(3)]
    ours, theirs = (min(side) for side in zip(*took, strict=True))
    assert ours < 2 * theirs


TOPS = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"


def _printed(code: str) -> set[str]:
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def _cpu_seconds(*arguments: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


@pytest.mark.slow
def test_a_wheel_holds_all_that_an_installed_copy_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    assert (tmp_path / "site" / "pgo_agent" / "kernels" / "fa_fwd.py").is_file()
    code = "import pgo_agent.agent.commands.optimize as s, pathlib; print(s.locate(pathlib.Path('kernels/fa_fwd.py')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).is_file()
