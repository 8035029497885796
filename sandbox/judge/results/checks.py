"""The comparisons with the reference that need a GPU: smoke and numerics.

Stress inputs are in `stress_runs.py`, time in `timing/session.py`. Seeds are drawn after the bundle was read. Before
each step that a candidate's kernel could block, `announce(stage, seconds)` sets a deadline; then the parent kills this
process.
"""

import math
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import guard_zones, in_place
from pgo_agent.sandbox.bundle.schema import ITEMSIZE
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.guard_zones import NAN, ZERO, Fill
from pgo_agent.sandbox.judge.launches.plan_executor import Replay, synchronize
from pgo_agent.sandbox.judge.launches.planned_inputs import paired
from pgo_agent.sandbox.judge.own_steps import OwnStep
from pgo_agent.sandbox.judge.results import numerics
from pgo_agent.sandbox.judge.results.deviation import Error
from pgo_agent.sandbox.judge.results.numerics import Comparison, Expected
from pgo_agent.sandbox.judge.results.reference_error import Spread
from pgo_agent.sandbox.judge.results.repeats import Repeats
from pgo_agent.sandbox.judge.results.stress_inputs import StressInput
from pgo_agent.sandbox.judge.timing import timer as timing
from pgo_agent.sandbox.judge.timing.measured_peaks import Peaks

Announce = Callable[[str, float], None]
Pick = Mapping[str, tuple[Bundle, str]]  # case -> a bundle and its configuration to launch

QUICK_ROUNDS = 6
# How many times as large as that of a single launch the error of one launch of many may be, where the order of sums
# varies: for normal errors of 4,096 outputs the largest of 300 launches is sqrt(ln(4096 * 300) / ln(4096)) = 1.3 times.
OFTEN = 2.0
STEP_SECONDS = 10.0  # deadline of a step's work besides its launches
LAUNCH_SECONDS = 4.0  # deadline of a case's launches, which take milliseconds: the cost of a hang
REFERENCE_SECONDS = 180.0
BATCH_BYTES = 4 << 30  # bytes of outputs that are kept on the GPU to be compared together
# Fillings of the buffers and of the guard zones before a launch. NaN shows in every result that uses it, zeros are what
# new memory mostly holds, and random bytes cannot be predicted.
FILLS: tuple[tuple[Callable[[], Fill], Callable[[], Fill]], ...] = (
    (lambda: NAN, lambda: NAN),
    (lambda: ZERO, Fill),
    (Fill, Fill),
)


