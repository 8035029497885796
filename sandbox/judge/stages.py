"""What the stages of the gate that need a GPU compare: smoke, numerics, strains, idle launches. Time is `session.py`'s.

Cheap first. The seeds are drawn after the bundle was read. `announce(stage, seconds)` is called before anything that a
candidate's kernel could keep from ending: the process outside kills this one when the time is over.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import guards
from pgo_agent.sandbox.bundle.check import Bundle
from pgo_agent.sandbox.bundle.schema import Launch
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import numerics, timing
from pgo_agent.sandbox.judge.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.peaks import Peaks
from pgo_agent.sandbox.judge.replay import LARGE, NAN, Replay, paired, synchronize
from pgo_agent.sandbox.judge.spread import Spread
from pgo_agent.sandbox.judge.strains import LOOSER, OWN_RATIO, STRAINS, Strain

Announce = Callable[[str, float], None]
Pick = Mapping[str, tuple[Bundle, str]]  # case -> a bundle and the configuration of it to launch

QUICK_ROUNDS = 6
STEP_SECONDS = 10.0  # deadline of what a step does beside its launches
LAUNCH_SECONDS = 4.0  # deadline of the launches of a case, which take milliseconds: what a hang costs
REFERENCE_SECONDS = 180.0


@dataclass
class Bench:
    """What a judge process holds: the target, its cases, the GPU, and expected results of this batch's seeds."""

    target: ModuleType
    cases: Mapping[str, dict[str, Any]]  # CASES/name or HELD_OUT/name -> parameters
    device: Any
    timer: timing.Timer
    announce: Announce
    peaks: Peaks
    expected: dict[tuple[str, int], Expected] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    verified: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (bundle, case, choice) -> checksum
    narrow: dict[str, bool] = field(default_factory=dict)  # case -> what `is_narrow` said
    strained: dict[tuple[str, str], Expected | str] = field(default_factory=dict)  # (case, strain) -> or why it is none
    spread: Spread = field(init=False)

    def __post_init__(self) -> None:
        self.spread = Spread(self.target, self.device)

    @property
    def deterministic(self) -> bool:
        return not getattr(self.target, "NONDETERMINISTIC", False)

    def new_seeds(self) -> None:
        """Fresh secret seeds for the bundles that were just read. Forgets the expected results of the old ones."""
        self.expected.clear()
        self.verified.clear()
        self.seeds = {case: secrets.randbits(48) for case in self.cases}

    def inputs(self, case: str, seed: int, strain: Strain | None = None) -> dict[str, Any]:
        return numerics.make_inputs(self.target, self.cases[case], seed, self.device, strain)

    def expect(self, case: str) -> Expected:
        key = case, self.seeds[case]
        if key not in self.expected:
            self.announce(f"reference {case}", REFERENCE_SECONDS)
            self.expected[key] = self.spread.expect(case, self.cases[case], key[1])
        return self.expected[key]

    def replay(self, pick: Pick, case: str, seed: int, strain: Strain | None = None) -> Replay:
        bundle, choice = pick[case]
        return Replay(bundle, bundle.plans[case][choice], self.inputs(case, seed, strain), self.device)

    def launch(self, replay: Replay, step: str) -> None:
        """One replay to its end, with a deadline of its own; what follows has that of a step."""
        self.announce(step, LAUNCH_SECONDS)
        replay()
        synchronize(self.device)
        self.announce(step, STEP_SECONDS)

    def floor_ms(self, case: str) -> float:
        """The time that no kernel can beat on this device, by what was measured of it."""
        work = self.cases[case]
        flops, moved = float(self.target.flops(work)), float(self.target.bytes_moved(work))
        l2 = torch.cuda.get_device_properties(self.device).L2_cache_size
        return self.peaks.floor_ms(flops, moved, self.is_narrow(case), l2)

    def is_narrow(self, case: str) -> bool:
        """Whether a case is given tensors of one-byte types."""
        if case not in self.narrow:
            given = self.inputs(case, 0).values()
            self.narrow[case] = any(isinstance(x, torch.Tensor) and x.element_size() == 1 for x in given)
        return self.narrow[case]


def check_case(bench: Bench, pick: Pick, case: str, stage: str) -> tuple[Verdict | None, Comparison]:
    """One case in full: poisoned twice, repeats equal, inputs unchanged, nothing written outside, error within bounds.

    (None, what was compared) when all is well. Strained inputs are `check_strained`'s.
    """
    expected = bench.expect(case)
    step = f"{stage} {case}"
    bench.announce(step, STEP_SECONDS)
    replay = bench.replay(pick, case, expected.seed)
    try:
        runs, stray = [], 0
        for pattern in (NAN, LARGE):
            replay.poison(pattern)
            bench.launch(replay, step)
            runs.append(timing.checksum(replay.outputs))
            stray = max(stray, replay.stray())
        found = numerics.check(replay.outputs, expected, getattr(bench.target, "TOLERANCE", None))
        if found.problem:
            return Verdict.WRONG, found
        if stray:
            return Verdict.WRONG, _with(found, guards.said(stray))
        if bench.deterministic and int(runs[0]) != int(runs[1]):
            return Verdict.RACE, _with(found, "two runs on the same inputs gave different outputs")
        if not _unchanged(bench, replay, case, expected.seed):
            return Verdict.CHEATING, _with(found, "the inputs were changed")
        bench.verified[verified_key(pick, case)] = int(runs[1])
        return None, found
    finally:
        replay.close()


