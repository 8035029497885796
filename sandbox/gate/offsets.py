"""Stage offsets: do the 32-bit numbers behind a kernel's addresses hold the sizes it is launched with?

Small cases, on which results are compared without a GPU, never come near 2^31 elements: a product that overflows at a
public case's size is followed through the TTGIR of each launch (`addresses.py`), for the block at the far corner of the
grid and some others. What overflows there is wrong, block and numbers are told. What the original itself overflows in
is no fault of a candidate's. A launch whose numbers cannot be followed is counted, and nothing is said against it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pgo_agent.sandbox.gate import addresses, coverage
from pgo_agent.sandbox.gate.addresses import Followed, Overflow
from pgo_agent.sandbox.gate.evidence import Evidence, Side
from pgo_agent.sandbox.gate.reason import Reason, of_case, plain, quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module

SECONDS, SHORT = 4.0, 1.0  # of one stage with a large tensor, and without; what is left then is not followed
LARGE = 1 << 31  # elements; only in a larger tensor can an offset that is meant be too large for 32 bits


def stage(candidate: Side, original: Side) -> Evidence:
    """Wrong with the first offset that overflows; else how many accesses were followed."""
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
    """(case, launch, block, what was seen) for different launches, those with large tensors first; None: no time."""
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
    """Elements of the largest tensor that a launch is given (of its storage, in elements of its type)."""
    sizes = (1 + sum((n - 1) * s for n, s in zip(a["size"], a["stride"], strict=True)) for a in _tensors(step["args"]))
    return max(sizes, default=0)


def _tensors(args: Any) -> Iterator[Mapping[str, Any]]:
    for a in args:
        if isinstance(a, list | tuple):
            yield from _tensors(a)
        elif isinstance(a, dict) and "desc" in a:
            yield a["desc"]
        elif isinstance(a, dict) and "t" in a:
            yield a


def _blocks(grid: Sequence[int], large: bool) -> list[tuple[int, ...]]:
    """The far corner; where a tensor is large, the corners beside it and blocks on the way, too."""
    far = tuple(g - 1 for g in grid)
    if not large:
        return [far]
    sides = [tuple(f if i == j else 0 for j, f in enumerate(far)) for i in range(3)]
    return list(dict.fromkeys((far, *sides, *(tuple(f * k // 8 for f in far) for k in range(7, 0, -1)))))


def _followed(text: str, step: Mapping[str, Any], block: Sequence[int]) -> Followed:
    module = _module(text)
    if module is None:
        return Followed()
    arguments = list(_arguments(step["signature"], step["args"]))
    if len(arguments) != len(module.kernel.defined):
        arguments = [None] * len(module.kernel.defined)
    return addresses.follow(module, arguments, step["grid"], block)


@lru_cache(maxsize=64)
def _module(text: str) -> Module | None:
    try:
        return reader.parse(text)
    except Unreadable:
        return None


def _arguments(signature: Any, args: Any) -> Iterator[int | None]:
    """A launch's arguments as the kernel's parameters: a descriptor comes with its shape and strides."""
    for kind, a in zip(signature, args, strict=True):
        if isinstance(kind, list | tuple):
            yield from _arguments(kind, a)
        elif kind == "constexpr":
            continue
        elif str(kind).startswith("tensordesc"):
            yield from (None, *a["shape"], *a["strides"])
        else:
            yield int(a) if isinstance(a, int) else None


def _why(side: Side, case: str, step: Mapping[str, Any], block: Sequence[int], overflow: Overflow | None) -> Reason:
    """One line; of a case that is held out no numbers."""
    assert overflow is not None
    name = side.manifest["kernels"][step["kernel"]]["name"]
    words = f": an offset that {name} adds to its argument {overflow.argument + 1} overflows 32 bits"
    if case.startswith(coverage.HELD_OUT):
        return of_case(case) + quoted(words)
    numbers = f"block {tuple(block)} means element {overflow.meant} and gets {overflow.cut}"
    at = f"({overflow.access}, line {overflow.line} of its TTGIR)"
    return of_case(case) + quoted(f"{words}: {numbers} {at}; compute it in 64 bits")
