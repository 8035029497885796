"""A profile's timelines as a trace that Perfetto opens (ui.perfetto.dev): JSON of Chrome's trace events.

There are two kinds of processes, with unrelated clocks. A process for each SM holds the blocks whose records were kept,
in nanoseconds of the GPU's global timer. A process for each instrumented build holds the executions of one block, a
thread for each warp, in cycles of its SM, written as one cycle per nanosecond, as Proton does.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pgo_agent.agent.profile.case_profile import Profile
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.timeline.collect import fetched
from pgo_agent.sandbox.profile.timeline.decode import Block, decode
from pgo_agent.sandbox.profile.timeline.traces import Execution, traces
from pgo_agent.sandbox.profile.timeline.types import Pass, Timeline

Event = JsonObject
CLOCKS = (
    "In processes of instrumented builds times are cycles of one SM, written as nanoseconds (1 GHz), from the block's "
    "first record; in processes of SMs they are nanoseconds of the GPU's global timer from the first block that was "
    "kept. Times of two processes are not to be compared."
)


@dataclass(frozen=True)
class Slice:
    """An interval on a track, in whole nanoseconds or cycles."""

    name: str
    begin: int
    end: int
    args: Mapping[str, Any]


def text(profile: Profile, contents: ContentStore) -> str:
    """Return the trace. Raises UsageFault without a timeline, EnvironmentFault when its records are lost or damaged."""
    events = list(_events(profile, contents))
    if not events:
        why = next((m.why for c in profile.cases for k in c.kernels for m in k.missing if m.name == "timeline"), "")
        raise UsageFault(
            f"there is no timeline to write as a trace{f': {why}' if why else ''}",
            "profile on a machine with an NVIDIA GPU, with the pass `timeline`; without one, leave out --perfetto",
        )
    other = {"target": profile.target, "device": profile.device, "bundle": profile.bundle, "clocks": CLOCKS}
    return json.dumps({"traceEvents": events, "otherData": other})  # a displayTimeUnit changes how Perfetto reads `ts`


def _events(profile: Profile, contents: ContentStore) -> Iterator[Event]:
    numbers = count(1)
    for case in profile.cases:
        for k in case.kernels:
            if not isinstance(k.timeline, Missing):
                name = f"{k.kernel} {case.case.removeprefix('CASES/')}"
                yield from _of_kernel(name, k.timeline, contents, numbers)


def _of_kernel(name: str, t: Timeline, contents: ContentStore, numbers: "count[int]") -> Iterator[Event]:
    for i, taken in enumerate(t.passes, 1):
        block, executions = _first_block(taken, contents)
        title = f"{name}: instrumented build {i}, block {block} ({100 * (taken.overhead - 1):+.1f} % of time)"
        yield from process(numbers, title, warps(executions, taken))
    if t.passes:
        for sm, slices in blocks(_recorded_blocks(t.passes[0], contents)).items():
            yield from process(numbers, f"{name}: SM {sm}, blocks whose records were kept", {"blocks": slices})
        yield from _running(next(numbers), name, t)


def _first_block(taken: Pass, contents: ContentStore) -> tuple[int, tuple[Execution, ...]]:
    """Return the first block that has records, and its executions."""
    for block in sorted({b.block for b in _recorded_blocks(taken, contents)}):
        if executions := traces(contents, taken, block):
            return block, executions
    return 0, ()


def _recorded_blocks(taken: Pass, contents: ContentStore) -> tuple[Block, ...]:
    """Return the recorded blocks of the last launch."""
    raw = (fetched(contents, a.digest) for a in taken.records[-1:])
    return tuple(b for r in raw for b in decode(r, taken.block_bytes, taken.warps).blocks if b.ns >= 0)


def warps(executions: Iterable[Execution], taken: Pass) -> dict[str, list[Slice]]:
    """Return slices by the name of their thread."""
    scopes = {t.scope.name: t for t in taken.timed.scopes}
    threads: dict[str, list[Slice]] = {}
    for e in executions:
        t = scopes[e.scope]
        args = {"source": t.scope.source, "TTGIR": t.scope.first, "cycles": e.end - e.begin, "P50": t.cycles.p50}
        s = Slice(str(t.scope.kind), e.begin, e.end, args)
        threads.setdefault(f"warp {e.warp} {e.role}", []).append(s)
    return dict(sorted(threads.items(), key=lambda x: int(x[0].split()[1])))


def blocks(recorded: Iterable[Block]) -> dict[int, list[Slice]]:
    """Return slices by SM, in nanoseconds from the first begin."""
    listed = sorted(recorded, key=lambda b: (b.sm, b.begin_ns))
    first = min((b.begin_ns for b in listed), default=0)
    by_sm: dict[int, list[Slice]] = {}
    for b in listed:
        s = Slice(f"block {b.block}", b.begin_ns - first, b.end_ns - first, {"nanoseconds": b.ns})
        by_sm.setdefault(b.sm, []).append(s)
    return by_sm


def _running(pid: int, name: str, t: Timeline) -> Iterator[Event]:
    if t.waves and t.waves.running:
        yield _named(pid, pid, "process_name", f"{name}: the whole launch")
        step = t.waves.span_ns / len(t.waves.running)
        for i, blocks in enumerate(t.waves.running):
            at = {"pid": pid, "tid": pid, "ts": microseconds(round(i * step))}
            yield {"name": "blocks", "ph": "C", **at, "args": {"running": round(blocks, 3)}}


# events ---------------------------------------------------------------------------------------------------------------


def process(numbers: "count[int]", name: str, threads: Mapping[str, Sequence[Slice]]) -> Iterator[Event]:
    """Yield a process with its threads. Slices of a track must nest: a crossing slice gets a track of its own.

    `numbers`: Perfetto knows threads by their number alone, so no two of a trace may have the same.
    """
    if not threads:
        return
    pid = next(numbers)
    yield _named(pid, pid, "process_name", name)
    yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": pid, "args": {"sort_index": pid}}
    for thread, slices in threads.items():
        for i, track in enumerate(nested(slices)):
            yield from _track(pid, next(numbers), f"{thread} ({i + 1})" if i else thread, track)


def _track(pid: int, tid: int, name: str, slices: Iterable[Slice]) -> Iterator[Event]:
    yield _named(pid, tid, "thread_name", name)
    yield {"name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
    for s in slices:
        times = {"ts": microseconds(s.begin), "dur": microseconds(s.end - s.begin)}
        yield {"name": s.name, "cat": "pgo-agent", "ph": "X", "pid": pid, "tid": tid, **times, "args": s.args}


def microseconds(nanoseconds: int) -> float:
    """Convert so that 1000 times the result, truncated, is the same again. Perfetto reads it like that: without this,
    slices that end where others begin would cross by one.
    """
    x = nanoseconds / 1000
    return x if int(x * 1000) == nanoseconds else math.nextafter(x, math.inf)


def nested(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Return tracks in which any two slices are disjoint or nested, in the order of their begin."""
    tracks: list[list[Slice]] = []
    open_: list[list[Slice]] = []  # of each track, the outermost first
    for s in sorted(slices, key=lambda s: (s.begin, -s.end)):
        fitting = (i for i, stack in enumerate(open_) if _fits(s, stack))
        at = next(fitting, len(tracks))
        if at == len(tracks):
            tracks.append([])
            open_.append([])
        tracks[at].append(s)
        open_[at].append(s)
    return tracks


def _fits(s: Slice, stack: list[Slice]) -> bool:
    """Return whether a slice fits into the innermost open slice; slices that ended before are removed."""
    while stack and stack[-1].end <= s.begin:
        stack.pop()
    return not stack or s.end <= stack[-1].end


def _named(pid: int, tid: int, what: str, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
