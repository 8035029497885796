"""The stage `time`: takes lots of rounds until the samples decide, on an undisturbed GPU.

A lot is repeated if the incumbent's time moved in it or the GPU throttled; after a few repeats the verdict is
`undecided`. A candidate must also be faster when each side runs alone, because it may slow down what runs beside it.
The arithmetic is in `decision.py`.
"""

import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pgo_agent.sandbox.gate.reason import NONE, Reason, plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.timing import bootstrap, measured_peaks, regression, session, timer
from pgo_agent.sandbox.judge.timing import decision as timing_verdict

LOTS = (12, 12, 24, 36)  # rounds of each lot; then the samples are evaluated
BURSTS, BURST = 4, 6  # bursts of each side alone, and rounds of a burst
ALONE = 6  # times as many bursts at most, until the result is sure
DISTURBED = 3  # lots that may be repeated
# Bits of NVML's nvmlClocksEventReasons: hardware slowdown, software and hardware thermal slowdown, power brake. The
# software power cap is none of them: a large matrix product is always under it.
THROTTLED = 0x08 | 0x20 | 0x40 | 0x80
Times = dict[str, dict[str, list[float]]]  # case -> side -> ms


def run(
    bench: TargetSession,
    sides: Mapping[str, Pick],
    cases: Sequence[str],
    weights: Mapping[str, float] | None,
    right: Judgement,
    no_slower: bool = False,
) -> Judgement:
    """Time the side `candidate` against `incumbent`, and the other sides beside them. Raises `session.Inconsistent`.

    `right`: the verdict that the results are right; its evidence and coverage go into the new verdict. `no_slower`:
    ask whether it is slower, and not whether it is faster.
    """
    times: Times = {c: {} for c in cases}
    thrown: list[str] = []
    verdict, why, gain = Verdict.UNDECIDED, NONE, timing_verdict.Figures()
    for n, rounds in enumerate(LOTS, 1):
        lot = _lot(bench, sides, cases, rounds, thrown)
        if lot is None:
            verdict, why = Verdict.UNDECIDED, plain(f"the GPU is disturbed: {thrown[-1]}")
            break
        for case, timed in lot.items():
            for name, ms in timed.items():
                times[case].setdefault(name, []).extend(ms)
        verdict, why, gain = _look(bench, times, weights, no_slower, n == len(LOTS))
        if verdict != Verdict.UNDECIDED:
            break
    alone: JsonObject = {}
    if verdict in (Verdict.ACCEPTED, Verdict.NOT_SLOWER):
        least = timing_verdict.REGRESSION if no_slower else None
        problem, alone = _alone(bench, sides, cases, gain["speedup"][1], weights, least)
        if problem:
            verdict, why = Verdict.UNDECIDED, plain(problem)
    measured = {"against": _against(times, sides, weights), "time": times, "disturbed": thrown}
    return Judgement(verdict, "time", why, {**right.evidence, **gain, **alone, **measured}, right.coverage)


def _alone(
    bench: TargetSession,
    sides: Mapping[str, Pick],
    cases: Sequence[str],
    gain: float,
    weights: Mapping[str, float] | None,
    least: float | None,
) -> tuple[str, JsonObject]:
    """Time bursts of each side alone, in turns. Return what contradicts the gain (or nothing), and the figures.
    `least`: what the ratio must be; None: at least half of the gain."""
    bursts: Times = {c: {"incumbent": [], "candidate": []} for c in cases}
    problem, figures = "", JsonObject()
    for _ in range(ALONE):
        for case, samples in bursts.items():
            for _ in range(BURSTS):
                for name, ms in samples.items():
                    side = {name: sides[name]}
                    ms.append(statistics.median(_samples(bench, side, case, BURST, control=False)[name]))
        problem, sure, figures = timing_verdict.alone(bursts, "incumbent", gain, weights, ALONE, least)
        if sure:
            break
    return problem, figures


def _look(
    bench: TargetSession, times: Times, weights: Mapping[str, float] | None, no_slower: bool, last: bool
) -> tuple[Verdict, Reason, timing_verdict.Figures]:
    def judge() -> tuple[Verdict, Reason, timing_verdict.Figures]:
        floors = {c: bench.floor_ms(c) for c in times}
        if no_slower:
            return regression.on_time(times, floors, "incumbent", weights, len(LOTS), last)
        return timing_verdict.on_time(times, floors, "incumbent", weights, len(LOTS))

    result = judge()
    if result[0] == Verdict.CHEATING:  # the peaks may come from a busy GPU
        bench.peaks = measured_peaks.measured(bench.device, bench.peaks)
        result = judge()
    return result


def _lot(
    bench: TargetSession, sides: Mapping[str, Pick], cases: Sequence[str], rounds: int, thrown: list[str]
) -> Times | None:
    """Return the samples of an undisturbed lot; None when too many were disturbed."""
    while True:
        lot = {c: _samples(bench, sides, c, rounds) for c in cases}
        problem = timing_verdict.disturbed(lot, "incumbent") or throttled(bench.device)
        if not problem:
            return lot
        thrown.append(problem)
        if len(thrown) > DISTURBED:
            return None


def _samples(
    bench: TargetSession, sides: Mapping[str, Pick], case: str, rounds: int, control: bool = True
) -> dict[str, list[float]]:
    return timer.rounded(session.time_sides(bench, sides, case, rounds, "time", control=control))


def _against(times: Times, sides: Mapping[str, Pick], weights: Mapping[str, float] | None) -> dict[str, list[float]]:
    if not all(times.values()):
        return {}
    others = [n for n in sides if n != "candidate"]
    pairs = {n: {c: (s[n], s["candidate"]) for c, s in times.items()} for n in others}
    return {n: bootstrap.geomean(p, weights).as_json() for n, p in pairs.items()}


def throttled(device: Any) -> str:
    """Return the driver's report that the GPU throttles; empty when it does not, or cannot be asked."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    command = [program, "--query-gpu=clocks_event_reasons.active", "--format=csv,noheader", "-i", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        reasons = int(done.stdout.strip(), 16)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return f"the driver says that it throttles (reasons {reasons:#x})" if reasons & THROTTLED else ""
