"""What the stages of the gate that need a GPU compare: smoke, numerics, idle launches. Stress inputs are
`stress_runs.py`'s, time is `session.py`'s.

Cheap first. The seeds are drawn after the bundle was read. `announce(stage, seconds)` is called before anything that a
candidate's kernel could keep from ending: the process outside kills this one when the time is over.
"""

import math
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import guard_zones
from pgo_agent.sandbox.bundle.schema import ITEMSIZE, Launch
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.guard_zones import NAN, ZERO, Fill
from pgo_agent.sandbox.judge.launches.plan_executor import Replay, blocks, paired, synchronize
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.results.reference_error import Spread
from pgo_agent.sandbox.judge.results.stress_inputs import StressInput
from pgo_agent.sandbox.judge.timing import timer as timing
from pgo_agent.sandbox.judge.timing.measured_peaks import Peaks

Announce = Callable[[str, float], None]
Pick = Mapping[str, tuple[Bundle, str]]  # case -> a bundle and the configuration of it to launch

QUICK_ROUNDS = 6
# Times the largest error of one launch that one of many may have, where each adds in another order: of normal errors of
# 4,096 outputs the largest of 300 launches is sqrt(ln(4096 * 300) / ln(4096)) = 1.3 times that of one.
OFTEN = 2.0
STEP_SECONDS = 10.0  # deadline of what a step does beside its launches
LAUNCH_SECONDS = 4.0  # deadline of the launches of a case, which take milliseconds: what a hang costs
REFERENCE_SECONDS = 180.0
KEPT = 4 << 30  # bytes of outputs that are kept on the GPU to be compared together
# What a case is launched on: what the buffers hold before, and the zones around them. NaN shows in every result that it
# gets into, zeros are what fresh memory mostly holds, and of bytes of chance nothing can be foretold.
FILLS: tuple[tuple[Callable[[], Fill], Callable[[], Fill]], ...] = (
    (lambda: NAN, lambda: NAN),
    (lambda: ZERO, Fill),
    (Fill, Fill),
)


@dataclass
class TargetSession:
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
    allowed: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)  # -> largest error of each output
    narrow: dict[str, bool] = field(default_factory=dict)  # case -> what `is_narrow` said
    under_stress: dict[tuple[str, StressInput], Expected | str] = field(
        default_factory=dict
    )  # (case, stress input) -> or why none
    trials: dict[tuple[str, ...], Any] = field(default_factory=dict)  # what `stress_runs.py` drew for some cases
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
        self.allowed.clear()
        self.seeds = {case: secrets.randbits(48) for case in self.cases}

    def inputs(self, case: str, seed: int, stress_input: StressInput | None = None) -> dict[str, Any]:
        return numerics.make_inputs(self.target, self.cases[case], seed, self.device, stress_input)

    def expect(self, case: str) -> Expected:
        key = case, self.seeds[case]
        if key not in self.expected:
            self.announce(f"reference {case}", REFERENCE_SECONDS)
            self.expected[key] = self.spread.expect(case, self.cases[case], key[1])
        return self.expected[key]

    def replay(self, pick: Pick, case: str, seed: int, stress_input: StressInput | None = None) -> Replay:
        bundle, choice = pick[case]
        return Replay(bundle, bundle.plans[case][choice], self.inputs(case, seed, stress_input), self.device)

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


@dataclass
class _Left:
    """What the launches of one configuration left behind."""

    label: str
    runs: list[list[Any]]  # outputs of the runs that are compared, copied
    checksum: int  # of the last run
    verdict: Verdict | None = None  # of what is against it whatever its outputs are
    problem: str = ""


def check_case(bench: TargetSession, pick: Pick, case: str, stage: str) -> tuple[Verdict | None, Comparison]:
    """One configuration of a case, as `check_labels`: (None, what was compared) when all is well."""
    bundle, label = pick[case]
    return check_labels(bench, bundle, case, [label], stage)[-1][1:]


