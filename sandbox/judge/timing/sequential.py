"""The stage `time`: rounds in lots until the samples tell, on a GPU that nobody slows down in the meantime.

A lot in which the incumbent's own time moved, or in which the driver says that the GPU throttled, is thrown away and
taken again a few times; then the outcome is `undecided`. Whoever is called faster has to be it, too, when each side
runs by itself: a candidate may slow down what runs beside it. Arithmetic is `verdict.py`'s.
"""

import shutil
import statistics
import subprocess
from collections.abc import Mapping
from typing import Any

import torch
from pgo_agent.sandbox.gate.reason import NONE, Reason, plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.timing import bootstrap, measured_peaks, session, timer
from pgo_agent.sandbox.judge.timing import verdict as timing_verdict

LOTS = (12, 12, 24, 36)  # rounds; after each the samples are looked at
BURSTS, BURST = 4, 6  # of each side alone, and rounds of one
ALONE = 6  # times as many at most, until it is sure
DISTURBED = 3  # lots that may be thrown away
# Bits of NVML's nvmlClocksEventReasons: hardware slowdown, software and hardware thermal slowdown, power brake. The
# software power cap is none of them: a large matrix product is always under it.
THROTTLED = 0x08 | 0x20 | 0x40 | 0x80
Times = dict[str, dict[str, list[float]]]  # case -> side -> ms


def run(
    bench: TargetSession,
    sides: Mapping[str, Pick],
    cases: list[str],
    weights: Mapping[str, float] | None,
    right: Judgement,
) -> Judgement:
    """Times the side `candidate` against `incumbent`, and the others beside them. Raises `session.Inconsistent`.

    `right`: what says that the candidate's results are right; the verdict has its evidence and its coverage, too.
    """
    times: Times = {c: {} for c in cases}
    thrown: list[str] = []
    verdict, why, gain = Verdict.UNDECIDED, NONE, dict[str, Any]()
    for rounds in LOTS:
        lot = _lot(bench, sides, cases, rounds, thrown)
        if lot is None:
            verdict, why = Verdict.UNDECIDED, plain(f"the GPU is disturbed: {thrown[-1]}")
            break
        for case, timed in lot.items():
            for name, ms in timed.items():
                times[case].setdefault(name, []).extend(ms)
        verdict, why, gain = _look(bench, times, weights)
        if verdict != Verdict.UNDECIDED:
            break
    alone: dict[str, Any] = {}
    if verdict == Verdict.ACCEPTED:
        problem, alone = _alone(bench, sides, cases, gain["speedup"][1], weights)
        if problem:
            verdict, why = Verdict.UNDECIDED, plain(problem)
    evidence = gain | alone | {"against": _against(times, sides, weights), "time": times, "disturbed": thrown}
    return Judgement(verdict, "time", why, right.evidence | evidence, right.coverage)


def _alone(
    bench: TargetSession, sides: Mapping[str, Pick], cases: list[str], gain: float, weights: Mapping[str, float] | None
) -> tuple[str, dict[str, Any]]:
    """What speaks against a gain when bursts of the incumbent alone and of the candidate alone are timed, in turns."""
    bursts: Times = {c: {"incumbent": [], "candidate": []} for c in cases}
    problem, told = "", dict[str, Any]()
    for _ in range(ALONE):
        for case, found in bursts.items():
            for _ in range(BURSTS):
                for name, ms in found.items():
                    one = {name: sides[name]}
                    ms.append(statistics.median(_samples(bench, one, case, BURST, control=False)[name]))
        problem, sure, told = timing_verdict.alone(bursts, "incumbent", gain, weights, ALONE)
        if sure:
            break
    return problem, told


def _look(
    bench: TargetSession, times: Times, weights: Mapping[str, float] | None
) -> tuple[Verdict, Reason, dict[str, Any]]:
    def told() -> tuple[Verdict, Reason, dict[str, Any]]:
        return timing_verdict.on_time(times, {c: bench.floor_ms(c) for c in times}, "incumbent", weights, len(LOTS))

    found = told()
    if found[0] == Verdict.CHEATING:  # maybe the peaks were measured on a busy GPU
        bench.peaks = measured_peaks.measured(bench.device, bench.peaks)
        found = told()
    return found


def _lot(
    bench: TargetSession, sides: Mapping[str, Pick], cases: list[str], rounds: int, thrown: list[str]
) -> Times | None:
    """The samples of an undisturbed lot; None when too many were disturbed."""
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
    """What the driver says of a GPU that slows itself down; empty when it does not, or cannot be asked."""
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