@dataclass
class TargetSession:
    """The state of a judge process: the target, its cases, the GPU, and the expected results for current seeds."""

    target: ModuleType
    cases: Mapping[str, dict[str, object]]  # CASES/name or HELD_OUT/name -> parameters
    device: Any
    timer: timing.Timer
    announce: Announce
    peaks: Peaks
    unfit: frozenset[str] = frozenset()  # stress inputs that are not tried: see own_steps.py
    expected: dict[tuple[str, int], Expected] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    verified: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (bundle, case, choice) -> checksum
    allowed: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)  # -> largest error of each output
    shipped_errors: dict[tuple[str, str, str], tuple[Error, ...]] = field(default_factory=dict)  # as keys of `verified`
    narrow: dict[str, bool] = field(default_factory=dict)  # case -> result of `is_narrow`
    # (case, stress input) -> what it must give, or why it does not count
    under_stress: dict[tuple[str, StressInput], Expected | str] = field(default_factory=dict)
    trials: dict[tuple[str, ...], Any] = field(default_factory=dict)  # what `stress_runs.py` drew for some cases
    spread: Spread = field(init=False)

    def __post_init__(self) -> None:
        self.spread = Spread(self.target, self.device)

    @property
    def deterministic(self) -> bool:
        return not getattr(self.target, "NONDETERMINISTIC", False)

    @property
    def changed(self) -> tuple[str, ...]:
        """The inputs that kernel() changes."""
        return in_place.names(self.target)

    def new_seeds(self) -> None:
        """Draw new secret seeds for the bundles that were just read; forget the results for old seeds."""
        self.expected.clear()
        self.verified.clear()
        self.allowed.clear()
        self.shipped_errors.clear()
        self.seeds = {case: secrets.randbits(48) for case in self.cases}

    def inputs(self, case: str, seed: int, stress_input: StressInput | None = None) -> dict[str, object]:
        return numerics.make_inputs(self.target, self.cases[case], seed, self.device, stress_input)

    def expect(self, case: str) -> Expected:
        key = case, self.seeds[case]
        if key not in self.expected:
            self.announce(OwnStep(case).announced, REFERENCE_SECONDS)
            try:
                self.expected[key] = self.spread.expect(case, self.cases[case], key[1])
            except TargetFault:
                synchronize(self.device)  # raises after an assertion on the GPU, which a candidate may have caused
                raise
        return self.expected[key]

    def damaged(self) -> bool:
        """Return whether launches changed what is expected of this or another candidate; forget that then."""
        bad = [key for key, e in self.under_stress.items() if isinstance(e, Expected) and not e.intact]
        for key in bad:
            del self.under_stress[key]
        return bool(bad) or not all(e.intact for e in self.expected.values())

    def problem(self, outputs: object, case: str) -> str:
        """Return what is wrong with results for a case's seed, by the rule for kernels; empty for nothing."""
        listed = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        if other := [type(o).__name__ for o in listed if not isinstance(o, torch.Tensor)]:
            return f"outputs of type {', '.join(other)}, and no tensors"
        return str(numerics.check(listed, self.expect(case), getattr(self.target, "TOLERANCE", None)).problem)

    def replay(self, pick: Pick, case: str, seed: int, stress_input: StressInput | None = None) -> Replay:
        bundle, choice = pick[case]
        inputs = self.inputs(case, seed, stress_input)
        return Replay(bundle, bundle.plans[case][choice], inputs, self.device, self.changed)

    def launch(self, replay: Replay, step: str) -> None:
        """Run one replay to its end, with its own deadline."""
        self.announce(step, LAUNCH_SECONDS)
        replay()
        synchronize(self.device)
        self.announce(step, STEP_SECONDS)

    def floor_ms(self, case: str) -> float:
        """Return the time in ms that no kernel can beat on this device, by its measured peaks."""
        work = self.cases[case]
        flops, moved = float(self.target.flops(work)), float(self.target.bytes_moved(work))
        l2 = torch.cuda.get_device_properties(self.device).L2_cache_size
        return self.peaks.floor_ms(flops, moved, self.is_narrow(case), l2)

    def is_narrow(self, case: str) -> bool:
        """Whether a case has input tensors of one-byte types."""
        if case not in self.narrow:
            values = self.inputs(case, 0).values()
            self.narrow[case] = any(isinstance(x, torch.Tensor) and x.element_size() == 1 for x in values)
        return self.narrow[case]


@dataclass
class _Left:
    """The outputs and problems of the launches of one configuration."""

    label: str
    runs: list[list[Any]]  # outputs of the runs that are compared, copied
    checksum: int  # of the last run
    verdict: Verdict | None = None  # of a problem that does not depend on the outputs
    problem: str = ""


def check_case(bench: TargetSession, pick: Pick, case: str, stage: str) -> tuple[Verdict | None, Comparison]:
    """Check one configuration of a case, as `check_labels`; return (None, comparison) when it is right."""
    bundle, label = pick[case]
    return check_labels(bench, bundle, case, [label], stage)[-1][1:]


def check_labels(
    bench: TargetSession, bundle: Bundle, case: str, labels: Sequence[str], stage: str, shipped: Pick | None = None
) -> list[tuple[str, Verdict | None, Comparison]]:
    """Check configurations of a case, up to the first that fails: memory filled in three ways, and once as the last
    launch left it, repeats equal, no input changed but those of IN_PLACE, nothing read or written outside, error within
    bounds.

    Returns each label with its verdict (None: right) and comparison. For a nondeterministic target every launch is
    compared. `shipped`: where a bound is broken, the kernel as shipped is launched on the same inputs, and what errs no
    more is right (`error_bounds.py`). Stress inputs are in `stress_runs.check_stress_inputs`.
    """
    expected, results = bench.expect(case), list[tuple[str, Verdict | None, Comparison]]()
    for some in _batches(bench, bundle, case, labels):
        left = [_launched(bench, bundle, case, label, f"{stage} {case}") for label in some]
        for launched in left:
            found = _compared(bench, launched, expected)
            if shipped and case in shipped and found[0] and found[1].errors and launched.verdict is None:
                found = _compared(bench, launched, expected, _errors_of(bench, shipped, expected))
            results.append((launched.label, *found))
            if results[-1][1]:
                return results
            key = bundle.id, case, launched.label
            bench.verified[key] = launched.checksum
            bench.allowed[key] = [OFTEN * b[0] for b in results[-1][2].bounds]
    return results


