"""What is drawn of a block is what its warps recorded: each pair once, in the order of time, from the block's begin."""

import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.timeline.decode import decode
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope
from pgo_agent.sandbox.profile.timeline.summary import summarize
from pgo_agent.sandbox.profile.timeline.traces import Execution, traces
from pgo_agent.sandbox.profile.timeline.types import Pass

from tests.sandbox.profile.test_timeline_decode import Encoder, blocks, executions, expected

SCOPES = {
    n: Scope(f"{role} {kind} {n}", kind, role, n, n, "", ("tt.dot",), 0)
    for n, (role, kind) in enumerate(
        [("kernel", Kind.ROLE), ("default", Kind.DOT), ("partition0", Kind.COPY), ("default", Kind.DOT_WAIT)]
    )
}


def passed(contents: ContentStore, launches: list[list[Encoder]]) -> Pass:
    """The pass of a build whose launches left these blocks."""
    raw = [[b.raw() for b in kept] for kept in launches]
    size, warps = len(raw[0][0]), launches[0][0].warps
    timed = summarize([decode(b"".join(r), size, warps) for r in raw], SCOPES, {})
    kept = tuple(Artefact.put(contents, zlib.compress(b"".join(r)), RECORDS) for r in raw)
    return Pass(timed, 1.0, True, {}, kept, size, warps, {str(n): s.name for n, s in SCOPES.items()}, "")


def block_of(number: int, entries: dict[int, list[tuple[int, bool, int]]]) -> Encoder:
    block = Encoder(number, warps=2, room=64)
    for warp, listed in entries.items():
        for entry in listed:
            block.record(warp, entry)
    return block


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=blocks())
def test_every_surviving_pair_of_a_block_is_one_execution_of_its_scope_and_warp(
    made: tuple[list[Encoder], dict[tuple[int, int], list[tuple[int, bool, int]]]], tmp_path: Path
) -> None:
    encoded, stored = made
    contents = ContentStore(tmp_path)
    one = passed(contents, [encoded])
    for block in encoded:
        found = traces(contents, one, block.number)
        assert min((e.begin for e in found), default=0) == 0
        assert [e.begin for e in found] == sorted(e.begin for e in found)
        for warp in range(block.warps):
            pairs, _ = expected(stored[block.number, warp], block.room)
            mine = [e for e in found if e.warp == warp]
            names = {s.name: n for n, s in SCOPES.items()}
            assert sorted((names[e.scope], e.end - e.begin) for e in mine) == pairs
            assert all(e.role == SCOPES[names[e.scope]].role for e in mine)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nested_scopes_lie_inside_of_what_holds_them_and_never_cross(data: st.DataObject, tmp_path: Path) -> None:
    """The test writes starts and ends as a stack does, so any two executions of a warp are nested or apart."""
    entries = data.draw(st.composite(executions)())
    contents = ContentStore(tmp_path)
    found = traces(contents, passed(contents, [[block_of(0, {0: entries})]]))
    for i, outer in enumerate(found):
        for later in found[i + 1 :]:
            assert later.begin >= outer.end or later.end <= outer.end


def test_the_clock_of_a_block_starts_at_its_first_record_whichever_warp_wrote_it(tmp_path: Path) -> None:
    late, early = [(0, False, 150), (1, False, 160), (1, True, 190), (0, True, 200)], [(2, False, 100), (2, True, 101)]
    contents = ContentStore(tmp_path)
    found = traces(contents, passed(contents, [[block_of(0, {0: late, 1: early})]]))
    assert found == (
        Execution("partition0 copy 2", "partition0", 1, 0, 1),
        Execution("kernel role 0", "kernel", 0, 50, 100),
        Execution("default dot 1", "default", 0, 60, 90),
    )


def test_no_more_than_the_first_executions_are_given(tmp_path: Path) -> None:
    entries = [(1, end, 10 * n + end) for n in range(20) for end in (False, True)]
    contents = ContentStore(tmp_path)
    one = passed(contents, [[block_of(0, {0: entries})]])
    assert len(traces(contents, one)) == 20
    assert traces(contents, one, most=3) == traces(contents, one)[:3]


def test_a_block_is_drawn_from_the_first_launch_that_kept_it_and_is_nothing_where_none_did(tmp_path: Path) -> None:
    def launched(number: int, cycles: int) -> Encoder:
        return block_of(number, {0: [(1, False, 0), (1, True, cycles)]})

    contents = ContentStore(tmp_path)
    one = passed(contents, [[launched(0, 5)], [launched(7, 6)], [launched(7, 8)]])
    assert [e.end for e in traces(contents, one, 7)] == [6]
    assert traces(contents, one, 3) == ()


def test_records_of_a_scope_that_the_build_does_not_have_are_left_out(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    one = passed(contents, [[block_of(0, {0: [(200, False, 1), (200, True, 2), (1, False, 3), (1, True, 9)]})]])
    assert [(e.scope, e.begin, e.end) for e in traces(contents, one)] == [("default dot 1", 0, 6)]


def test_damaged_records_are_a_fault_of_the_machine(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    one = passed(contents, [[block_of(0, {0: []})]])
    gone = replace(one, records=(Artefact("0" * 64, RECORDS),))
    with pytest.raises(EnvironmentFault):
        traces(contents, gone)
