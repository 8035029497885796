"""Figures and sentences that the terminal and the page share. No figure is cut or more exact than it was measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Chain, Missing, Roofline, ScopeIpc
from pgo_agent.sandbox.profile.roofline import Floor
from pgo_agent.sandbox.profile.timeline.types import Pass, ScopeTime, Timeline, Waves

PATH = 6  # scopes of the critical path that are named
ROUND = 0.9995  # of a unit: smaller values are written in the unit below, as less than 1,000
Said = tuple[str, str]  # a name, and the text under it


def cycles(x: float) -> str:
    """Format cycles in seven characters at most, up to a million million."""
    if x < 999_999.5:
        return f"{x:,.0f}"
    return f"{x / 1e6:.2f}M" if x < 99_995_000 else f"{x / 1e6:,.0f}M"


def percent(x: float | None) -> str:
    return "-" if x is None else f"{100 * x:.1f} %"


def number(x: float) -> str:
    """Format a count, which need not be whole."""
    return f"{x:,.0f}" if x == round(x) else f"{x:,.1f}"


def scaled(x: float, unit: str) -> str:
    """Format a value with the prefix that leaves one to three digits before the point: 475 TFLOP/s."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= factor * ROUND:
            return f"{short(x / factor)} {prefix}{unit}"
    return f"{short(x)} {unit}"


def short(x: float) -> str:
    """Format three significant digits, without exponent from 0.001 to a thousand."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def nanoseconds(x: float) -> str:
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if x >= factor * ROUND:
            return f"{short(x / factor)} {unit}"
    return f"{short(x)} ns"


def gathered(absent: Iterable[Missing]) -> Iterator[str]:
    """Yield a line for each reason why something is missing."""
    reasons: dict[str, list[str]] = {}
    for m in absent:
        reasons.setdefault(m.why, []).append(m.name)
    for why, names in reasons.items():
        yield f"no {', '.join(names[:-1])}{' or ' if names[1:] else ''}{names[-1]}: {why}"


# the timeline ---------------------------------------------------------------------------------------------------------


def whole(s: ScopeTime | None) -> str:
    """Describe the cycles of a whole role."""
    if s is None:
        return "not recorded as a whole"
    low, mid, high = (cycles(x) for x in (s.cycles.p20, s.cycles.p50, s.cycles.p80))
    return f"{mid} cycles (P20 {low}, P80 {high})"


def figures(s: ScopeTime) -> tuple[str, ...]:
    """Return P20, P50 and P80 of an execution, executions, share of its role, and how far a block's cycles vary."""
    spread = (cycles(x) for x in (s.cycles.p20, s.cycles.p50, s.cycles.p80))
    count = number(s.count) if s.count < 1e5 else cycles(s.count)
    return (*spread, count, percent(s.share), cycles(s.variation))


def disturbance(t: Timeline) -> Iterator[Said]:
    """Yield how much recording changed the kernel, and what the records lack."""
    if t.machine:
        yield "machine", ", ".join(f"{name} {value}".removeprefix("gpu ") for name, value in t.machine.items() if value)
    if t.passes:
        yield "records", _slower([p.overhead for p in t.passes])
        yield "outputs", _outputs(t.passes)
    if t.costs:
        each = ", ".join(f"{cycles(c)} in {role}" for role, c in t.costs.items())
        yield "taken off", f"cycles that a record itself takes: {each}"
    if lost := _lost(t.passes):
        yield "lost", lost
    for problem in dict.fromkeys([p for taken in t.passes for p in taken.timed.problems]):
        yield "problem", problem
    for refused in t.refused:
        yield "not recorded", refused.told


def _slower(overheads: Sequence[float]) -> str:
    builds = f"in {len(overheads)} instrumented build{'s' * (len(overheads) > 1)}"
    low, high = min(overheads) - 1, max(overheads) - 1
    if low < 0:
        return f"changed the kernel's time by {100 * low:+.1f} % to {100 * high:+.1f} %, {builds}"
    return f"made the kernel {' to '.join(dict.fromkeys((percent(low), percent(high))))} slower, {builds}"


def _outputs(passes: Iterable[Pass]) -> str:
    other = [i for i, p in enumerate(passes, 1) if not p.same_outputs]
    if not other:
        return "the same to the bit as without records"
    return f"other than without records in build {', '.join(map(str, other))}: do not trust its times"