def check_labels(
    bench: TargetSession, bundle: Bundle, case: str, labels: Sequence[str], stage: str
) -> list[tuple[str, Verdict | None, Comparison]]:
    """Configurations of a case in full, up to the first that fails: all memory but the inputs filled in three ways,
    repeats equal, inputs unchanged, nothing read or written outside, error within bounds.

    Each with its verdict (None: all is well). Where outputs may differ from launch to launch every one is compared.
    What is expected comes onto the GPU once for many configurations, when none of them runs. Stress inputs are
    `stress_runs.check_stress_inputs`'s.
    """
    expected, found = bench.expect(case), list[tuple[str, Verdict | None, Comparison]]()
    for some in _batches(bench, bundle, case, labels):
        left = [_launched(bench, bundle, case, label, f"{stage} {case}") for label in some]
        with _nearby(bench, expected, sum(len(x.runs) for x in left)) as near:
            for one in left:
                found.append((one.label, *_compared(bench, one, near)))
                if found[-1][1]:
                    return found
                key = bundle.id, case, one.label
                bench.verified[key] = one.checksum
                bench.allowed[key] = [OFTEN * b[0] for b in found[-1][2].bounds]
    return found


def _batches(bench: TargetSession, bundle: Bundle, case: str, labels: Sequence[str]) -> Iterator[list[str]]:
    """Configurations whose outputs may be kept on the GPU at once."""
    batch, kept = list[str](), 0
    for label in labels:
        outputs = sum(math.prod(t.size) * ITEMSIZE[t.dtype] for t in bundle.plans[case][label].out)
        kept += outputs * (1 if bench.deterministic else len(FILLS))
        if batch and kept > KEPT:
            yield batch
            batch, kept = [], outputs
        batch.append(label)
    yield batch


def _launched(bench: TargetSession, bundle: Bundle, case: str, label: str, step: str) -> _Left:
    bench.announce(step, STEP_SECONDS)
    replay = bench.replay({case: (bundle, label)}, case, bench.seeds[case])
    try:
        fills = [(buffers(), zones()) for buffers, zones in random.SystemRandom().sample(FILLS, len(FILLS))]
        sums, left = list[int](), _Left(label, [], 0)
        for n, (buffers, zones) in enumerate(fills):
            replay.poison(buffers, zones)
            bench.launch(replay, step)
            sums.append(int(timing.checksum(replay.outputs)))
            if stray := replay.stray():
                left.verdict, left.problem = Verdict.WRONG, guard_zones.said(stray)
            if n == len(fills) - 1 or not bench.deterministic:
                left.runs.append([o.clone() for o in replay.outputs])
        left.checksum = sums[-1]
        other = next((n for n, s in enumerate(sums) if s != sums[-1]), None)
        if bench.deterministic and other is not None:
            left.verdict, left.problem = _why(bench, replay, step, fills[other], fills[-1])
        if not _unchanged(bench, replay, case, bench.seeds[case]):
            left.verdict, left.problem = Verdict.CHEATING, "the inputs were changed"
        return left
    finally:
        replay.close()


def _why(
    bench: TargetSession, replay: Replay, step: str, one: tuple[Fill, Fill], other: tuple[Fill, Fill]
) -> tuple[Verdict, str]:
    """Why launches on the same inputs gave different outputs: for what lay around the tensors, or in buffers before
    anything was written there; else it is a race. Each pair of fillings is tried twice: a race may look like either."""
    (buffers, zones), (other_buffers, other_zones) = one, other

    def outputs(*fills: Fill) -> int:
        replay.poison(*fills)
        bench.launch(replay, step)
        return int(timing.checksum(replay.outputs))

    for fills, said in (
        ((buffers, other_zones), "reads outside of its tensors: its outputs change with what lies there"),
        ((other_buffers, zones), "its outputs change with what its buffers held before it ran"),
    ):
        pairs = [(outputs(buffers, zones), outputs(*fills)) for _ in range(2)]
        if pairs[0] == pairs[1] and pairs[0][0] != pairs[0][1]:
            return Verdict.WRONG, said
    return Verdict.RACE, "runs on the same inputs gave different outputs"


