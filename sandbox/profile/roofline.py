"""A case's roofline: the work that its target says it needs, its time, and what this GPU was seen to reach.

After Williams, Waterman and Patterson, "Roofline" (2009): work that has to do so many operations and to move so many
bytes takes at least as long as the slower of both. The target's own functions say the work, in the tracer's box;
the judge measures the peaks (`sandbox/judge/timing/measured_peaks.py`). Nothing here runs a kernel or imports a target.

A share above 1 is possible where a case fits the L2, whose bytes come faster than device memory's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.json_codec import Malformed, Record
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.questions import PeakRates
from pgo_agent.sandbox.profile import memo
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.kernel_profile import Missing, Roofline
from pgo_agent.sandbox.profile.static import CannotTrace

NAME = "roofline"


@dataclass(frozen=True)
class Work(Record):
    """What a case needs, by its target."""

    flops: float  # floating point operations
    bytes: float  # through device memory, at least


@dataclass(frozen=True)
class Floor(Record):
    """The least time of a case's work by a device's data sheet: an estimate. Nothing was timed."""

    flops: float
    bytes: float
    peak_flops: float  # FLOP/s of fp16 tensor instructions
    peak_bytes: float  # bytes/s of device memory
    seconds: float

    @property
    def bound(self) -> str:
        """What would hold a perfect kernel back: `compute` or `memory`."""
        return "compute" if self.flops / self.peak_flops >= self.bytes / self.peak_bytes else "memory"


def floor(work: Work, device: Device) -> Floor | None:
    """Return the floor of a case; None for no work at all."""
    peaks = device.fp16_tflops * 1e12, device.gbps * 1e9
    seconds = max(work.flops / peaks[0], work.bytes / peaks[1])
    return Floor(work.flops, work.bytes, *peaks, seconds) if seconds else None


def roofline(flops: float, moved: float, seconds: float, how: str, peaks: PeakRates) -> Roofline:
    """Return the roofline of `flops` operations and `moved` bytes in `seconds`; `how`: where the seconds are from.

    Raises ValueError for no work at all, and for a time or a peak that is not above zero.
    """
    if not (flops >= 0 and moved >= 0 and flops + moved > 0):
        raise ValueError(f"{flops} operations and {moved} bytes are no work")
    if not (seconds > 0 and peaks.flops > 0 and peaks.moved > 0):
        raise ValueError(f"{seconds} s at {peaks.flops} FLOP/s and {peaks.moved} bytes/s")
    return Roofline(flops, moved, seconds, how, peaks.flops, peaks.moved)


def of_case(work: Work | Missing, seconds: float, how: str, peaks: PeakRates | Missing) -> Roofline | Missing:
    """Return the roofline of a case's work, or why there is none. Raises ValueError as `roofline` does."""
    if isinstance(work, Missing):
        return work
    if isinstance(peaks, Missing):
        return peaks
    return roofline(work.flops, work.bytes, seconds, how, peaks)


def peaks_of(judge: Judge, case: str) -> PeakRates | Missing:
    """Return what the judge's GPU reaches with the types of a case ("CASES/8k").

    Raises what asking a judge raises: Ended, TargetFault, EnvironmentFault, Killed.
    """
    answer = judge.ask(questions.Peaks(case))
    return Missing(NAME, answer.problem) if isinstance(answer, questions.Problem) else answer


def work_of(bench: Workbench, case: str) -> Work | Missing:
    """Return what the target says of a case ("CASES/8k"), or why it says nothing. Raises Killed, EnvironmentFault."""
    try:
        by_case = works(bench, bench.builder.target.source, bench.builder.target.contract)
    except (CannotTrace, Malformed) as e:
        return Missing(NAME, f"the target does not say what work its cases are: {e}")
    work = by_case.get(case)
    if work is None or not work.flops + work.bytes > 0:
        return Missing(NAME, f"the target tells no work of {case}: neither operations nor bytes")
    return work


@memo.kept("pgo_agent.sandbox.profile.roofline.works", version=1)
def works(bench: Workbench, source: str, contract: str) -> dict[str, Work]:
    """Return the work of every case of a target, by the target's `flops` and `bytes_moved`, called in the tracer's box.

    `source` and `contract` are the target's texts, the key of the answer. Raises CannotTrace where they fail, Malformed
    where they give what is no number, Killed and EnvironmentFault as the box does.
    """
    b = bench.builder
    traced = trace_and_compile.trace(b.box, b.contents, b.target, b.device, source, {}, None)
    if "error" in traced:
        raise CannotTrace(traced["error"]["message"])
    return of_described(traced["described"])


def of_described(described: Any) -> dict[str, Work]:
    """Return the work that left the box, checked to be numbers. Raises Malformed."""
    sets = described.get("work") if isinstance(described, Mapping) else None
    if not isinstance(sets, Mapping) or not all(isinstance(cases, Mapping) for cases in sets.values()):
        raise Malformed("the tracer told no work")
    by_case = {f"{kind}/{name}": Work.from_json(w) for kind, cases in sets.items() for name, w in cases.items()}
    if any(not (w.flops >= 0 and w.bytes >= 0) for w in by_case.values()):
        raise Malformed("operations or bytes below zero")
    return by_case
