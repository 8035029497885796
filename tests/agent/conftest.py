"""What several tests of runs compare with: a run that nobody disturbed."""

import pytest

from tests.agent import breaking
from tests.agent.breaking import Broken, Whole
from tests.agent.cli import write


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    write(folder)
    first, last = folder / "first", folder / "last"
    Broken(folder).copied_when([("generation.completed", 1, first), ("candidate.verdict", 2, last)])
    return Whole(folder, breaking.record(folder), first, last)