@contextmanager
def _nearby(bench: TargetSession, expected: Expected, comparisons: int) -> Iterator[Expected]:
    """On the GPU where more than one comparison asks for it; then it is wiped, for nothing may find it there."""
    if comparisons < 2:
        yield expected
        return
    near = replace(expected, outputs=tuple(o.to(bench.device, copy=True) for o in expected.outputs))
    try:
        yield near
    finally:
        for output in near.outputs:
            output.zero_()


def _compared(bench: TargetSession, left: _Left, expected: Expected) -> tuple[Verdict | None, Comparison]:
    """What explains the rest: a wrong result explains that runs differ, and whatever else is known explains it.

    The last run is held to the bounds; where outputs may differ and there are others, they are to OFTEN times those.
    """
    tolerance = getattr(bench.target, "TOLERANCE", None)
    often = numerics.looser(tolerance, OFTEN)
    checks = [numerics.check(outputs, expected, often) for outputs in left.runs[:-1]]
    checks += [numerics.check(outputs, expected, tolerance) for outputs in left.runs[-1:]]
    found = next((c for c in checks if c.problem), checks[-1])
    if found.problem and left.verdict in (None, Verdict.RACE):
        return Verdict.WRONG, found
    return (left.verdict, replace(found, why=plain(left.problem))) if left.verdict else (None, found)


def outputs_of(bench: TargetSession, pick: Pick, case: str, launches: int) -> set[int]:
    """Checksums of the outputs of some launches on the same inputs, all other memory filled anew before each."""
    replay = bench.replay(pick, case, bench.seeds[case])
    try:
        seen = set()
        for n in range(launches):
            buffers, zones = FILLS[n % len(FILLS)]
            replay.poison(buffers(), zones())
            replay()
            synchronize(bench.device)
            seen.add(int(timing.checksum(replay.outputs)))
        return seen
    finally:
        replay.close()


def idle_launches(bench: TargetSession, pick: Pick, case: str) -> list[str]:
    """Names of the kernels without whose launch the outputs are what they are with it, to the bit.

    Buffers are left at zero first, and only for one that seems idle then at bytes of chance: what an index is read
    from must not send a kernel astray. A kernel that only writes zeros is not idle, nor is a launch of no blocks.
    """
    replay = bench.replay(pick, case, bench.seeds[case])
    try:
        fills = (ZERO, Fill())
        seen = {f: _outputs_without(bench, replay, None, f) for f in fills}
        names = [(i, s.kernel) for i, s in enumerate(replay.plan.steps) if isinstance(s, Launch) and blocks(s)]
        kernels = pick[case][0].kernels
        return [
            kernels[k].name for i, k in names if all(_outputs_without(bench, replay, i, f) == seen[f] for f in fills)
        ]
    finally:
        replay.close()


def _outputs_without(bench: TargetSession, replay: Replay, step: int | None, buffers: Fill) -> int:
    replay.poison(buffers)
    replay(without=step)
    synchronize(bench.device)
    return int(timing.checksum(replay.outputs))


def verified_key(pick: Pick, case: str) -> tuple[str, str, str]:
    """What `Bench.verified` knows the outputs of a pick by: its bundle, the case, and the configuration."""
    return pick[case][0].id, case, pick[case][1]


def _unchanged(bench: TargetSession, replay: Replay, case: str, seed: int) -> bool:
    """Makes the inputs again from the seed: a copy in GPU memory could have been changed along with them."""
    again = bench.inputs(case, seed)
    return all(_bits_equal(replay.view(t), given) for t, given in paired(replay.plan, again))


def _bits_equal(a: Any, b: Any) -> bool:
    return bool(torch.equal(_bytes(a), _bytes(b)))


def _bytes(t: Any) -> Any:
    return t.contiguous().reshape(-1).view(torch.uint8)
