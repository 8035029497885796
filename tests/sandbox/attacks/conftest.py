"""Seats to attack from, for tests that need a process of their own in each: see `inside.py`."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox.isolation.box import Ran

from tests.sandbox.attacks.inside import Seat, folder_for_all

Attack = Callable[..., tuple[Ran, Path]]  # (code, seconds, **given) -> what came of it, and the box's folder
SEATS = [
    Seat("bubblewrap", "compiler"),
    Seat("landlock", "compiler"),
    *(
        pytest.param(seat, marks=pytest.mark.slow)
        for seat in (
            Seat("bubblewrap", "compiler", user=True),
            Seat("landlock", "compiler", user=True),
            Seat("bubblewrap", "tracer"),
            Seat("landlock", "tracer"),
            Seat("bubblewrap", "interpreter"),
            Seat("landlock", "interpreter"),
        )
    ),
]


@pytest.fixture(params=SEATS, ids=str)
def seat(request: pytest.FixtureRequest) -> Seat:
    found: Seat = request.param
    if problem := found.problem():
        pytest.skip(f"{found}: {problem.splitlines()[0]}")
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter."""
    with folder_for_all() as name:
        yield Path(name)


@pytest.fixture
def attack(seat: Seat, place: Path) -> Attack:
    return attacker(seat, place)


@pytest.fixture
def unboxed(place: Path) -> Attack:
    """The same without a box."""
    return attacker(Seat("none", "compiler"), place)


def attacker(seat: Seat, place: Path) -> Attack:
    def run(code: str, seconds: float = 60.0, **given: Any) -> tuple[Ran, Path]:
        folder = Path(tempfile.mkdtemp(dir=place)) / "box"
        folder.parent.chmod(0o755)
        return seat.run_here(code, folder, seconds, **given), folder

    return run
