"""A session of timing: at how many places the sides are opened, and what their launches must have left."""

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.guard_zones import Fill
from pgo_agent.sandbox.judge.timing import session
from pgo_agent.sandbox.judge.timing.timer import BufferSet, TimedSide, Timer

GB = 1 << 30
CASE = "CASES/a"


@dataclass
class Sized:
    """Stands for a bundle, a plan and its one storage, of so many bytes."""

    nbytes: int
    storages: list[Any] = field(default_factory=list)
    kind: str = "input"

    @property
    def plans(self) -> dict[str, dict[str, Any]]:
        return {CASE: {"it": Sized(0, [self])}}


def places(
    monkeypatch: pytest.MonkeyPatch,
    rounds: int,
    nbytes: int,
    free: int = 24 * GB,
    cached: int = 0,
    libraries: int = 0,
    changed: tuple[str, ...] = (),
) -> int:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: cached + GB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: GB)
    picks = cast(Any, {n: {CASE: (Sized(nbytes), "it")} for n in ("incumbent", "candidate")})
    bench = cast(Any, type("Bench", (), {"device": None, "changed": changed}))
    return session._places(bench, picks, libraries, CASE, rounds)


def test_a_long_session_has_three_places_for_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, 30, GB) == 3


def test_a_short_session_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places(monkeypatch, n, GB) for n in (1, 6, 11, 12, 18)] == [1, 1, 1, 2, 3]


def test_places_are_given_up_before_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places(monkeypatch, 30, n * GB) for n in (2, 3, 5, 20)] == [3, 2, 1, 1]


def test_memory_that_torch_keeps_in_its_cache_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places(monkeypatch, 30, 2 * GB, free=4 * GB, cached=n * GB) for n in (0, 12, 20)] == [1, 2, 3]


def test_the_inputs_of_libraries_need_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places(monkeypatch, 30, 2 * GB, libraries=n) for n in (0, 1, 4, 9)] == [3, 2, 1, 1]


def test_inputs_that_launches_change_take_their_memory_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, 30, 2 * GB) == 3
    assert places(monkeypatch, 30, 2 * GB, changed=("x",)) == 1


def test_sides_without_buffers_have_places_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, 30, 0) == 3


def told(checksums: list[int], verified: int | None = None) -> Verdict | None:
    side = TimedSide("candidate", [], checksums=[torch.tensor(c) for c in checksums])
    try:
        session._consistent(side, {}, CASE, verified)
    except session.Inconsistent as e:
        return e.verdict
    return None


def test_timed_launches_that_differ_at_any_place_are_a_race() -> None:
    assert told([7, 7, 7]) is None
    assert told([7, 7, 8]) == Verdict.RACE


def test_timed_launches_that_agree_on_other_outputs_than_were_verified_are_a_cheat() -> None:
    assert told([7, 7], verified=7) is None
    assert told([8, 8], verified=7) == Verdict.CHEATING


class Event:
    """Stands for a CUDA event."""

    def __init__(self, **_: object) -> None: ...

    def record(self) -> None: ...

    def elapsed_time(self, _: "Event") -> float:
        return 1.0


class Copying:
    """Stands for a replay whose kernel looks for its results in all memory before it computes them."""

    def __init__(self, memory: list[torch.Tensor]) -> None:
        self.x, self.out, self.memory, self.copied = torch.arange(64.0), torch.full((64,), torch.nan), memory, 0
        self.outputs, self.given = [self.out], [self.x]
        memory.append(self.out)

    def wipe(self, buffers: Fill) -> None:
        buffers.into(self.out.view(torch.uint8))

    def strays(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.int64)

    def __call__(self) -> None:
        right = self.x * 3
        self.copied += any(o is not self.out and torch.equal(o, right) for o in self.memory)
        self.out.copy_(right)


class Doubling:
    """Stands for a library call that doubles its argument in place."""

    def __init__(self) -> None:
        self.x, self.seen = torch.full((4,), 1e30), list[float]()

    def __call__(self) -> None:
        self.x.mul_(2)
        self.seen.append(float(self.x[0]))


def test_every_timed_launch_of_a_library_finds_its_inputs_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    library = Doubling()
    timer = Timer.__new__(Timer)
    timer._flush, timer._random = torch.zeros(4), random.SystemRandom()
    timer.run([TimedSide("library", [BufferSet(library, restored=[(library.x, library.x.clone())])])], 40)
    assert len(library.seen) == 83 and set(library.seen) == {library.seen[0]}
    assert library.x[0] < library.seen[0]


def test_no_place_leaves_results_that_a_launch_at_another_could_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    memory: list[torch.Tensor] = []
    replays = [Copying(memory) for _ in range(3)]
    timer = Timer.__new__(Timer)
    timer._flush, timer._random = torch.zeros(4), random.SystemRandom()
    timer.run([TimedSide("candidate", [BufferSet(r, cast(Any, r)) for r in replays])], 6)
    assert [r.copied for r in replays] == [0, 0, 0]


class Opening:
    """Stands for a bench whose GPU has room for so many replays."""

    seeds, deterministic, changed = {CASE: 1}, True, ()

    def __init__(self, room: int) -> None:
        self.room, self.opened, self.closed, self.given = room, 0, 0, list[Any]()

    def inputs(self, case: str, seed: int) -> dict[str, int]:
        return {"seed": seed}

    def replay(self, pick: object, case: str, seed: int) -> "Opening":
        if self.opened - self.closed == self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.opened += 1
        return self

    def poison(self, buffers: Fill) -> None: ...

    def close(self) -> None:
        self.closed += 1


def opened(bench: Opening, many: int) -> dict[str, int]:
    picks, library = {n: cast(Any, {}) for n in ("incumbent", "candidate")}, {"cuLibrary": lambda seed: seed}
    with ExitStack() as stack:
        found = session._open(cast(Any, bench), picks, library, CASE, many, stack)
        assert bench.opened - bench.closed == sum(len(s.places) for n, s in found.items() if n in picks)
    assert bench.opened == bench.closed
    return {n: len(s.places) for n, s in found.items()}


def test_a_library_stays_on_the_same_tensors() -> None:
    assert opened(Opening(room=6), 3) == {"incumbent": 3, "candidate": 3, "cuLibrary": 1}


@pytest.mark.parametrize("room", [2, 3, 5])
def test_where_memory_is_too_short_for_more_places_each_side_has_one(room: int) -> None:
    assert opened(Opening(room), 3) == {"incumbent": 1, "candidate": 1, "cuLibrary": 1}


def test_memory_too_short_for_one_place_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        opened(Opening(room=1), 3)
