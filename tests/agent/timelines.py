"""Test data for drawings: timelines and counters with the real scopes of compiled kernels and MADE-UP cycles.

Nothing here was measured. The figures are plausible at best, and belong in no document.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from pgo_agent.sandbox.profile.counters.types import BankConflicts, Counters, LineCounters
from pgo_agent.sandbox.profile.kernel_profile import Chain, KernelProfile, LaunchCount, Missing, Roofline, ScopeIpc
from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.decode import Block
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.longest_path import ScopeChain
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, Unsupported, Why, scopes_of
from pgo_agent.sandbox.profile.timeline.sm_waves import waves
from pgo_agent.sandbox.profile.timeline.types import Lost, Pass, ScopeTime, Spread, Timed, Timeline, Waves
from pgo_agent.sandbox.ttgir import reader

from tests.sandbox import barrier_kernels

TURNS = 64.0  # of every loop, made up
MADE_UP = {  # cycles of one execution
    Kind.COPY_WAIT: 310.0,
    Kind.BARRIER_WAIT: 140.0,
    Kind.DOT_WAIT: 420.0,
    Kind.DOT: 96.0,
    Kind.COPY: 61.0,
    Kind.BODY: 540.0,
    Kind.LOAD: 700.0,
    Kind.STORE: 880.0,
}


@cache
def scopes(name: str) -> tuple[Scope, ...]:
    """Of a kernel of `barrier_kernels`, as Triton compiles it."""
    return scopes_of(reader.parse(barrier_kernels.ttgir_of(name)))


def timed(found: tuple[Scope, ...], turns: float = TURNS) -> tuple[ScopeTime, ...]:
    """Made-up times: a loop holds its body, a role everything in it."""
    cycles = {s.name: MADE_UP.get(s.kind, 0.0) * turns**s.depth for s in found}
    totals = {r: sum(cycles[s.name] for s in found if s.role == r) for r in {s.role for s in found}}
    totals |= {"kernel": max(totals.values())} if "kernel" in totals else {}
    return tuple(_time(s, found, cycles, totals[s.role] * 1.04, turns) for s in found)


def _time(s: Scope, found: tuple[Scope, ...], cycles: dict[str, float], whole: float, turns: float) -> ScopeTime:
    count = turns**s.depth
    if s.kind is Kind.ROLE:
        total = whole
    elif s.kind is Kind.LOOP:
        total = 1.03 * sum(cycles[x.name] for x in found if x.role == s.role and x.depth > s.depth)
    else:
        total = cycles[s.name]
    one, wide = total / count, 0.6 if "wait" in s.kind else 0.05
    spread = Spread(one * (1 - wide / 3), one, one * (1 + wide))
    return ScopeTime(s, spread, count, (spread.p80 - spread.p20) * count, total / whole if whole else None, 3840)


def timeline(found: tuple[Scope, ...], turns: float = TURNS) -> Timeline:
    times = timed(found, turns)
    roles = tuple(t for t in times if t.scope.kind is Kind.ROLE)
    builds = (roles, times[: len(times) // 2], times[len(times) // 2 :])
    names = {str(i): s.name for i, s in enumerate(found)}
    passes = tuple(
        Pass(Timed(part, Lost(0, 2 * i), ()), 1.012 + 0.02 * i, True, {"registers": 232}, (), 4096, 8, names, "")
        for i, part in enumerate(builds)
    )
    costs = {role: 21.0 + i for i, role in enumerate(dict.fromkeys(s.role for s in found))}
    refused = (Unsupported(Why.SHARED, "no shared memory is left for the records of 2 scopes"),)
    return Timeline(passes, costs, filled(), refused, (0.61, 0.62), {"gpu": "made up", "driver": "0", "torch": "0"})


def filled(sms: int = 132, blocks: int = 500) -> Waves:
    """Blocks of made-up lengths, each on the SM that is free first."""
    free, made = [0] * sms, []
    lengths = np.random.default_rng(7).integers(90_000, 130_000, blocks).tolist()
    for i, ns in enumerate(lengths):
        sm = free.index(min(free))
        made.append(Block(i, sm, free[sm], free[sm] + ns))
        free[sm] += ns
    found = waves(made)
    assert found is not None
    return found


def counters(kernel: str, lines: range) -> Counters:
    stalls = {
        "long_scoreboard": 0.31,
        "gmma": 0.27,
        "wait": 0.14,
        "barrier": 0.1,
        "selected": 0.09,
        "mio_throttle": 0.05,
    }
    each = tuple(
        LineCounters(n, 4096 * (i % 5 + 1), 100 * (i % 7 + 1), {"long_scoreboard": 60 * (i % 7 + 1), "wait": i})
        for i, n in enumerate(lines)
    )
    light = {"tensor": 0.613, "sm": 0.702, "l1": 0.35, "l2": 0.208, "dram": 0.117}
    conflicts = BankConflicts(12_345.0, 0.0, 0.021)
    return Counters("ncu (made up)", kernel, 612e3, light, stalls, 99_123_456, each, each, conflicts, 0.12, 0.83,
                    67.1e6, 0.124, {})  # fmt: skip


def chain(found: tuple[ScopeTime, ...]) -> Chain:
    inner = [t for t in found if t.scope.kind not in (Kind.ROLE, Kind.LOOP)]
    on = [ScopeChain(t.scope.name, 9, 9 * t.cycles.p50, 0.0) for t in inner[::2]]
    off = [ScopeChain(t.scope.name, 0, 0.0, 1234.0) for t in inner[1::2]]
    return Chain(sum(c.cycles for c in on), 9, tuple(sorted(on, key=lambda c: -c.cycles)) + tuple(off))


def ipc(found: tuple[ScopeTime, ...]) -> tuple[ScopeIpc, ...]:
    inner = [t for t in found if t.scope.kind in (Kind.BODY, Kind.DOT)]
    return tuple(ScopeIpc(t.scope.name, 180.0, t.cycles.p50, 180.0 / t.cycles.p50) for t in inner)


def roofline() -> Roofline:
    return Roofline(1.1e12, 1.3e8, 2.4e-3, "timed by somebody who made it up", 7.8e14, 4.3e12)


def everything(k: KernelProfile, found: tuple[Scope, ...], lines: range) -> KernelProfile:
    """A kernel's profile with all passes, those of the GPU made up."""
    t = timeline(found)
    made = dict(timeline=t, counters=counters(k.kernel, lines), chain=chain(t.scopes), ipc=ipc(t.scopes))
    return replace(k, **made)  # type: ignore[arg-type]


def bare(name: str, static: StaticProfile | Problem | None = None) -> KernelProfile:
    """Without a GPU."""
    why = "no GPU is visible here"
    missing = (Missing(n, why) for n in ("timeline", "counters", "critical path", "ipc"))
    return KernelProfile(
        "0" * 64, name, LaunchCount(500, 1), static or Problem("", "nvidia", "none was made"), *missing
    )
