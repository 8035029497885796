"""Which builds of a kernel are launched to time it: with room for their records, and with fewer scopes if they disturb.

Builds are real, of the GEMM; what a GPU would answer is written by `Encoder`, in the documented format.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.profile.timeline import collect as taking
from pgo_agent.sandbox.profile.timeline.collect import take
from pgo_agent.sandbox.profile.timeline.decode import Decoded
from pgo_agent.sandbox.profile.timeline.instrumented_build import USUAL
from pgo_agent.sandbox.profile.timeline.types import Timeline

from tests.sandbox.profile.test_instrumented_build import GEMM, placed
from tests.sandbox.profile.test_timeline_decode import Encoder
from tests.shared_builds import lend

pytestmark = pytest.mark.long  # builds with recorders, several times each

PER_PASS = 8


class Later(Exception):
    """An answer is not there yet."""


@dataclass
class Recorder:
    """A GPU on which every warp of a block executes each scope so many times, and some builds are slow."""

    contents: ContentStore
    executions: int = 3
    loud: int = 1 << 30  # a build with more scopes beside the roles than this takes 1.5 times as long
    patient: bool = True
    asked: Counter[str] = field(default_factory=Counter)  # by build
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # build -> entries of a warp, blocks wanted
    ready: set[str] = field(default_factory=set)
    held: bool = False

    @contextmanager
    def turn(self) -> Iterator["Recorder"]:
        self.held = True
        try:
            yield self
        finally:
            self.held = False

    def queue(self, question: questions.Timeline) -> None:
        """What was asked before is answered now."""

    def ask(self, question: questions.Timeline) -> Any:
        assert self.held
        build = question.kernel
        if not self.patient and build not in self.ready:
            self.ready.add(build)
            raise Later
        self.asked[build] += 1
        kernel = self.contents.manifest(question.instrumented.bundle.id)["kernels"][build]
        warps, size = kernel["num_warps"], kernel["profile_scratch_size"]
        numbers = (self.contents.build(build) or {})["static"]["scopes"]
        room = 1 << ((size // warps // 8).bit_length() - 1)
        self.sizes[build] = room, question.blocks
        records = self.contents.put(zlib.compress(self._block(warps, room, [n for n, _ in numbers])), RECORDS)
        repeat = {"headers": records, "records": records, "blocks": 1, "fetched": 1}
        slow = 1.5 if sum(" role " not in name for _, name in numbers) > self.loud else 1.0
        times = {"plain_ms": [1.0], "instrumented_ms": [slow]}
        told = {"repeats": [repeat], "block_bytes": size, "warps": warps, "same_outputs": True, **times}
        return question.read(told)

    def _block(self, warps: int, room: int, numbers: list[int]) -> bytes:
        encoder = Encoder(0, warps, room)
        for warp in range(warps):
            for at in range(self.executions):
                for n, number in enumerate(numbers):
                    begin = 1000 * (at * len(numbers) + n)
                    encoder.record(warp, (number, False, begin))
                    encoder.record(warp, (number, True, begin + 10))
        return encoder.raw()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    builder, (found,) = placed(GEMM, "even", ContentStore(lend(tmp_path_factory.mktemp("shelf"))), "SMALL")
    return builder, found


def timed(place: Any, **gpu: Any) -> tuple[Timeline, Recorder]:
    builder, found = place
    recorder = Recorder(builder.contents, **gpu)
    return take(cast(Judge, recorder), builder, found, PER_PASS, 1, 24), recorder


def inner(timeline: Timeline) -> list[int]:
    """Scopes of each build beside its roles, without those of the calibrating one."""
    return [len([n for n in p.numbers.values() if " role " not in n]) for p in timeline.passes[1:]]


def test_a_build_whose_records_fit_and_that_disturbs_nothing_is_launched_once(place: Any) -> None:
    timeline, recorder = timed(place)
    assert set(recorder.asked.values()) == {1} and len(timeline.passes) == len(recorder.asked)
    assert {blocks for _, blocks in recorder.sizes.values()} == {24}


def test_records_that_do_not_fit_are_taken_again_once_with_room_for_all_of_them_and_of_fewer_blocks(place: Any) -> None:
    timeline, recorder = timed(place, executions=USUAL // 4)
    assert all(p.timed.lost.overwritten == 0 for p in timeline.passes)
    final = [recorder.sizes[p.build] for p in timeline.passes]
    grown = [blocks for entries, blocks in final if entries > USUAL]
    assert grown and max(grown) < 24
    assert len(recorder.asked) == len(final) + len(grown) and set(recorder.asked.values()) == {1}


def test_a_build_that_disturbs_is_divided_until_it_does_not_or_two_scopes_are_left(place: Any) -> None:
    quiet, _ = timed(place)
    timeline, recorder = timed(place, loud=0)
    assert max(inner(quiet)) > 2 and max(inner(timeline)) <= 2
    assert {s.scope.name for s in timeline.scopes} == {s.scope.name for s in quiet.scopes}
    assert max(recorder.asked.values()) == 1


def test_a_build_that_disturbs_and_has_no_room_is_divided_with_room(place: Any) -> None:
    timeline, _ = timed(place, loud=2, executions=USUAL // 4)
    assert max(inner(timeline)) <= 2 and all(p.timed.lost.overwritten == 0 for p in timeline.passes)


def test_nothing_is_decoded_before_all_is_answered_nor_while_a_gpu_is_held(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, found = place
    recorder, decoded, decode, tries = Recorder(builder.contents, patient=False), list[int](), taking.decode, 0

    def noted(raw: bytes, block_bytes: int, warps: int) -> Decoded:
        assert not recorder.held
        decoded.append(len(raw))
        return decode(raw, block_bytes, warps)

    monkeypatch.setattr(taking, "decode", noted)
    while True:
        tries += 1
        try:
            timeline = take(cast(Judge, recorder), builder, found, PER_PASS, 1, 24)
            break
        except Later:
            assert not decoded
    assert tries > 2 and len(decoded) == len(timeline.passes)
    assert {s.scope.name for s in timeline.scopes} == {s.scope.name for s in timed(place)[0].scopes}
