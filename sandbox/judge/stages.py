"""The stages of the gate that need a GPU: smoke, quick time, numerics, time. Each answers a verdict or goes on.

Cheap first. The seeds are drawn after the bundle was read. `announce(stage, seconds)` is called before anything that a
candidate's kernel could keep from ending: the process outside kills this one when the time is over.
"""

import math
import secrets
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox.bundle.check import Bundle
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import numerics, stats, timing
from pgo_agent.sandbox.judge.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.replay import LARGE, NAN, Replay, paired

Announce = Callable[[str, float], None]
Pick = Mapping[str, tuple[Bundle, str]]  # case -> a bundle and the configuration of it to launch

QUICK_ROUNDS, FULL_ROUNDS, EXTRA_ROUNDS = 6, 24, 36
REGRESSION = 0.98  # no case may be surely slower than this
NOISE_FLOOR = 0.003  # a gain below it is not called one, however sure: A/A runs differ by as much
LAUNCH_SECONDS = 20.0  # deadline for the launches of one step
REFERENCE_SECONDS = 180.0


@dataclass
class Bench:
    """What a judge process holds: the target, its cases, the GPU, and expected results of this batch's seeds."""

    target: ModuleType
    cases: Mapping[str, dict[str, Any]]  # CASES/name or HELD_OUT/name -> parameters
    device: Any
    timer: timing.Timer
    announce: Announce
    peak_flops: float  # no kernel is faster than this, FLOP/s
    peak_bytes: float  # bytes/s
    expected: dict[tuple[str, int], Expected] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    verified: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (bundle, case, choice) -> checksum

    @property
    def deterministic(self) -> bool:
        return not getattr(self.target, "NONDETERMINISTIC", False)

    def new_seeds(self) -> None:
        """Fresh secret seeds for the bundles that were just read. Forgets the expected results of the old ones."""
        self.expected.clear()
        self.verified.clear()
        self.seeds = {case: secrets.randbits(48) for case in self.cases}

    def inputs(self, case: str, seed: int) -> dict[str, Any]:
        return numerics.make_inputs(self.target, self.cases[case], seed, self.device)

    def expect(self, case: str) -> Expected:
        key = case, self.seeds[case]
        if key not in self.expected:
            self.announce(f"reference {case}", REFERENCE_SECONDS)
            self.expected[key] = numerics.expect(self.target, case, self.cases[case], key[1], self.device)
        return self.expected[key]

    def replay(self, pick: Pick, case: str, seed: int) -> Replay:
        bundle, choice = pick[case]
        return Replay(bundle, bundle.plans[case][choice], self.inputs(case, seed), self.device)

    def floor_ms(self, case: str) -> float:
        """The time that no kernel can beat on this device, by its peak rates."""
        flops, moved = self.target.flops(self.cases[case]), self.target.bytes_moved(self.cases[case])
        return 1e3 * float(max(flops / self.peak_flops, moved / self.peak_bytes))


def check_case(bench: Bench, pick: Pick, case: str, stage: str) -> tuple[Verdict | None, Comparison]:
    """One case in full: poisoned twice, repeats equal, inputs unchanged, error within bounds. (None: all is well.)"""
    expected = bench.expect(case)
    bench.announce(f"{stage} {case}", LAUNCH_SECONDS)
    replay = bench.replay(pick, case, expected.seed)
    try:
        runs = []
        for pattern in (NAN, LARGE):
            replay.poison(pattern)
            replay()
            torch.cuda.synchronize()
            runs.append(timing.checksum(replay.outputs))
        found = numerics.check(replay.outputs, expected, getattr(bench.target, "TOLERANCE", None))
        if found.problem:
            return Verdict.WRONG, found
        if bench.deterministic and int(runs[0]) != int(runs[1]):
            return Verdict.RACE, _with(found, "two runs on the same inputs gave different outputs")
        if not _unchanged(bench, replay, case, expected.seed):
            return Verdict.CHEATING, _with(found, "the inputs were changed")
        bench.verified[_key(pick, case)] = int(runs[1])
        return None, found
    finally:
        replay.close()


def _key(pick: Pick, case: str) -> tuple[str, str, str]:
    return pick[case][0].id, case, pick[case][1]


