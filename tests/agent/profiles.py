"""Profiles put together by hand: records as the passes write them, of kernels that nobody has to build or launch."""

from collections.abc import Mapping
from dataclasses import replace

from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.findings import standing_out
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.profile.backend import Occupancy, Resources
from pgo_agent.sandbox.profile.counters.types import BankConflicts, Counters, LineCounters
from pgo_agent.sandbox.profile.kernel_profile import Chain, KernelProfile, LaunchCount, Missing, Roofline
from pgo_agent.sandbox.profile.static_profile import Counts, MachineLoop, Pipeline, StaticProfile
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.longest_path import ScopeChain
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope
from pgo_agent.sandbox.profile.timeline.types import Lost, Pass, ScopeTime, Spread, Timed, Timeline, Waves

H200 = devices.find("h200")
OPS = {
    Kind.COPY_WAIT: ("ttg.async_wait",),
    Kind.BARRIER_WAIT: ("ttng.wait_barrier",),
    Kind.DOT_WAIT: ("ttng.warp_group_dot_wait",),
    Kind.DOT: ("ttng.warp_group_dot",),
    Kind.COPY: ("ttg.async_copy_global_to_local",),
    Kind.BODY: ("arith.mulf", "math.exp2"),
    Kind.LOAD: ("tt.load",),
    Kind.STORE: ("tt.store",),
}
EVEN = Waves(132, 264, 1, 100_000, 1_000, 1.01, 0.98, (), ())
NOTHING = Missing("timeline", "no GPU is visible here")
DEPTHS = {Kind.STORE: 0}


def scope(kind: str, line: int = 20, depth: int | None = None, role: str = "kernel", *ops: str) -> Scope:
    """A scope of the loop, or behind it."""
    at = Kind(kind)
    deep = DEPTHS.get(at, 1) if depth is None else depth
    return Scope(f"{role} {kind} {line}", at, role, line, line, f"a.py:{line}", ops or OPS.get(at, ()), deep)


def timed(of: Scope, share: float | None, p50: float = 400.0) -> ScopeTime:
    return ScopeTime(of, Spread(0.8 * p50, p50, 1.5 * p50), 16.0, 0.7 * p50 * 16, share, 1024)


def timeline(shares: Mapping[str, float], waves: Waves | None = EVEN) -> Timeline:
    """Of one role: kinds of scopes and their shares, each kind on a line of its own."""
    return of_scopes(
        *(timed(scope(kind, 20 + i), share) for i, (kind, share) in enumerate(shares.items())), waves=waves
    )


def of_scopes(*scopes: ScopeTime, waves: Waves | None = EVEN) -> Timeline:
    done = Pass(Timed(scopes, Lost(), ()), 1.11, True, {}, (), 4096, 4, {}, "")
    return Timeline((done,), {"kernel": 22.0}, waves, (), (0.4,), {})


def counters(conflicts: float = 0.0, **changes: object) -> Counters:
    found = Counters(
        tool="ncu 2025.3.1",
        kernel="_run",
        duration_ns=412_000.0,
        speed_of_light={"sm": 0.4, "tensor": 0.3, "l1": 0.5, "l2": 0.2, "dram": 0.2},
        stalls={"short_scoreboard": 0.3, "mio_throttle": 0.1, "long_scoreboard": 0.2, "selected": 0.2},
        executed=1_000_000,
        lines=(),
        source=(LineCounters(11, 500, 40, {"wait": 40}), LineCounters(12, 900, 80, {"short_scoreboard": 70})),
        bank_conflicts=BankConflicts(5000.0, 200.0, conflicts),
        l1_hit=0.4,
        l2_hit=0.8,
        dram_bytes=2.0e8,
        warps_active=0.5,
        metrics={},
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def static(
    notes: tuple[str, ...] = (),
    spilled: int = 0,
    registers: int = 168,
    kernel: str = "_run",
    kinds: Counts | None = None,
) -> StaticProfile:
    """Of a pipelined multiplication of tiles without a defect, but for what is asked."""
    kinds = {"tensor": 8, "float": 40, "shared": 12, "integer": 90} if kinds is None else kinds
    inside = kinds | ({"spill": 36} if spilled else {})
    return StaticProfile(
        build=f"{kernel}-build",
        kernel=kernel,
        backend="nvidia",
        target="sm_90",
        file="a.py",
        resources=Resources(registers, 0, spilled, spilled, spilled, spilled // 4, 98304, 4, 32),
        occupancy=Occupancy(2, 8, 64, {"registers": 3, "shared memory": 2}),
        notes=notes,
        same_code=True,
        instructions=412,
        kinds=inside,
        opcodes={"HGMMA": 8},
        lines=(),
        source=(),
        curve=(),
        peak=None,
        loops=(MachineLoop(57, 0, 96, inside, {"HGMMA": 8}, 44, (18, 24), 150, False),),
        pipeline=Pipeline(3, (0,), 1, 2, False),
        conversions=(),
        accesses=(),
        unproven=(),
    )


def kernel(
    of: StaticProfile,
    clocked: Timeline | Missing = NOTHING,
    counted: Counters | Missing = NOTHING,
    chain: Chain | Missing = NOTHING,
    blocks: int = 264,
) -> KernelProfile:
    return KernelProfile(of.build, of.kernel, LaunchCount(blocks, 1), of, clocked, counted, chain, NOTHING)


def case(*kernels: KernelProfile, roofline: Roofline | Missing = NOTHING) -> CaseProfile:
    found = {k.build: standing_out(k, H200) for k in kernels}
    return CaseProfile("CASES/it", "num_warps=4", "the first of the file's list", kernels, found, {}, roofline, {})


def roof(reached: float, compute: bool = True) -> Roofline:
    """Of a case that reaches this share of it."""
    if compute:
        return Roofline(8e11 * reached, 1e6, 1e-3, "a test", 8e14, 2e12)
    return Roofline(1e9, 2e9 * reached, 1e-3, "a test", 8e14, 2e12)


def chain(*scopes: Scope) -> Chain:
    listed = tuple(ScopeChain(s.name, 9, 5000.0 - 1000 * i, 0.0) for i, s in enumerate(scopes))
    return Chain(14000.0, 9, listed)