def _lost(passes: Iterable[Pass]) -> str:
    over = sum(p.timed.lost.overwritten for p in passes)
    alone = sum(p.timed.lost.unpaired for p in passes)
    losses = ((over, "overwritten by newer ones"), (alone, "without a partner"))
    return ", ".join(f"{number(count)} entries {how}" for count, how in losses if count)


def filled(w: Waves) -> Iterator[Said]:
    """Yield how the blocks filled the SMs."""
    blocks = f"{number(w.blocks)} block{'s' * (w.blocks != 1)} on {w.sms} SM{'s' * (w.sms != 1)}"
    yield "waves", f"{len(w.waves)}: {blocks}, at most {w.resident} at a time on one; {nanoseconds(w.span_ns)} in all"
    share = w.tail_ns / w.span_ns if w.span_ns else 0.0
    yield "tail", f"{nanoseconds(w.tail_ns)} ({percent(share)}) after the first SM had nothing left to do"
    yield "balance", f"SMs ran a block {percent(w.busy)} of the time; the busiest {w.imbalance:.2f} times the mean"


def chained(chain: Chain | Missing) -> Mapping[str, str]:
    """Return scope -> `on path`, or its slack: the cycles that it could take more without making the whole longer."""
    if isinstance(chain, Missing):
        return {}
    return {c.scope: "on path" if c.on_path else cycles(c.slack) for c in chain.scopes}


def path(chain: Chain, names: Mapping[str, str]) -> str:
    """Describe the critical path. `names`: scope -> its name in this view."""
    on = [c for c in chain.scopes if c.on_path and chain.length]
    listed = [f"{names.get(c.scope, c.scope)} {percent(c.cycles / chain.length)}" for c in on]
    return f"{cycles(chain.length)} cycles at {chain.iterations} turns of its loops: {', '.join(listed[:PATH])}"


def rates(ipc: tuple[ScopeIpc, ...] | Missing) -> Mapping[str, str]:
    """Return scope -> instructions of a warp per cycle."""
    return {} if isinstance(ipc, Missing) else {i.scope: f"{i.ipc:.2f}" for i in ipc}


# counters and roof ----------------------------------------------------------------------------------------------------


def counted(c: Counters) -> Iterator[Said]:
    """Yield the counters that have no bar; what the tool did not count is left out."""
    b = c.bank_conflicts
    if b:
        conflicts = f"{number(b.loads)} of loads and {number(b.stores)} of stores"
        yield "bank conflicts", f"{conflicts}: {percent(b.share)} of all passes through shared memory"
    hits = [f"{name} {percent(hit)}" for name, hit in (("L1", c.l1_hit), ("L2", c.l2_hit)) if hit is not None]
    if hits:
        yield "hit rates", ", ".join(hits)
    if c.dram_bytes is not None:
        yield "device memory", scaled(c.dram_bytes, "B")
    if c.warps_active is not None:
        yield "warps active", f"{percent(c.warps_active)} of those that an SM holds"
    if c.unlined:
        yield "no lines", c.unlined
    yield "executed", f"{number(c.executed)} instructions, each counted once for a warp"
    yield "counted by", f"{c.tool} in {nanoseconds(c.duration_ns)}, which is no evidence of speed: it replays launches"


def roof(r: Roofline) -> str:
    reached, peak = r.flops / r.seconds, r.peak_flops
    unit = "FLOP/s"
    if r.bound == "memory":
        reached, peak, unit = r.bytes / r.seconds, r.peak_bytes, "B/s"
    rate = f"{scaled(reached, unit)} of {scaled(peak, unit)}"
    return f"{percent(r.reached)} of the roof, which is {r.bound}: {rate}; {_intensity(r)}; {r.how}"


def floor(f: Floor) -> str:
    """Say the least time of a case that was not timed."""
    moved = f"{scaled(f.bytes, 'B')} at {scaled(f.peak_bytes, 'B/s')} take {nanoseconds(f.bytes / f.peak_bytes * 1e9)}"
    done = f"{scaled(f.flops, 'FLOP')} at {scaled(f.peak_flops, 'FLOP/s')} {nanoseconds(f.flops / f.peak_flops * 1e9)}"
    return f"~{nanoseconds(f.seconds * 1e9)} at least, bound by {f.bound}: {moved}, {done} (contract and data sheet)"


def _intensity(r: Roofline) -> str:
    return f"{short(r.intensity)} FLOP per byte" if r.bytes else "no byte has to move"