def _unchanged(bench: Bench, replay: Replay, case: str, seed: int) -> bool:
    """Makes the inputs again from the seed: a copy in GPU memory could have been changed along with them."""
    again = bench.inputs(case, seed)
    return all(_bits_equal(replay.view(t), given) for t, given in paired(replay.plan, again))


def _bits_equal(a: Any, b: Any) -> bool:
    return bool(torch.equal(_bytes(a), _bytes(b)))


def _bytes(t: Any) -> Any:
    return t.contiguous().reshape(-1).view(torch.uint8)


def _with(found: Comparison, problem: str) -> Comparison:
    return Comparison(found.case, found.seed, found.errors, found.bounds, problem)


# time -----------------------------------------------------------------------------------------------------------------


def time_sides(
    bench: Bench,
    sides: Mapping[str, Pick],
    case: str,
    rounds: int,
    stage: str,
    extra: Mapping[str, Callable[..., object]] | None = None,
) -> dict[str, timing.Side]:
    """Times the sides (and library calls in `extra`) in one session. The first side runs a second time, as 'A/A'.

    The side called 'candidate' gets the inputs that its results were verified on; all others get seeds of their own.
    Raises Inconsistent when a timed launch gave other outputs than it should.
    """
    picks = dict(sides) | {"A/A": next(iter(sides.values()))}
    seeds = {n: bench.seeds[case] if n == "candidate" else secrets.randbits(48) for n in picks}
    bench.announce(f"{stage} {case}", LAUNCH_SECONDS + 2.0 * rounds)
    opened = [timing.side(n, bench.replay(p, case, seeds[n]), bench.deterministic) for n, p in picks.items()]
    for name, function in (extra or {}).items():
        given = bench.inputs(case, secrets.randbits(48))
        opened.append(timing.Side(name, lambda f=function, g=given: f(**g)))  # type: ignore[misc]
    try:
        bench.timer.run(opened, rounds)
        for s in opened:
            verified = bench.verified.get(_key(picks[s.name], case)) if s.name == "candidate" else None
            if not s.consistent(verified):
                raise Inconsistent(f"{case}: a timed launch of {s.name} gave other outputs than were verified")
        return {s.name: s for s in opened}
    finally:
        for s in opened:
            if s.replay is not None:
                s.replay.close()


class Inconsistent(Exception):
    """A timed launch gave other outputs than the rest of its side's."""


def verdict_on_time(
    bench: Bench, times: Mapping[str, Mapping[str, Sequence[float]]], base: str, weights: Mapping[str, float] | None
) -> tuple[Verdict, str, dict[str, Any]]:
    """Accepted or slower, from samples[case][side]. Faster than the physical floor is cheating."""
    for case, sides in times.items():
        best, floor = statistics.median(sides["candidate"]), bench.floor_ms(case)
        if best < floor:
            return Verdict.CHEATING, f"{case}: {best:.4f} ms is below the physical floor of {floor:.4f} ms", {}
    gain = stats.geomean({c: (s[base], s["candidate"]) for c, s in times.items()}, weights)
    noise = stats.geomean({c: (s[base], s["A/A"]) for c, s in times.items()}, weights)
    cases = {c: stats.ratio(s[base], s["candidate"]) for c, s in times.items()}
    threshold = 1 + max(NOISE_FLOOR, abs(math.log(noise.mid)), math.log(noise.high) - math.log(noise.mid))
    found = {
        "speedup": gain.as_json(),
        "noise": noise.as_json(),
        "threshold": round(threshold, 6),
        "cases": {c: i.as_json() for c, i in cases.items()},
    }
    worst = min(cases, key=lambda c: cases[c].mid)
    if cases[worst].high < REGRESSION:
        return Verdict.SLOWER, f"{worst} is {cases[worst].mid:.3f}x of the incumbent", found
    if gain.low > threshold:
        return Verdict.ACCEPTED, f"{gain.mid:.3f}x [{gain.low:.3f}, {gain.high:.3f}] of the incumbent", found
    return Verdict.SLOWER, f"{gain.mid:.3f}x [{gain.low:.3f}, {gain.high:.3f}] is not above {threshold:.3f}", found
