"""Lays a timeline out: for each role its scopes in program order, each as long as the cycles that it takes.

Numbers only; `timeline_terminal.py` and `page.py` draw them. A scope's length is the cycles that one warp spends in it
in a block: count x P50. A loop holds its body once, with the cycles of all turns. Scopes are timed in several builds,
so the parts of a role may add up to more than the role; if they add up to less, the rest is shown as "in no scope".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline

REST = "in no scope"
LEAST_REST = 0.005  # of a role's cycles: a smaller rest gets no row
FAMILIES = {  # kinds of scopes that are drawn alike
    Kind.COPY_WAIT: "wait",
    Kind.BARRIER_WAIT: "wait",
    Kind.DOT_WAIT: "wait",
    Kind.DOT: "dot",
    Kind.BODY: "body",
    Kind.COPY: "copy",
    Kind.LOAD: "memory",
    Kind.STORE: "memory",
    Kind.LOOP: "loop",
}


@dataclass(frozen=True)
class Bar:
    """One scope, or the part of a role or a loop that is in no scope."""

    name: str
    family: str  # wait, dot, body, copy, memory, loop or rest
    line: str  # of the source; of the TTGIR when that is unknown: "TTGIR 93"
    begin: float  # cycles from the begin of its role: the sum of the bars before it
    cycles: float  # count x P50
    tail: float  # count x (P80 - P50)
    depth: int  # number of bars around it
    share: float | None  # of its role's cycles
    turns: float  # of a loop, in one execution; 0 for anything else
    time: ScopeTime | None  # None for the rest

    @property
    def end(self) -> float:
        return self.begin + self.cycles


@dataclass(frozen=True)
class Lane:
    """A role."""

    role: str
    whole: ScopeTime | None  # None when it was not recorded as a whole
    cycles: float  # length: of the role, or of its bars if that is more
    bars: tuple[Bar, ...]  # in the order of the program


def lanes(timeline: Timeline, static: StaticProfile | Problem) -> tuple[Lane, ...]:
    """Return the lanes of all roles, in the order of the text. `static` gives their source lines."""
    if isinstance(static, StaticProfile):
        timeline = timeline.placed(static.file, static.sources)
    scopes = timeline.scopes
    lines = _Lines(scopes)
    roles = dict.fromkeys(s.scope.role for s in scopes)
    return tuple(_lane(role, [s for s in scopes if s.scope.role == role], lines) for role in roles)


def _lane(role: str, scopes: Sequence[ScopeTime], lines: "_Lines") -> Lane:
    whole = next((s for s in scopes if s.scope.kind is Kind.ROLE), None)
    inner = [s for s in scopes if s.scope.kind in FAMILIES]
    layout = _Layout(lines, whole.cycles.p50 * whole.count if whole else 0.0)
    bars = tuple(layout.within(inner, 0.0, layout.whole, 0))
    return Lane(role, whole, max([layout.whole, *(b.end for b in bars)]), bars)


@dataclass(frozen=True)
class _Layout:
    lines: "_Lines"
    whole: float  # cycles of the role; 0 when unknown

    def within(self, scopes: Sequence[ScopeTime], at: float, room: float, depth: int) -> Iterator[Bar]:
        """Yield bars side by side from `at` on, and the rest of `room` cycles."""
        begin, after = at, 0
        for i, s in enumerate(scopes):
            if i >= after:
                inside = _inside(s, scopes[i + 1 :])
                bars = list(self.of_scope(s, inside, at, depth))
                yield from bars
                at, after = max(b.end for b in bars), i + 1 + len(inside)
        left = begin + room - at
        if left > LEAST_REST * self.whole and scopes:
            share = left / self.whole if self.whole else None
            yield Bar(REST, "rest", "", at, left, 0.0, depth, share, 0.0, None)

    def of_scope(self, s: ScopeTime, inside: Sequence[ScopeTime], at: float, depth: int) -> Iterator[Bar]:
        c, kind = s.cycles, s.scope.kind
        took, tail = s.count * c.p50, s.count * (c.p80 - c.p50)
        turns = max((x.count for x in inside), default=0.0) / s.count if kind is Kind.LOOP and s.count else 0.0
        yield Bar(str(kind), FAMILIES[kind], self.lines.of(s), at, took, tail, depth, s.share, turns, s)
        yield from self.within(inside, at, took, depth + 1)


def _inside(s: ScopeTime, after: Sequence[ScopeTime]) -> list[ScopeTime]:
    """Return the following scopes that are inside a loop; none when `s` is no loop."""
    if s.scope.kind is not Kind.LOOP:
        return []
    return list(takewhile(lambda x: x.scope.depth > s.scope.depth, after))


class _Lines:
    """Source lines of scopes; lines of the TTGIR when those are unknown."""

    def __init__(self, scopes: Sequence[ScopeTime]) -> None:
        self.one_file = len({s.scope.source.partition(":")[0] for s in scopes if s.scope.source}) == 1

    def of(self, s: ScopeTime) -> str:
        if s.scope.source:
            return s.scope.source.rpartition(":")[2] if self.one_file else s.scope.source
        return f"TTGIR {s.scope.first}"
