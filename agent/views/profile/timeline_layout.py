"""A timeline laid out: for each role its scopes in the order of the program, each as long as the cycles it takes.

Numbers only; `timeline_terminal.py` and `page.py` draw them. A scope's length is what one warp spends in it in a block,
by the P50: count x P50. A loop's body stands in it once, with the cycles of all turns. Scopes are timed in several
builds, so the parts of a role may add up to more than the role; where they add up to less, the rest is said to be in no
scope.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pgo_agent.sandbox.profile.static_profile import Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import ScopeTime, Timeline

REST = "in no scope"
LEAST_REST = 0.005  # of a role's cycles: less is not worth a row
FAMILIES = {  # what is drawn alike
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
    """One scope, or what of a role or a loop is in none."""

    name: str
    family: str  # wait, dot, body, copy, memory, loop or rest
    line: str  # of the source; of the TTGIR where nobody knows it: "TTGIR 93"
    begin: float  # cycles from the begin of its role, by what stands before it
    cycles: float  # count x P50
    tail: float  # count x (P80 - P50)
    depth: int  # bars that it stands in
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
    whole: ScopeTime | None  # None where it was not recorded as a whole
    cycles: float  # that its bars and it itself need room for
    bars: tuple[Bar, ...]  # in the order of the program


def lanes(timeline: Timeline, static: StaticProfile | Problem) -> tuple[Lane, ...]:
    """Of all roles, in the order of the text. `static` says which lines of the source they are."""
    if isinstance(static, StaticProfile):
        timeline = timeline.placed(static.file, static.sources)
    found = timeline.scopes
    lines = _Lines(found)
    roles = dict.fromkeys(s.scope.role for s in found)
    return tuple(_lane(role, [s for s in found if s.scope.role == role], lines) for role in roles)


def _lane(role: str, scopes: Sequence[ScopeTime], lines: "_Lines") -> Lane:
    whole = next((s for s in scopes if s.scope.kind is Kind.ROLE), None)
    inner = [s for s in scopes if s.scope.kind in FAMILIES]
    layout = _Layout(lines, whole.cycles.p50 * whole.count if whole else 0.0)
    bars = tuple(layout.within(inner, 0.0, layout.whole, 0))
    return Lane(role, whole, max([layout.whole, *(b.end for b in bars)]), bars)


@dataclass(frozen=True)
class _Layout:
    lines: "_Lines"
    whole: float  # cycles of the role; 0 where nobody knows

    def within(self, scopes: Sequence[ScopeTime], at: float, room: float, depth: int) -> Iterator[Bar]:
        """Bars side by side from `at` on, and what they leave of `room` cycles."""
        begin, after = at, 0
        for i, s in enumerate(scopes):
            if i >= after:
                inside = _inside(s, scopes[i + 1 :])
                bars = list(self.one(s, inside, at, depth))
                yield from bars
                at, after = max(b.end for b in bars), i + 1 + len(inside)
        left = begin + room - at
        if left > LEAST_REST * self.whole and scopes:
            share = left / self.whole if self.whole else None
            yield Bar(REST, "rest", "", at, left, 0.0, depth, share, 0.0, None)

    def one(self, s: ScopeTime, inside: Sequence[ScopeTime], at: float, depth: int) -> Iterator[Bar]:
        c, kind = s.cycles, s.scope.kind
        took, tail = s.count * c.p50, s.count * (c.p80 - c.p50)
        turns = max((x.count for x in inside), default=0.0) / s.count if kind is Kind.LOOP and s.count else 0.0
        yield Bar(str(kind), FAMILIES[kind], self.lines.of(s), at, took, tail, depth, s.share, turns, s)
        yield from self.within(inside, at, took, depth + 1)


def _inside(s: ScopeTime, after: Sequence[ScopeTime]) -> list[ScopeTime]:
    """Those of the following scopes that stand in a loop; none for what is no loop."""
    if s.scope.kind is not Kind.LOOP:
        return []
    return list(takewhile(lambda x: x.scope.depth > s.scope.depth, after))


class _Lines:
    """Where scopes stand in the source; a line of the TTGIR where nobody knows."""

    def __init__(self, scopes: Sequence[ScopeTime]) -> None:
        self.one_file = len({s.scope.source.partition(":")[0] for s in scopes if s.scope.source}) == 1

    def of(self, s: ScopeTime) -> str:
        if s.scope.source:
            return s.scope.source.rpartition(":")[2] if self.one_file else s.scope.source
        return f"TTGIR {s.scope.first}"