def _batches(bench: TargetSession, bundle: Bundle, case: str, labels: Sequence[str]) -> Iterator[list[str]]:
    """Give the configurations in groups whose outputs fit on the GPU together."""
    batch, size = list[str](), 0
    for label in labels:
        outputs = sum(math.prod(t.size) * ITEMSIZE[t.dtype] for t in bundle.plans[case][label].out)
        size += outputs * (1 if bench.deterministic else len(FILLS) + 1)
        if batch and size > BATCH_BYTES:
            yield batch
            batch, size = [], outputs
        batch.append(label)
    yield batch


def _launched(bench: TargetSession, bundle: Bundle, case: str, label: str, step: str) -> _Left:
    bench.announce(step, STEP_SECONDS)
    replay = bench.replay({case: (bundle, label)}, case, bench.seeds[case])

    def launched() -> int:
        bench.launch(replay, step)
        return int(timing.checksum(replay.outputs))

    try:
        repeats, left = Repeats(replay, launched), _Left(label, [], 0)
        fills = [(buffers(), zones()) for buffers, zones in random.SystemRandom().sample(FILLS, len(FILLS))]
        sums = list[int]()
        for memory in (*fills[:-1], None, fills[-1]):  # None: what the launch before left
            sums.append(repeats.outputs(memory))
            if stray := replay.stray():
                left.verdict, left.problem = Verdict.WRONG, guard_zones.said(stray)
            if memory == fills[-1] or not bench.deterministic:
                left.runs.append([o.clone() for o in replay.outputs])
        *filled, kept, left.checksum = sums
        other = next((n for n, s in enumerate(filled) if s != left.checksum), None)
        if bench.deterministic and other is not None:
            left.verdict, left.problem = repeats.why(fills[other], fills[-1])
        elif bench.deterministic and kept != left.checksum:
            left.verdict, left.problem = repeats.left(fills[-1])
        if not _unchanged(bench, replay, case, bench.seeds[case]):
            left.verdict, left.problem = Verdict.CHEATING, "the inputs were changed"
        return left
    finally:
        replay.close()


def _errors_of(bench: TargetSession, shipped: Pick, expected: Expected) -> tuple[Error, ...]:
    """Return what the kernel as shipped errs on the inputs of a case; nothing where its outputs are others."""
    key, step = verified_key(shipped, expected.case), OwnStep(expected.case).announced
    if key not in bench.shipped_errors:
        bench.announce(step, STEP_SECONDS)
        replay = bench.replay(shipped, expected.case, expected.seed)
        try:
            replay.poison(Fill())
            bench.launch(replay, step)
            bench.shipped_errors[key] = numerics.check(replay.outputs, expected).errors
        finally:
            replay.close()
    return bench.shipped_errors[key]


def _compared(
    bench: TargetSession, left: _Left, expected: Expected, shipped: tuple[Error, ...] | None = None
) -> tuple[Verdict | None, Comparison]:
    """Return the verdict and a comparison. A wrong result outranks a race; every other problem outranks a wrong result.

    The last run must keep the bounds. Other runs of a nondeterministic target may err OFTEN times as much. `shipped`:
    errors of the kernel as shipped.
    """
    tolerance = getattr(bench.target, "TOLERANCE", None)
    often = numerics.looser(tolerance, OFTEN)
    checks = [numerics.check(outputs, expected, often) for outputs in left.runs[:-1]]
    checks += [numerics.check(outputs, expected, tolerance, shipped) for outputs in left.runs[-1:]]
    comparison = next((c for c in checks if c.problem), checks[-1])
    if comparison.problem and left.verdict in (None, Verdict.RACE):
        return Verdict.WRONG, comparison
    return (left.verdict, replace(comparison, why=plain(left.problem))) if left.verdict else (None, comparison)


def verified_key(pick: Pick, case: str) -> tuple[str, str, str]:
    """Return the key of a pick in `TargetSession.verified`: bundle, case, configuration."""
    return pick[case][0].id, case, pick[case][1]


def _unchanged(bench: TargetSession, replay: Replay, case: str, seed: int) -> bool:
    """Compare the inputs with new ones from the seed: a kernel could also change a copy in GPU memory.

    Of inputs that the kernel may change, what they are restored from."""
    again = bench.inputs(case, seed)
    return all(_bits_equal(replay.as_given(t), tensor) for t, tensor in paired(replay.plan, again))


def _bits_equal(a: Any, b: Any) -> bool:
    return bool(torch.equal(_bytes(a), _bytes(b)))


def _bytes(t: Any) -> Any:
    return t.contiguous().reshape(-1).view(torch.uint8)
