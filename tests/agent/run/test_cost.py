"""What a run will take is said before it begins, from what former runs took; and how far that was off when it ended."""

import json
from pathlib import Path

import pytest

from tests.agent.command_line import pgo, write

OPTIONS = ("--judge", "cpu", "--candidates", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which one run of the target has ended."""
    folder = tmp_path_factory.mktemp("cost")
    write(folder)
    assert pgo("optimize", "add.py", *OPTIONS, cwd=folder).code == 0
    return folder


def test_without_a_former_run_it_says_so_and_names_the_budgets(tmp_path: Path) -> None:
    write(tmp_path)
    said = pgo("optimize", "add.py", "--dry-run", "--minutes", "7", cwd=tmp_path)
    assert said.code == 0 and "the first one will tell" in said.out and "at most 7 minutes" in said.out
    assert pgo("runs", "--json", cwd=tmp_path).out.strip() == "[]"


def test_the_same_run_again_is_expected_to_take_what_it_took(folder: Path) -> None:
    said = json.loads(pgo("optimize", "add.py", *OPTIONS, "--dry-run", "--json", cwd=folder).out)
    (ended,) = json.loads(pgo("runs", "--json", cwd=folder).out)
    took = json.loads(pgo("show", ended["run"], "--json", cwd=folder).out)
    assert said["same"] and said["runs"] == 1 and said["middle"]["builds"] > 2
    assert said["middle"]["seconds"] == pytest.approx(took["seconds"], rel=0.05)


def test_twice_the_candidates_are_expected_to_take_more(folder: Path) -> None:
    few, many = (
        json.loads(pgo("optimize", "add.py", *OPTIONS[:2], "--candidates", n, "--dry-run", "--json", cwd=folder).out)
        for n in ("2", "4")
    )
    assert many["middle"]["builds"] > few["middle"]["builds"] and many["middle"]["seconds"] > few["middle"]["seconds"]


@pytest.mark.long
def test_a_run_says_how_far_its_estimate_was_off(folder: Path) -> None:
    assert "(expected" in pgo("optimize", "add.py", *OPTIONS, cwd=folder).out
