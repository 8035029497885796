"""What a kernel promises its compiler: `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy` and `tl.assume`.

Compiled code relies on it, so a promise that is not kept is a fault, whatever the result here. As Triton's own analysis
reads them: along each dimension, runs of `contiguity` elements count up by one, runs of `constancy` elements are equal,
and the first element of each run is a multiple of `divisibility`.
"""

import re
from collections.abc import Callable
from typing import Any

from pgo_agent.sandbox.execution.errors import KernelFault
from pgo_agent.sandbox.ttgir.tree import Op

Tensor = Any  # a torch tensor
NAMES = ("tt.contiguity", "tt.divisibility", "tt.constancy")


def kept(op: Op) -> Callable[[Tensor], None] | None:
    """Return what tests an op's result; None where it promises nothing. Raises KernelFault when it is called."""
    given = {name: _numbers(op.attributes[name]) for name in NAMES if name in op.attributes}
    if not given or len(op.results) != 1:
        return None
    many = max(map(len, given.values()))
    runs, multiples, equals = (given.get(name, [1] * many) for name in NAMES)

    def test(value: Tensor) -> None:
        for axis in range(value.dim()):
            index = min(axis, many - 1)
            along = value.movedim(axis, -1)
            _counts_up(along, runs[index], 1, "counts up by one")
            _counts_up(along, equals[index], 0, "is constant")
            run = runs[index] if along.shape[-1] % runs[index] == 0 else 1
            _multiples(along[..., ::run] if run > 1 else along[..., :1], multiples[index])
        if not value.dim():
            _multiples(value, multiples[0])

    return test


def assumed(value: Tensor) -> None:
    """Test the condition of a `tl.assume`."""
    if not bool(value.all()):
        raise KernelFault("assumes what is not so (tl.assume)")


def _counts_up(along: Tensor, run: int, by: int, words: str) -> None:
    size = along.shape[-1]
    if run <= 1 or size % run:
        return
    parts = along.reshape(*along.shape[:-1], size // run, run)
    if bool((parts.diff(dim=-1) != by).any()):
        raise KernelFault(f"promises that each run of {run} elements {words}, and that is not so")


def _multiples(first: Tensor, of: int) -> None:
    if of > 1 and bool((first % of != 0).any()):
        raise KernelFault(f"promises a multiple of {of}, and that is not so (tl.multiple_of)")


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text.partition(":")[0])] or [1]
