"""The longest chain is the longest of all chains, and slack is what a node can grow by; both by trying everything."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.profile.timeline.longest_path import CriticalPath, Edge, Node, by_scope, critical_path


def chains(nodes: list[Node], edges: list[Edge]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every chain of a graph without circles, with its length."""
    cycles = {n.name: n.cycles for n in nodes}

    def onward(path: tuple[str, ...], length: float) -> Iterator[tuple[tuple[str, ...], float]]:
        yield path, length
        for e in edges:
            if e.before == path[-1]:
                yield from onward((*path, e.after), length + e.cycles + cycles[e.after])

    for n in nodes:
        yield from onward((n.name,), n.cycles)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], list[Edge]]:
    count = draw(st.integers(1, 7))
    nodes = [Node(str(i), draw(st.integers(0, 20))) for i in range(count)]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return draw(st.permutations(nodes)), [Edge(str(a), str(b), draw(st.integers(0, 5))) for a, b in chosen]


@settings(max_examples=200)
@given(graphs())
def test_the_path_is_a_longest_chain(graph: tuple[list[Node], list[Edge]]) -> None:
    nodes, edges = graph
    found = critical_path(nodes, edges)
    every = list(chains(nodes, edges))
    assert found.length == max(length for _, length in every)
    assert (found.path, found.length) in every


@settings(max_examples=200)
@given(graphs())
def test_slack_is_how_much_longer_a_node_could_take(graph: tuple[list[Node], list[Edge]]) -> None:
    nodes, edges = graph
    found = critical_path(nodes, edges)
    every = list(chains(nodes, edges))
    for n in nodes:
        through = max(length for path, length in every if n.name in path)
        assert found.slack[n.name] == found.length - through
    assert all(found.slack[name] == 0 for name in found.path)


def test_a_consumer_that_waits_for_a_slow_producer_is_not_on_the_path_until_it_is_served() -> None:
    nodes = [Node("load", 100), Node("early", 10), Node("wait", 0), Node("dot", 30), Node("next load", 20)]
    edges = [Edge("load", "next load"), Edge("early", "wait"), Edge("wait", "dot"), Edge("load", "wait", 7)]
    found = critical_path(nodes, edges)
    assert (found.length, found.path) == (137, ("load", "wait", "dot"))
    assert (found.slack["early"], found.slack["next load"]) == (97, 17)


def test_executions_of_a_scope_are_taken_together() -> None:
    nodes = [Node("a1", 5, "a"), Node("a2", 5, "a"), Node("b1", 1, "b")]
    found = critical_path(nodes, [Edge("a1", "a2"), Edge("a1", "b1")])
    first, second = by_scope(found, nodes)
    assert (first.scope, first.on_path, first.cycles, first.slack) == ("a", 2, 10, 0)
    assert (second.scope, second.on_path, second.slack) == ("b", 0, 4)


def test_nothing_has_a_path_of_no_length() -> None:
    assert critical_path([], []) == CriticalPath(0.0, (), {})


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ([Node("a", 1), Node("b", 1)], [Edge("a", "b"), Edge("b", "a")]),
        ([Node("a", 1), Node("a", 2)], []),
        ([Node("a", -1)], []),
        ([Node("a", float("nan"))], []),
        ([Node("a", 1)], [Edge("a", "b")]),
    ],
)
def test_what_is_no_program_is_refused(nodes: list[Node], edges: list[Edge]) -> None:
    with pytest.raises(ValueError):
        critical_path(nodes, edges)
