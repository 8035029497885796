"""Stage offsets: do the 32-bit numbers behind a kernel's addresses overflow at the sizes of its launches?

Small cases, whose results are compared without a GPU, have far fewer than 2^31 elements. So offsets are followed
through the TTGIR of each launch (`addresses.py`), for the block at the far corner of the grid and some others. An
overflow is `wrong`, with block and numbers, unless the original overflows too. A launch that cannot be followed is
counted and not blamed.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pgo_agent.sandbox.gate import addresses, coverage
from pgo_agent.sandbox.gate.addresses import Followed, Overflow
from pgo_agent.sandbox.gate.barriers import launches
from pgo_agent.sandbox.gate.evidence import Evidence, Side, tensors
from pgo_agent.sandbox.gate.reason import Reason, of_case, plain, quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable

SECONDS, SHORT = 4.0, 1.0  # time limits of the stage, with a large tensor and without
KEPT = 1024  # blocks: of all kernels of a generation
LARGE = 1 << 31  # elements; only a larger tensor has correct offsets beyond 32 bits


def stage(candidate: Side, original: Side) -> Evidence:
    """Return wrong with the first offset that overflows, else how many accesses were followed."""
    launches = list(_launches(candidate))
    followed = [(c, s, b, f) for c, s, b, f in launches if f is not None]
    accesses = sum(sum(f.accesses.values()) for _, _, _, f in followed)
    count = sum(len(f.accesses) for _, _, _, f in followed)
    ran = (len(followed), len(launches))
    covered = coverage.of(cases=len(candidate.plans), blocks_of_launches=ran, accesses=(accesses, count))
    first = next(((c, s, b, f.overflow) for c, s, b, f in followed if f.overflow), None)
    if first is None:
        return Evidence("offsets", None, plain(_summary(accesses, count)), coverage=covered)
    why = _why(candidate, *first)
    if any(f and f.overflow for _, _, _, f in _launches(original)):
        return Evidence("offsets", None, plain("overflows as the original does: ") + why, coverage=covered)
    return Evidence("offsets", Verdict.WRONG, why, coverage=covered)


def _summary(followed: int, count: int) -> str:
    if not count:
        return "no address is computed from 32-bit numbers"
    return f"no offset overflows at the sizes of the cases: {followed} of {count} accesses followed"


def _launches(side: Side) -> Iterator[tuple[str, Mapping[str, Any], Sequence[int], Followed | None]]:
    """Give (case, launch, block, result) for different launches, large tensors first; result None: no time."""
    steps = [(c, s) for c, plans in side.plans.items() for p in plans for s in p["steps"] if "kernel" in s]
    steps.sort(key=lambda pair: -_largest(pair[1]))
    large = bool(steps) and _largest(steps[0][1]) >= LARGE
    until = time.monotonic() + (SECONDS if large else SHORT)
    seen = set()
    for case, step in steps:
        same = str((step["kernel"], step["grid"], [a for a in step["args"] if isinstance(a, int)]))
        if same in seen or 0 in step["grid"]:
            continue
        seen.add(same)
        for block in _blocks(step["grid"], _largest(step) >= LARGE):
            late = time.monotonic() > until
            result = None if late else _followed(side.texts[step["kernel"]], step, block)
            yield case, step, block, result
            if result and result.overflow:
                return


def _largest(step: Mapping[str, Any]) -> int:
    """Return the largest tensor of a launch, in elements of its storage."""
    sizes = (1 + sum((n - 1) * s for n, s in zip(a["size"], a["stride"], strict=True)) for a in tensors(step["args"]))
    return max(sizes, default=0)


def _blocks(grid: Sequence[int], large: bool) -> list[tuple[int, ...]]:
    """Return the far corner; for a large tensor also other corners and blocks on the way."""
    far = tuple(g - 1 for g in grid)
    if not large:
        return [far]
    sides = [tuple(f if i == j else 0 for j, f in enumerate(far)) for i in range(3)]
    return list(dict.fromkeys((far, *sides, *(tuple(f * k // 8 for f in far) for k in range(7, 0, -1)))))


def _followed(text: str, step: Mapping[str, Any], block: Sequence[int]) -> Followed:
    numbers = launches.values(step["signature"], step["args"])
    arguments = tuple(int(n) if isinstance(n, int) else None for n in numbers)
    return _of_block(text, arguments, tuple(step["grid"]), tuple(block))


@lru_cache(maxsize=KEPT)
def _of_block(text: str, arguments: tuple[int | None, ...], grid: tuple[int, ...], block: tuple[int, ...]) -> Followed:
    """Follow a block once: a candidate is examined without its held-out cases and with them."""
    try:
        module = reader.parse(text)
    except Unreadable:
        return Followed()
    if len(arguments) != len(module.kernel.defined):
        arguments = (None,) * len(module.kernel.defined)
    return addresses.follow(module, arguments, grid, block)


def _why(side: Side, case: str, step: Mapping[str, Any], block: Sequence[int], overflow: Overflow | None) -> Reason:
    """Return the reason in one line, without numbers for a held-out case."""
    assert overflow is not None
    name = side.manifest["kernels"][step["kernel"]]["name"]
    words = f": an offset that {name} adds to its argument {overflow.argument + 1} overflows 32 bits"
    if case.startswith(coverage.HELD_OUT):
        return of_case(case) + quoted(words)
    numbers = f"block {tuple(block)} means element {overflow.meant} and gets {overflow.cut}"
    at = f"({overflow.access}, line {overflow.line} of its TTGIR)"
    return of_case(case) + quoted(f"{words}: {numbers} {at}; compute it in 64 bits")
