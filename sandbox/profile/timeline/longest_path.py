"""The longest chain of a program whose parts wait for one another, and how much later each part could end.

A node is one execution of a scope. Edges say what must have ended before what begins: the program order of a role, and
an arrival before the wait that it serves. Nothing here knows of kernels; `execution_graph.py` makes the graph of one.
The model has no contention and no latency but what an edge says, so its length is a lower bound of what the nodes'
times allow.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from pgo_agent.sandbox.json_codec import Record


@dataclass(frozen=True)
class Node:
    name: str  # unique
    cycles: float  # from its begin to its end, not below zero
    scope: str = ""  # what it is an execution of
    role: str = ""


@dataclass(frozen=True)
class Edge:
    before: str  # name of a node that must have ended
    after: str  # before this one begins
    cycles: float = 0.0  # that pass in between, at least


@dataclass(frozen=True)
class CriticalPath(Record):
    """Cycles. Of several longest chains the one whose nodes come first in the given order."""

    length: float
    path: tuple[str, ...]  # names of nodes, in order
    slack: dict[str, float]  # node -> how much longer it could take without making the whole longer


@dataclass(frozen=True)
class ScopeChain(Record):
    """What the executions of one scope have to do with the longest chain."""

    scope: str
    on_path: int  # executions that are on it
    cycles: float  # of these
    slack: float  # the least of any execution


def critical_path(nodes: Sequence[Node], edges: Sequence[Edge]) -> CriticalPath:
    """Return the longest chain by the times of nodes and edges. Linear in both.

    Raises ValueError for a node named twice, an edge of an unknown node, a time below zero, and a circle.
    """
    _check(nodes, edges)
    cycles = {n.name: n.cycles for n in nodes}
    into, out = defaultdict[str, list[Edge]](list), defaultdict[str, list[Edge]](list)
    for e in edges:
        into[e.after].append(e)
        out[e.before].append(e)
    order = _ordered(cycles, into)
    ends: dict[str, float] = {}  # when each node ends at the earliest
    last: dict[str, Edge | None] = {}  # what each node waits for longest
    for name in order:
        edge = last[name] = max(into[name], key=lambda e: ends[e.before] + e.cycles, default=None)
        ends[name] = (ends[edge.before] + edge.cycles if edge else 0.0) + cycles[name]
    length = max(ends.values(), default=0.0)
    latest: dict[str, float] = {}  # when each node may end without making the whole longer
    for name in reversed(order):
        latest[name] = min((latest[e.after] - cycles[e.after] - e.cycles for e in out[name]), default=length)
    slack = {name: max(0.0, latest[name] - ends[name]) for name in cycles}
    return CriticalPath(length, _path(max(cycles, key=ends.__getitem__, default=None), last), slack)


def _ordered(names: Iterable[str], into: Mapping[str, Sequence[Edge]]) -> list[str]:
    """So that every edge goes forward. Raises ValueError where that cannot be."""
    try:
        return list(TopologicalSorter({name: [e.before for e in into[name]] for name in names}).static_order())
    except CycleError as e:
        raise ValueError(f"the edges lead in a circle: {', '.join(e.args[1])}") from None


def _check(nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
    names = {n.name for n in nodes}
    times = (*(n.cycles for n in nodes), *(e.cycles for e in edges))
    if len(names) < len(nodes) or any(not t >= 0 for t in times):  # which NaN is not, either
        raise ValueError("nodes need names of their own, and times that are not below zero")
    if any(name not in names for e in edges for name in (e.before, e.after)):
        raise ValueError("an edge of a node that is not there")


def _path(end: str | None, last: Mapping[str, Edge | None]) -> tuple[str, ...]:
    path = []
    while end is not None:
        path.append(end)
        edge = last[end]
        end = edge.before if edge else None
    return tuple(reversed(path))


def by_scope(longest: CriticalPath, nodes: Sequence[Node]) -> tuple[ScopeChain, ...]:
    """Return the executions of each scope together, those with most cycles on the path first."""
    path = set(longest.path)
    grouped = defaultdict[str, list[Node]](list)
    for n in nodes:
        grouped[n.scope].append(n)
    chains = [
        ScopeChain(
            scope,
            sum(n.name in path for n in listed),
            sum(n.cycles for n in listed if n.name in path),
            min(longest.slack[n.name] for n in listed),
        )
        for scope, listed in grouped.items()
    ]
    return tuple(sorted(chains, key=lambda c: -c.cycles))
