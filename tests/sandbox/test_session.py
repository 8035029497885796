"""A session of timing: at how many places the sides are opened, and what their launches must have left."""

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import session
from pgo_agent.sandbox.judge.timing import Place, Side, Timer

GB = 1 << 30
CASE = "CASES/a"


@dataclass
class Sized:
    """Stands for a bundle, a plan and its one storage, of so many bytes."""

    nbytes: int
    storages: list[Any] = field(default_factory=list)

    @property
    def plans(self) -> dict[str, dict[str, Any]]:
        return {CASE: {"it": Sized(0, [self])}}


def places(monkeypatch: pytest.MonkeyPatch, rounds: int, nbytes: int, free: int = 24 * GB) -> int:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 24 * GB))
    picks = cast(Any, {n: {CASE: (Sized(nbytes), "it")} for n in ("incumbent", "candidate")})
    bench = cast(Any, type("Bench", (), {"device": None}))
    return session._places(bench, picks, CASE, rounds)


def test_a_long_session_has_three_places_for_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, 30, GB) == 3


def test_a_short_session_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places(monkeypatch, n, GB) for n in (1, 6, 11, 12, 18)] == [1, 1, 1, 2, 3]


def test_places_are_given_up_before_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [places(monkeypatch, 30, n * GB) for n in (2, 3, 5, 20)] == [3, 2, 1, 1]


def test_sides_without_buffers_have_places_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, 30, 0) == 3


def told(checksums: list[int], verified: int | None = None) -> Verdict | None:
    side = Side("candidate", [], checksums=[torch.tensor(c) for c in checksums])
    try:
        session._consistent(side, CASE, verified)
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
        self.outputs = [self.out]
        memory.append(self.out)

    def poison(self, pattern: int) -> None:
        self.out.view(torch.uint8).fill_(pattern)

    def __call__(self) -> None:
        right = self.x * 3
        self.copied += any(o is not self.out and torch.equal(o, right) for o in self.memory)
        self.out.copy_(right)


def test_no_place_leaves_results_that_a_launch_at_another_could_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    memory: list[torch.Tensor] = []
    replays = [Copying(memory) for _ in range(3)]
    timer = Timer.__new__(Timer)
    timer._flush, timer._random = torch.zeros(4), random.SystemRandom()
    timer.run([Side("candidate", [Place(r, cast(Any, r)) for r in replays])], 6)
    assert [r.copied for r in replays] == [0, 0, 0]


def test_a_library_stays_on_the_same_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_places", lambda *_: 3)

    class Bench:
        seeds, deterministic = {CASE: 1}, True

        def inputs(self, case: str, seed: int) -> dict[str, int]:
            return {"seed": seed}

        def replay(self, pick: object, case: str, seed: int) -> Copying:
            return Copying([])

    with monkeypatch.context() as m, ExitStack() as opened:
        m.setattr(Copying, "close", lambda self: None, raising=False)
        picks, library = {"candidate": cast(Any, {})}, {"cuLibrary": lambda seed: seed}
        found = session._open(cast(Any, Bench()), picks, library, CASE, 30, opened)
        assert {n: len(s.places) for n, s in found.items()} == {"candidate": 3, "cuLibrary": 1}
