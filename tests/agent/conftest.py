"""What several tests of runs compare with: a run that nobody disturbed."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.agent.run.record.store import Store

from tests.agent import breaking, searching
from tests.agent.breaking import Whole
from tests.agent.command_line import write


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Made by the first process of pytest that needs it, for all of them. Tests read it, or change a copy."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "whole"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _make(folder)
    return Whole(folder, breaking.record(folder), folder / "first", folder / "last")


def _make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(folder, alone=True)
    moments = {("generation.completed", 1): folder / "first", ("candidate.verdict", 2): folder / "last"}
    breaking.copied_when(folder, moments)
    (folder / "made").touch()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run whose baseline stands. Tests work on copies of it."""
    folder = tmp_path_factory.mktemp("prepared") / "w"
    searching.prepare(folder)
    return folder


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(prepared, tmp_path / "w", symlinks=True)
    opened = Store(tmp_path / "w")
    yield opened
    opened.close()
