"""What a program gained by a patch, end to end, as data: `pgo-agent prove`. Views print it.

The interval of the median ratio is that of order statistics: it holds for any distribution (Hollander and Wolfe,
Nonparametric Statistical Methods, 3.6). Six turns are the fewest that give 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgo_agent.agent.run.regression import Ratio
from pgo_agent.sandbox.json_codec import Record

LEVEL = 0.95
FEWEST = 6  # turns that can tell anything
EPS = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
ALLOWED = 8  # units in the last place that the mean square error of a whole program may be, or twice its own noise


@dataclass(frozen=True)
class Output(Record):
    """One output of the program, with the patch against without."""

    name: str
    problem: str  # empty: none
    exact: bool
    largest: float  # error
    relative: float  # root of the mean square error, as a part of the output's own
    allowed: float  # of that
    noise: float  # the same of the program against itself


@dataclass(frozen=True)
class Proved(Record):
    """The verdict, with what it rests on."""

    program: str
    patch: str
    verdict: str  # faster, slower, no_difference, other_outputs
    ratio: Ratio  # times faster with the patch: low, middle, high
    itself: Ratio  # the program against itself
    seconds: dict[str, list[float]]  # side -> of a step, or of the whole program, for each process
    of_steps: bool
    outputs: tuple[Output, ...] = field(default=())


def interval(ratios: Sequence[float]) -> Ratio:
    """Return the median and the interval of ratios that covers their true median with LEVEL; all of them if they are
    too few for that."""
    ordered, n = sorted(ratios), len(ratios)
    k = 0
    while 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n <= 1 - LEVEL:
        k += 1
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return ordered[max(k - 1, 0)], middle, ordered[n - max(k, 1)]


def verdict(ratio: Ratio, itself: Ratio, turns: int, outputs: Sequence[Output]) -> str:
    """Return what came out: a whole interval must lie beyond what the program differs from itself by."""
    noise = max(itself[1], 1 / itself[1])
    if any(o.problem for o in outputs):
        return "other_outputs"
    if turns < FEWEST:
        return "no_difference"
    return "faster" if ratio[0] > noise else "slower" if ratio[2] < 1 / noise else "no_difference"
