"""Traces for Perfetto: events as Chrome's format has them, slices that nest on every track, and times as recorded."""

import json
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.views.profile import perfetto
from pgo_agent.agent.views.profile.perfetto import Slice
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.traces import traces
from pgo_agent.sandbox.profile.timeline.types import Pass, Timeline

from tests.agent import timelines
from tests.agent.views.test_profile_terminal import full, profiled
from tests.sandbox.profile.test_timeline_decode import Encoder

REQUIRED = {  # by the trace event format's description
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "tid", "args"},
}
SLICES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda x: Slice("s", x[0], x[0] + x[1], {})), max_size=25
)


def recorded(contents: ContentStore, blocks: int = 3) -> Timeline:
    """A timeline with the scopes of a compiled kernel and kept records: the loop's body turns four times."""
    found = timelines.scopes("cp_async")
    t = timelines.timeline(found)
    numbers = dict(enumerate(found))
    role = next(i for i, s in numbers.items() if s.kind is Kind.ROLE)
    body = [i for i, s in numbers.items() if s.depth == 1]
    raw = b"".join(_block(b, role, body).raw() for b in range(blocks))
    kept = (Artefact.put(contents, zlib.compress(raw), RECORDS),)
    names = {str(i): s.name for i, s in numbers.items()}
    timed = replace(t.passes[0].timed, scopes=timelines.timed(found))
    one = Pass(timed, 1.03, True, {}, kept, len(raw) // blocks, 2, names, "")
    return replace(t, passes=(one,))


def _block(number: int, role: int, body: list[int]) -> Encoder:
    block = Encoder(number, 2, 64)
    for warp in range(2):
        clock = 1000 + 7 * warp
        block.record(warp, (role, False, clock))
        for scope in body * 4:
            block.record(warp, (scope, False, clock + 5))
            block.record(warp, (scope, True, clock + 105))
            clock += 110
        block.record(warp, (role, True, clock + 50))
    return block


def made(contents: ContentStore, t: Timeline) -> dict[str, Any]:
    k = replace(full("cp_async"), timeline=t)
    return dict(json.loads(perfetto.text(profiled(k), contents)))


def by_track(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            found[e["pid"], e["tid"]].append(e)
    return found


def read(e: dict[str, Any]) -> tuple[int, int]:
    """Begin and end as Perfetto reads them (json_utils.cc): in whole nanoseconds, fractions cut off."""
    return int(e["ts"] * 1000), int(e["ts"] * 1000) + int(e["dur"] * 1000)


def crossing(spans: list[tuple[int, int]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of which one begins in the other and ends behind it."""
    return [(a, b) for a in spans for b in spans if a[0] < b[0] < a[1] < b[1]]


def test_every_event_has_what_the_format_requires_and_every_track_has_a_name(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    events = made(contents, recorded(contents))["traceEvents"]
    assert {e["ph"] for e in events} == set(REQUIRED)
    for e in events:
        assert e.keys() == REQUIRED[e["ph"]], e
        assert all(type(e[n]) is int for n in ("pid", "tid"))
        assert e.get("dur", 0) >= 0 and e.get("ts", 0) >= 0
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert threads == set(by_track(events))
    assert len({tid for _, tid in threads}) == len(threads), "Perfetto would give one thread the name of another"
    assert {pid for pid, _ in threads} <= {e["pid"] for e in events if e["name"] == "process_name"}


def test_slices_of_a_track_nest(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    for track in by_track(made(contents, recorded(contents))["traceEvents"]).values():
        assert not crossing([read(e) for e in track])


def test_executions_are_those_that_were_recorded_in_thousandths_for_each_cycle(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    t = recorded(contents)
    events = made(contents, t)["traceEvents"]
    build = next(e["pid"] for e in events if e["name"] == "process_name" and "instrumented build" in e["args"]["name"])
    drawn = sorted(read(e) for e in events if e["ph"] == "X" and e["pid"] == build)
    expected = sorted((e.begin, e.end) for e in traces(contents, t.passes[0], 0))
    assert drawn == expected and len(expected) == 2 * 17
    warps = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == build}
    assert warps == {"warp 0 kernel", "warp 1 kernel"}


def test_the_clocks_are_explained_and_the_disturbance_is_in_the_name(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    trace = made(contents, recorded(contents))
    assert "cycles of one SM, written as nanoseconds (1 GHz)" in trace["otherData"]["clocks"]
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert any("block 0 (+3.0 % of time)" in name for name in names)


def test_blocks_whose_records_were_kept_stand_on_their_sms(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    events = made(contents, recorded(contents, blocks=3))["traceEvents"]
    assert sorted(e["name"] for e in events if e["name"].startswith("block ")) == ["block 0", "block 1", "block 2"]
    running = [e["args"]["running"] for e in events if e["ph"] == "C"]
    assert running == [round(x, 3) for x in timelines.filled().running]


@settings(max_examples=500)
@given(st.integers(0, 1 << 43))
def test_a_time_is_the_same_again_when_a_thousandth_of_it_is_read_back(nanoseconds: int) -> None:
    written = json.loads(json.dumps(perfetto.microseconds(nanoseconds)))
    assert int(written * 1000) == nanoseconds
    assert written == pytest.approx(nanoseconds / 1000)


@settings(max_examples=300)
@given(SLICES)
def test_whatever_crosses_gets_another_track_and_nothing_is_lost(slices: list[Slice]) -> None:
    tracks = perfetto.nested(slices)
    assert sorted(map(id, slices)) == sorted(id(s) for track in tracks for s in track)
    for track in tracks:
        assert not crossing([(s.begin, s.end) for s in track])
        assert [s.begin for s in track] == sorted(s.begin for s in track)
    if not crossing([(s.begin, s.end) for s in slices]):
        assert len(tracks) <= 1


def test_a_profile_without_a_timeline_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no timeline to write as a trace: no GPU is visible here") as refused:
        perfetto.text(profiled(timelines.bare("cp_async")), ContentStore(tmp_path))
    assert "NVIDIA GPU" in refused.value.hint


def test_records_that_are_gone_are_a_fault_of_the_machine(tmp_path: Path) -> None:
    contents = ContentStore(tmp_path)
    t = recorded(contents)
    gone = replace(t.passes[0], records=(Artefact("0" * 64, RECORDS),))
    with pytest.raises(EnvironmentFault):
        made(contents, replace(t, passes=(gone,)))
