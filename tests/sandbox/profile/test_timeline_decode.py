"""What a GPU leaves in the profile scratch becomes records: all that was stored, nothing that was not.

`Encoder` writes the format as documented in `sandbox/profile/timeline/decode.py`; it shares no code with it. Any bytes
are survived.
"""

import struct
from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.profile.timeline.decode import decode, headers

Entry = tuple[int, bool, int]  # scope, whether it is an end, clock
Row = tuple[int, int, int, int]  # block, warp, scope, cycles


@dataclass
class Encoder:
    """One block's part of the scratch, as an instrumented kernel fills it."""

    number: int
    warps: int
    room: int  # entries of a warp, a power of two
    sm: int = 3
    begin: int = 10**18
    end: int = 10**18 + 5000
    buffers: dict[int, list[bytes]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def record(self, warp: int, entry: Entry) -> None:
        scope, end, clock = entry
        buffer = self.buffers.setdefault(warp, [bytes(8)] * self.room)
        word = (end << 31) | (scope << 23)
        buffer[self.counts[warp] % self.room] = struct.pack("<II", word, clock % 2**32)
        self.counts[warp] += 1

    def raw(self) -> bytes:
        size = self.room * 8 * self.warps
        head = struct.pack("<4I3Q", 0xDEADBEEF, self.number, self.sm, size, self.begin, self.end, self.end + 100)
        counts = struct.pack(f"<{self.warps}I", *(2 * self.counts[w] for w in range(self.warps)))
        body = b"".join(b"".join(self.buffers.get(w, [bytes(8)] * self.room)) for w in range(self.warps))
        whole = head + counts + body
        return whole + bytes(-len(whole) % 128)


def executions(draw: st.DrawFn, deepest: int = 3) -> list[Entry]:
    """What a warp with nested and repeated scopes records: entries in the order of time."""
    clock = draw(st.integers(0, 2**32 - 1))
    open_: list[int] = []
    entries: list[Entry] = []
    for _ in range(draw(st.integers(0, 40))):
        clock += draw(st.integers(0, 2**20))
        free = [s for s in range(4) if s not in open_]
        if open_ and (len(open_) >= deepest or draw(st.booleans())):
            entries.append((open_.pop(), True, clock))
        else:
            open_.append(draw(st.sampled_from(free)))
            entries.append((open_[-1], False, clock))
    return entries + [(s, True, clock + i) for i, s in enumerate(reversed(open_))]


def expected(entries: list[Entry], room: int) -> tuple[list[tuple[int, int]], int]:
    """(scope, cycles) of pairs that survive, by a stack for each scope; entries that have no partner."""
    begun: dict[int, int] = {}
    pairs = []
    kept = entries[-room:]
    for scope, end, clock in kept:
        if not end:
            begun[scope] = clock
        elif scope in begun:
            pairs.append((scope, clock - begun.pop(scope)))
    return sorted(pairs), len(kept) - 2 * len(pairs)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[Encoder], dict[tuple[int, int], list[Entry]]]:
    warps, room = draw(st.integers(1, 4)), draw(st.sampled_from([2, 8, 64]))
    made, stored = [], {}
    for number in draw(st.lists(st.integers(0, 9999), min_size=1, max_size=3, unique=True)):
        block = Encoder(number, warps, room, sm=number % 132)
        for warp in range(warps):
            stored[number, warp] = executions(draw)
            for entry in stored[number, warp]:
                block.record(warp, entry)
        made.append(block)
    return made, stored


@settings(max_examples=60)
@given(blocks())
def test_every_pair_that_survived_in_the_buffers_is_found_and_no_other(
    made: tuple[list[Encoder], dict[tuple[int, int], list[Entry]]],
) -> None:
    encoded, stored = made
    raw = [b.raw() for b in encoded]
    found = decode(b"".join(raw), len(raw[0]), encoded[0].warps)
    assert found.problems == ()
    assert [(b.block, b.sm, b.ns) for b in found.blocks] == [(b.number, b.sm, 5000) for b in encoded]
    overwritten = unpaired = 0
    r = found.records
    for (number, warp), entries in stored.items():
        pairs, alone = expected(entries, encoded[0].room)
        here = (r.block == number) & (r.warp == warp)
        assert sorted(zip(r.scope[here].tolist(), r.cycles[here].tolist(), strict=True)) == pairs
        assert sorted(r.start[here].tolist()) == r.start[here].tolist()
        overwritten += max(0, len(entries) - encoded[0].room)
        unpaired += alone
    assert (found.lost.overwritten, found.lost.unpaired) == (overwritten, unpaired)


@settings(max_examples=200)
@given(st.binary(max_size=2000), st.integers(-8, 600), st.integers(-1, 40))
def test_any_bytes_are_survived_and_give_no_more_pairs_than_entries(raw: bytes, size: int, warps: int) -> None:
    found = decode(raw, size, warps)
    assert len(found.records) * 16 <= len(raw)
    assert len(headers(raw)) * 40 <= len(raw)


@settings(max_examples=60)
@given(blocks(), st.data())
def test_spoilt_bytes_are_survived_and_give_no_more_pairs_than_entries(
    made: tuple[list[Encoder], dict[tuple[int, int], list[Entry]]], data: st.DataObject
) -> None:
    encoded, _ = made
    raw = bytearray(b"".join(b.raw() for b in encoded))
    size = len(raw) // len(encoded)
    for _ in range(data.draw(st.integers(1, 12))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = decode(bytes(raw), size, encoded[0].warps)
    assert len(found.records) <= len(encoded) * encoded[0].warps * encoded[0].room // 2
    assert (found.records.cycles >= 0).all()


def test_two_warps_that_see_the_clock_turn_over_stay_beside_each_other() -> None:
    block = Encoder(0, 2, 8)
    for warp, first in ((0, 2**32 - 50), (1, 2**32 - 10)):
        block.record(warp, (0, False, first))
        block.record(warp, (0, True, first + 100))
    raw = block.raw()
    r = decode(raw, len(raw), 2).records
    assert (r.start.tolist(), r.cycles.tolist()) == ([0, 40], [100, 100])


def test_a_block_that_was_never_written_is_told() -> None:
    written = Encoder(5, 2, 8).raw()
    found = decode(bytes(len(written)) + written, len(written), 2)
    assert [b.block for b in found.blocks] == [5]
    assert found.problems == ("block 0 of the buffer was not written",)


def test_an_end_is_never_paired_with_the_start_of_another_scope_or_warp() -> None:
    block = Encoder(0, 2, 8)
    block.record(0, (1, False, 10))
    block.record(0, (2, True, 20))
    block.record(1, (1, True, 30))
    found = decode(block.raw(), len(block.raw()), 2)
    assert (len(found.records), found.lost.unpaired) == (0, 3)


def test_headers_alone_tell_the_blocks() -> None:
    raw = Encoder(7, 4, 8, sm=9).raw()
    (block,) = headers(raw[:40] + bytes(40))
    assert (block.block, block.sm, block.ns) == (7, 9, 5000)


def test_of_two_ends_or_two_starts_in_a_row_only_neighbours_make_a_pair() -> None:
    block = Encoder(0, 1, 8)
    for end, clock in ((False, 10), (True, 15), (True, 20), (False, 30), (False, 40), (True, 47)):
        block.record(0, (1, end, clock))
    found = decode(block.raw(), len(block.raw()), 1)
    assert (found.records.cycles.tolist(), found.lost.unpaired) == ([5, 7], 2)
