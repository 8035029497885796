"""How far a tensor lies from float64 values: over all of it, run by run of neighbours, and to which side.

Measures alone: what is too far is `numerics.py`'s. A figure over all elements hides what is wrong in few of them, and
one without a sign hides that all errors have the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

CHUNK = 1 << 24  # elements compared at a time; whole runs
RUN = 256  # neighbouring elements, in the order of the logical tensor, that are looked at by themselves
RUNS, LEANING_RUNS = 64, 16  # so many there must be, for the largest of a figure, or a mean, to be no matter of chance
SMALL = 0.25  # of the mean over runs: a run of less magnitude counts as of this, for its errors may be of cancellation
NARROW = 2  # bytes of an element at most, where a result's rounding outweighs what was computed with
CLIP = 2.0  # half units in the last place: one far value says no more of a lean than this


@dataclass(frozen=True)
class Runs:
    """Of all runs the largest error, as a share of what the run holds."""

    count: int
    worst: float  # max |x - ref64| of a run over its max |ref64|
    mean: float  # mean |x - ref64| of a run over its mean |ref64|


@dataclass(frozen=True)
class Lean:
    """Mean of signed errors, each in half units in the last place of its reference: near 0 of any rounding to nearest,
    near 1 where digits are cut off. With the standard error that its spread over runs gives.
    """

    outward: float  # away from zero; below 0: towards it
    upward: float
    sigma_outward: float
    sigma_upward: float

    @property
    def most(self) -> tuple[float, float]:
        """The larger of both, without its sign, and the standard error of that."""
        return max((abs(self.outward), self.sigma_outward), (abs(self.upward), self.sigma_upward))


@dataclass(frozen=True)
class Error:
    worst: float  # max |x - ref64| over finite elements
    mean: float  # mean |x - ref64| over finite elements
    misplaced: int  # elements that are NaN or infinite where the other is not, or another infinity
    runs: Runs | None = None  # None: too few elements
    lean: Lean | None = None  # None: too few elements, or of a type wider than NARROW

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"max": self.worst, "mean": self.mean, "misplaced": self.misplaced}
        runs = {"runs": {"count": self.runs.count, "max": self.runs.worst, "mean": self.runs.mean}} if self.runs else {}
        return told | runs | ({"lean": self.lean.most[0]} if self.lean else {})


def compare(x: Any, exact: Any, kinds: bool = True) -> Error:
    """The error of `x` against float64 values of its shape, which may lie in host memory; of no elements it is 0.

    `kinds`: NaN and each infinity are told apart. Not under a stress input: once an infinity is in a sum, its order
    decides which of them comes out.
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
    found = torch.cat(runs, 1) if runs else torch.zeros(7, 0)
    return Error(worst, total / max(finite, 1), misplaced, _runs(found), _lean(found) if narrow else None)


def chunks(x: Any, exact: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of pieces of both, flat, in float64 (of integers in int64), on the device of `x`."""
    a, e = x.detach().reshape(-1), exact.reshape(-1)
    wide = torch.float64 if a.is_floating_point() or e.is_floating_point() else torch.int64
    for i in range(0, a.numel(), CHUNK):
        yield a[i : i + CHUNK].to(wide), e[i : i + CHUNK].to(a.device, wide)


def _of_runs(signed: Any, exact: Any, dtype: Any) -> Iterator[Any]:
    """Figures of every run, a column each: errors and magnitudes, max and mean, then what leans and of how many.

    What is left over at the end is looked at together with the elements before it.
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
    """Sums over runs of errors in half units in the last place, outward and upward, and of how many elements."""
    info = torch.finfo(dtype)
    size = exact.abs()
    counts = (size >= info.tiny) & (size <= info.max)
    _, exponent = torch.frexp(torch.where(counts, size, 1.0))
    half = torch.ldexp(torch.full_like(size, info.eps / 4), exponent)  # frexp's mantissa is below 1
    units = torch.where(counts, (signed / half).clamp(-CLIP, CLIP), 0.0)
    return (units * exact.sign()).sum(1), units.sum(1), counts.sum(1).to(units.dtype)


def _runs(found: Any) -> Runs | None:
    count = found.shape[1]
    if count < RUNS:
        return None
    worst, largest, mean, size = found[:4]
    shares = [_share(worst, largest), _share(mean, size)]
    return Runs(count, *shares)


def _share(error: Any, size: Any) -> float:
    least = float(size.mean()) * SMALL
    return float((error / size.clamp_min(least)).max()) if least else 0.0


def _lean(found: Any) -> Lean | None:
    outward, upward, number = (row[found[6] > 0] for row in found[4:7])
    if len(number) < LEANING_RUNS:
        return None
    means = [float(s.sum() / number.sum()) for s in (outward, upward)]
    sigmas = [float((s / number).std()) / len(number) ** 0.5 for s in (outward, upward)]
    return Lean(*means, *sigmas)
