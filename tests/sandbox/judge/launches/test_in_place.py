"""Launches that change their inputs: each begins with what inputs() gave, and none can begin without.

Plans of torch ops on the CPU, which run as they would on a GPU.
"""

import random
from typing import Any

import pytest
import torch
from pgo_agent.sandbox import guard_zones
from pgo_agent.sandbox.bundle.schema import Op, Plan, Storage, Tensor
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.guard_zones import NAN, ZERO, Fill
from pgo_agent.sandbox.judge.launches import instrumented
from pgo_agent.sandbox.judge.launches.plan_executor import Replay
from pgo_agent.sandbox.judge.timing.timer import BufferSet, TimedSide, Timer, checksum

from tests.sandbox.judge.timing.test_session import Event

P, G = (Tensor(n, "float32", (8,), (1,), 0) for n in range(2))
DOUBLE = Op("aten.mul_.Tensor", (P, G), {}, (P,))


def doubling(*steps: Op, changed: tuple[str, ...] = ("p",)) -> tuple[Replay, torch.Tensor]:
    """A plan that multiplies p by g, which holds twos, in place; and p as it is given."""
    given = torch.arange(1.0, 9.0)
    plan = Plan({"p": P, "g": G}, (Storage("input", 32), Storage("input", 32)), steps or (DOUBLE,), (P,))
    inputs: dict[str, object] = {"p": given, "g": torch.full((8,), 2.0)}
    return Replay(Bundle("", {}, {}, {}), plan, inputs, torch.device("cpu"), changed), given


def test_each_launch_changes_what_inputs_gave_and_not_what_an_earlier_one_left() -> None:
    replay, given = doubling()
    for buffers in (NAN, ZERO, Fill()) * 50:
        replay.poison(buffers)
        replay()
        assert torch.equal(replay.outputs[0], 2 * given)
    replay.wipe(Fill())
    assert torch.equal(replay.view(P), given) and torch.equal(replay.as_given(P), given)
    replay()
    assert torch.equal(replay.outputs[0], 2 * given) and replay.stray() == 0


def test_no_step_runs_twice_on_inputs_that_nobody_restored() -> None:
    replay, given = doubling(DOUBLE, DOUBLE)
    replay.part(range(1))
    replay.part(range(1, 2))
    for again in (replay, lambda: replay.part(range(1, 2))):
        with pytest.raises(RuntimeError, match="without a refill"):
            again()
    assert torch.equal(replay.outputs[0], 4 * given)
    replay.restore()
    replay(without=1)
    assert torch.equal(replay.outputs[0], 2 * given)


def test_an_instrumented_build_and_the_plain_one_are_launched_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    (plain, given), (recording, _) = doubling(), doubling()
    assert [len(ms) for ms in instrumented._disturbance(plain, recording)] == [instrumented.DISTURBED] * 2
    assert all(torch.equal(r.outputs[0], 2 * given) for r in (plain, recording))


def test_without_guard_zones_such_inputs_are_restored_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_zones, "GUARD", 0)
    replay, given = doubling()
    for _ in range(2):
        replay.poison(Fill())
        replay()
        assert torch.equal(replay.outputs[0], 2 * given) and torch.equal(replay.as_given(P), given)


def test_a_change_of_any_other_input_shows_in_what_was_given() -> None:
    before = int(checksum(doubling()[0].given))
    for step, same in ((DOUBLE, True), (Op("aten.mul_.Tensor", (G, P), {}, (G,)), False)):
        replay, _ = doubling(step)
        replay()
        assert (int(checksum(replay.given)) == before) is same


def test_what_is_written_beside_such_an_input_is_seen() -> None:
    beyond = Tensor(0, "float32", (1,), (1,), 8)
    replay, _ = doubling(Op("aten.fill_.Scalar", (beyond, 1.0), {}, (beyond,)))
    replay.poison(NAN, NAN)
    replay()
    assert replay.stray() == 4


def test_a_replay_that_is_closed_leaves_neither_what_was_given_nor_what_became_of_it() -> None:
    replay, _ = doubling()
    replay()
    left = [replay.view(P), replay.as_given(P)]
    replay.close()
    assert not any(bool(t.any()) for t in left)


def test_all_timed_launches_find_the_same_values_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    replay, given = doubling()
    side = TimedSide("candidate", [BufferSet(replay, replay, int(checksum(replay.given)))])
    timer: Any = Timer.__new__(Timer)
    timer._flush, timer._random = torch.zeros(4), random.SystemRandom()
    timer.run([side], 20)
    side.look_around()
    assert side.consistent(int(checksum([2 * given]))) and not side.meddled and not side.stray
