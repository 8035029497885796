"""Raw profile scratch -> records: which warp of which block was in which scope from when to when, in cycles of its SM.

The format is that of Proton's circular layout with one unit for each warp (CircularLayoutParser.cpp and Utility.cpp of
Triton 3.6 to 3.9; the PTX of an instrumented build shows the same offsets). Little-endian words of 32 bits, of a block:

    0  0xdeadbeef     1  linear block number     2  SM     3  bytes of all its warps' buffers
    4  two words each: globaltimer in ns when the block began, when its work had ended, when its records were written
    10 for each warp: words that it recorded, lost ones counted
    then for each warp its buffer of entries: word 0 = end << 31 | scope << 23 | clock >> 32, word 1 = clock's low word

A full buffer goes on at its start, so the oldest entries get lost. Bytes are not trusted: what does not fit is
reported, and a pair is only made of a start and the next entry of the same scope in the same warp, if that is an end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pgo_agent.sandbox.profile.timeline.types import Lost

MAGIC = 0xDEADBEEF
FIXED = 10  # words of a block's header before the warps' counts
TURN = 1 << 32  # cycles: builds read 32 bits of the clock (`sandbox/compiler/proton.py`)
Words: TypeAlias = NDArray[np.uint32]
Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """A block as its header describes it."""

    block: int  # linear number, from 0
    sm: int
    begin_ns: int  # globaltimer
    end_ns: int  # when its work had ended; its records are written after that

    @property
    def ns(self) -> int:
        return self.end_ns - self.begin_ns


@dataclass(frozen=True)
class Records:
    """Columns of the same length, a row for each pair of start and end, in the order of blocks, warps and starts."""

    block: Numbers  # linear number
    warp: Numbers  # in its block
    scope: Numbers  # number
    start: Numbers  # cycles, from the first entry of the block's first warp that has one; may be below zero
    cycles: Numbers  # from its start to its end; below 2^32

    def __len__(self) -> int:
        return len(self.block)


@dataclass(frozen=True)
class Decoded:
    blocks: tuple[Block, ...]
    records: Records
    lost: Lost
    problems: tuple[str, ...] = field(default=())  # what does not fit the format, a line each


def decode(raw: bytes, block_bytes: int, warps: int) -> Decoded:
    """Return the records of whole blocks of `block_bytes` bytes with `warps` warps each. Never raises: the
    result holds the problems."""
    words = _blocks(raw, block_bytes, warps)
    if words is None:
        return Decoded((), _columns([]), Lost(), (f"no block of {warps} warps fits {block_bytes} bytes",))
    problems = [f"{len(raw) % block_bytes} bytes behind the last block"] if len(raw) % block_bytes else []
    blocks: list[Block] = []
    rows: list[Numbers] = []
    lost = Lost()
    for place, row in enumerate(words):
        header = _header(row)
        if header is None:
            problems.append(f"block {place} of the buffer was not written")
            continue
        blocks.append(header)
        entries, faults, gone = _entries(row, warps)
        problems += [f"block {header.block}: {p}" for p in faults]
        paired, alone = _pairs(entries)
        lost += Lost(gone, alone)
        rows.append(_with_block(paired, header.block))
    return Decoded(tuple(blocks), _columns(rows), lost, tuple(problems))


def headers(raw: bytes) -> tuple[Block, ...]:
    """Return blocks by their headers alone, of `FIXED` words each; those that were not written are left out."""
    words = np.frombuffer(raw, "<u4", len(raw) // (4 * FIXED) * FIXED).reshape(-1, FIXED)
    return tuple(h for row in words if (h := _header(row)))


def recorded(raw: bytes, block_bytes: int, warps: int) -> int:
    """Return the most entries that one warp of the blocks recorded, lost ones counted; 0 where nothing fits."""
    words = _blocks(raw, block_bytes, warps)
    if words is None:
        return 0
    counts = words[words[:, 0] == MAGIC, FIXED : FIXED + warps]
    return int(counts.max(initial=0)) // 2


def _blocks(raw: bytes, block_bytes: int, warps: int) -> Words | None:
    """Return a row of words for each whole block; None where a block of so many warps does not fit so many bytes."""
    if block_bytes <= 0 or block_bytes % 4 or warps <= 0 or FIXED + warps > block_bytes // 4:
        return None
    count = len(raw) // block_bytes
    return np.frombuffer(raw, "<u4", count * block_bytes // 4).reshape(count, block_bytes // 4)


def _header(row: Words) -> Block | None:
    if int(row[0]) != MAGIC:
        return None
    begin, end = (int(row[i]) | int(row[i + 1]) << 32 for i in (4, 6))
    return Block(int(row[1]), int(row[2]), begin, end)


# Rows of entries: warp, scope, whether it is an end, clock. -----------------------------------------------------------


def _entries(row: Words, warps: int) -> tuple[Numbers, list[str], int]:
    """Entries of all warps, oldest first in each; what does not fit; how many were overwritten."""
    first, size = FIXED + warps, int(row[3])
    room = size // warps // 8  # entries of a warp
    if size % (8 * warps) or first + size // 4 > len(row):
        return np.zeros((0, 4), np.int64), [f"buffers of {size} bytes for {warps} warps do not fit"], 0
    rows: list[Numbers] = []
    problems: list[str] = []
    gone = 0
    for warp, (count, pairs) in enumerate(_buffers(row, first, room, warps)):
        if count % 2:
            problems.append(f"warp {warp} recorded {count} words: half an entry")
        written = count // 2
        gone += max(0, written - room)
        rows.append(_rows(warp, np.roll(pairs, -(written % room), 0) if written > room else pairs[:written]))
    return np.concatenate(rows), problems, gone


def _buffers(row: Words, first: int, room: int, warps: int) -> Iterator[tuple[int, Words]]:
    for warp in range(warps):
        at = first + warp * room * 2
        yield (int(row[FIXED + warp]) if room else 0), row[at : at + room * 2].reshape(-1, 2)


def _rows(warp: int, pairs: Words) -> Numbers:
    head, clock = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    return np.stack([np.full(len(pairs), warp, np.int64), head >> 23 & 0xFF, head >> 31, clock], 1)


def _pairs(entries: Numbers) -> tuple[Numbers, int]:
    """Rows of warp, scope, start and cycles, in the order of starts; how many entries are in no pair."""
    if not len(entries):
        return np.zeros((0, 4), np.int64), 0
    entries = np.column_stack([entries[:, :3], _since(entries, int(entries[0, 3]))])
    order = np.lexsort((np.arange(len(entries)), entries[:, 1], entries[:, 0]))  # by warp, by scope, as recorded
    a, b = entries[order[:-1]], entries[order[1:]]
    fits = (a[:, 0] == b[:, 0]) & (a[:, 1] == b[:, 1]) & (a[:, 2] == 0) & (b[:, 2] == 1)
    fits &= b[:, 3] >= a[:, 3]
    a, b, at = a[fits], b[fits], order[:-1][fits]
    rows = np.column_stack([a[:, 0], a[:, 1], a[:, 3], b[:, 3] - a[:, 3]])[np.argsort(at)]
    return rows, len(entries) - 2 * len(rows)


def _since(entries: Numbers, zero: int) -> Numbers:
    """Clocks without their turns, in cycles since `zero`: each warp's rise from its first, which is near `zero`."""
    clock = entries[:, 3]
    steps = np.diff(clock, prepend=clock[:1]) % TURN
    first = np.diff(entries[:, 0], prepend=-1) != 0
    steps[first] = (clock[first] - zero + TURN // 2) % TURN - TURN // 2
    total = np.cumsum(steps)
    begins = np.flatnonzero(first)
    before = np.repeat(total[begins] - steps[begins], np.diff(np.append(begins, len(clock))))
    return np.asarray(total - before, np.int64)


def _with_block(rows: Numbers, block: int) -> Numbers:
    return np.column_stack([np.full(len(rows), block, np.int64), rows])


def _columns(rows: list[Numbers]) -> Records:
    table: Any = np.concatenate(rows) if rows else np.zeros((0, 5), np.int64)
    return Records(*(np.ascontiguousarray(table[:, i]) for i in range(5)))