def check_strained(
    bench: Bench, pick: Pick, own: Pick, stage: str
) -> tuple[Verdict | None, list[Comparison], list[dict[str, str]]]:
    """One case under every strain that the target's own kernel, as shipped, bears: `own` holds it for some cases.

    The case is the one of `own` with the least work: every strain costs a reference in float64, which takes longer than
    all launches together, and a breakdown needs no large tensors to show. What `own` bears is found out once.
    Gives the verdict (None: all is well), the comparisons up to the failed one, and the strains that do not count.
    """
    case = min((c for c in own if c in pick), key=lambda c: float(bench.target.flops(bench.cases[c])))
    checks: list[Comparison] = []
    dropped: list[dict[str, str]] = []
    for strain in STRAINS:
        expected = _borne(bench, own, case, strain, stage)
        if isinstance(expected, str):
            dropped.append({"case": case, "strain": strain.name, "why": expected})
            continue
        checks.append(_strained(bench, pick, expected, strain, LOOSER, stage))
        if checks[-1].problem:
            return Verdict.WRONG, checks, dropped
    return None, checks, dropped


def _borne(bench: Bench, own: Pick, case: str, strain: Strain, stage: str) -> Expected | str:
    """What a case must give under a strain, or why that does not count. Found out once in a process.

    Candidates get the very inputs that the own kernel bore: on others it might not have borne it.
    """
    key = case, strain.name
    if key not in bench.strained:
        bench.strained[key] = _find_out(bench, own, case, strain, stage)
    return bench.strained[key]


def _find_out(bench: Bench, own: Pick, case: str, strain: Strain, stage: str) -> Expected | str:
    bench.announce(f"reference {case}", REFERENCE_SECONDS)
    try:
        seed = secrets.randbits(48)
        expected = numerics.expect(bench.target, case, bench.cases[case], seed, bench.device, strain)
    except TargetFault as e:
        return e.message
    if not expected.reliable:
        return "the reference breaks down in its own precision"
    expected = numerics.forgiving(expected, bench.expect(case))
    found = _strained(bench, own, expected, strain, OWN_RATIO, stage)
    return f"the target's own kernel: {found.problem}" if found.problem else expected


def _strained(bench: Bench, pick: Pick, expected: Expected, strain: Strain, times: float, stage: str) -> Comparison:
    """One launch on strained inputs, with the usual ratios `times` as large."""
    step = f"{stage} {expected.case}"
    bench.announce(step, STEP_SECONDS)
    replay = bench.replay(pick, expected.case, expected.seed, strain)
    try:
        replay.poison(LARGE)
        bench.launch(replay, step)
        ratios = numerics.looser(getattr(bench.target, "TOLERANCE", None), times)
        found = numerics.check(replay.outputs, expected, ratios)
        stray = replay.stray()
        return _with(found, guards.said(stray)) if stray and not found.problem else found
    finally:
        replay.close()


def outputs_of(bench: Bench, pick: Pick, case: str, launches: int) -> set[int]:
    """Checksums of the outputs of some launches on the same inputs, every buffer poisoned before each."""
    replay = bench.replay(pick, case, bench.seeds[case])
    try:
        seen = set()
        for n in range(launches):
            replay.poison(LARGE if n % 2 else NAN)
            replay()
            synchronize(bench.device)
            seen.add(int(timing.checksum(replay.outputs)))
        return seen
    finally:
        replay.close()


def idle_launches(bench: Bench, pick: Pick, case: str) -> list[str]:
    """Names of the kernels without whose launch the outputs are what they are with it, to the bit.

    Buffers are left at zero first, and only for one that seems idle then at another pattern: what an index is read
    from must not send a kernel astray. A kernel that only writes zeros is not idle.
    """
    replay = bench.replay(pick, case, bench.seeds[case])
    try:
        seen = {p: _outputs_without(bench, replay, None, p) for p in (0, LARGE)}
        names = [(i, s.kernel) for i, s in enumerate(replay.plan.steps) if isinstance(s, Launch)]
        kernels = pick[case][0].kernels
        return [
            kernels[k].name for i, k in names if all(_outputs_without(bench, replay, i, p) == seen[p] for p in seen)
        ]
    finally:
        replay.close()


def _outputs_without(bench: Bench, replay: Replay, step: int | None, pattern: int) -> int:
    replay.poison(pattern)
    replay(without=step)
    synchronize(bench.device)
    return int(timing.checksum(replay.outputs))


def verified_key(pick: Pick, case: str) -> tuple[str, str, str]:
    """What `Bench.verified` knows the outputs of a pick by: its bundle, the case, and the configuration."""
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
    return replace(found, problem=problem)
