"""Measures the error of a tensor against float64 values: over all of it, for runs of neighbours, and by sign.

A figure over all elements hides errors in a few of them, and one without a sign hides a common sign. Does not judge:
bounds are in `numerics.py` and `error_bounds.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.results import sealed

RUN = 256  # neighbouring elements, in the order of the logical tensor, that get their own figures
RUNS, LEANING_RUNS = 64, 16  # least number of runs for a maximum, and for a mean, not left to chance
SMALL = 0.25  # of the mean over runs: least magnitude that a run counts as; errors below may be cancellation
NARROW = 2  # bytes of an element at most, where a result's rounding outweighs what was computed with
CLIP = 2.0  # half units in the last place: limit for one element of a lean


@dataclass(frozen=True)
class Runs:
    """The largest relative error of any run."""

    count: int
    worst: float  # max |x - ref64| of a run over its max |ref64|
    mean: float  # mean |x - ref64| of a run over its mean |ref64|


@dataclass(frozen=True)
class Lean:
    """Mean signed error, in half units in the last place of the reference, with its standard error over runs.

    Near 0 for rounding to nearest, near 1 where digits are cut off.
    """

    outward: float  # away from zero; below 0: towards it
    upward: float
    sigma_outward: float
    sigma_upward: float

    @property
    def most(self) -> tuple[float, float]:
        """Return the larger absolute value of both, and its standard error."""
        return max((abs(self.outward), self.sigma_outward), (abs(self.upward), self.sigma_upward))


@dataclass(frozen=True)
class Error:
    """The error of one tensor."""

    worst: float  # max |x - ref64| over finite elements
    mean: float  # mean |x - ref64| over finite elements
    misplaced: int  # elements that are NaN or infinite where the other is not, or another infinity
    runs: Runs | None = None  # None: too few elements
    lean: Lean | None = None  # None: too few elements, or of a type wider than NARROW

    def as_json(self) -> JsonObject:
        figures: JsonObject = {"max": self.worst, "mean": self.mean, "misplaced": self.misplaced}
        runs = {"runs": {"count": self.runs.count, "max": self.runs.worst, "mean": self.runs.mean}} if self.runs else {}
        return figures | runs | ({"lean": self.lean.most[0]} if self.lean else {})


def compare(x: Any, exact: Any, kinds: bool = True) -> Error:
    """Return the error of `x` against float64 values of its shape, which may be sealed; 0 for no elements.

    `kinds`: whether NaN and each infinity count as different. They do not under a stress input: with an infinity in a
    sum, the order decides which of them comes out.
    """
    worst, total, finite, misplaced = 0.0, 0.0, 0, 0
    narrow = x.is_floating_point() and x.element_size() <= NARROW
    runs: list[Any] = []
    for a, e in chunks(x, exact):
        fine = torch.isfinite(a) & torch.isfinite(e)
        same = fine | (a == e) | (torch.isnan(a) & torch.isnan(e))
        if not kinds:
            same = same | ~(torch.isfinite(a) | torch.isfinite(e))
        signed = torch.where(fine, (a - e).double(), 0.0)
        difference = signed.abs()
        worst = max(worst, float(difference.max()))
        total, finite, misplaced = (
            total + float(difference.sum()),
            finite + int(fine.sum()),
            misplaced + int((~same).sum()),
        )
        if x.is_floating_point():
            runs += _of_runs(signed, torch.where(fine, e.double(), 0.0), x.dtype if narrow else None)
    columns = torch.cat(runs, 1) if runs else torch.zeros(7, 0)
    return Error(worst, total / max(finite, 1), misplaced, _runs(columns), _lean(columns) if narrow else None)


def chunks(x: Any, exact: Any) -> Iterator[tuple[Any, Any]]:
    """Give pairs of flat pieces of both, in float64 (integers: int64), on the device of `x`."""
    flat, at = x.detach().reshape(-1), 0
    wide = torch.float64 if x.is_floating_point() or exact.dtype.is_floating_point else torch.int64
    for e in sealed.pieces(exact, x.device):
        yield flat[at : at + len(e)].to(wide), e.to(wide)
        at += len(e)


def _of_runs(signed: Any, exact: Any, dtype: Any) -> Iterator[Any]:
    """Give (7, runs): max error, max magnitude, mean error, mean magnitude, then the three rows of `_leaning`.

    A rest at the end is joined with the elements before it.
    """
    whole = signed.numel() // RUN * RUN
    places = [slice(0, whole)] if whole else []
    if signed.numel() > whole > 0:
        places.append(slice(signed.numel() - RUN, signed.numel()))
    for at in places:
        s, e = signed[at].view(-1, RUN), exact[at].view(-1, RUN)
        error, size = s.abs(), e.abs()
        none = torch.zeros(len(s), device=s.device, dtype=s.dtype)
        lean = _leaning(s, e, dtype) if dtype else (none, none, none)
        yield torch.stack([error.amax(1), size.amax(1), error.mean(1), size.mean(1), *lean])


def _leaning(signed: Any, exact: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """Return for each run the sums of errors in half units in the last place, outward and upward, and the count."""
    info = torch.finfo(dtype)
    size = exact.abs()
    counts = (size >= info.tiny) & (size <= info.max)
    _, exponent = torch.frexp(torch.where(counts, size, 1.0))
    half = torch.ldexp(torch.full_like(size, info.eps / 4), exponent)  # frexp's mantissa is below 1
    units = torch.where(counts, (signed / half).clamp(-CLIP, CLIP), 0.0)
    return (units * exact.sign()).sum(1), units.sum(1), counts.sum(1).to(units.dtype)


def _runs(columns: Any) -> Runs | None:
    count = columns.shape[1]
    if count < RUNS:
        return None
    worst, largest, mean, size = columns[:4]
    shares = [_share(worst, largest), _share(mean, size)]
    return Runs(count, *shares)


def _share(error: Any, size: Any) -> float:
    least = float(size.mean()) * SMALL
    return float((error / size.clamp_min(least)).max()) if least else 0.0


def _lean(columns: Any) -> Lean | None:
    outward, upward, number = (row[columns[6] > 0] for row in columns[4:7])
    if len(number) < LEANING_RUNS:
        return None
    means = [float(s.sum() / number.sum()) for s in (outward, upward)]
    sigmas = [float((s / number).std()) / len(number) ** 0.5 for s in (outward, upward)]
    return Lean(*means, *sigmas)
