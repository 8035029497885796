"""The graph of a kernel has its roles' executions in order, and is tied where one role waits for another."""

from collections.abc import Callable

import pytest
from pgo_agent.sandbox.profile.timeline.execution_graph import Graph, graph
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.longest_path import by_scope, critical_path
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, scopes_of
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

SPECIALIZED = ("gemm_specialized", "persistent_specialized", "two_consumers", "attention")


def timed(module: Module, iterations: int, weigh: Callable[[Scope], float] = lambda s: 10.0) -> Graph:
    found = graph(module, {s.name: weigh(s) for s in scopes_of(module)}, iterations)
    assert not found.problem, found.problem
    return found


def role_with(module: Module, *kinds: Kind) -> str:
    found = scopes_of(module)
    return next(r for r in dict.fromkeys(s.role for s in found) if {s.kind for s in found if s.role == r} >= {*kinds})


@pytest.mark.parametrize("name", ["cp_async", "gemm"])
def test_a_kernel_of_one_role_is_one_chain_of_all_its_executions(name: str, ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir(name))
    few, many = timed(module, 3), timed(module, 7)
    for found in (few, many):
        path = critical_path(found.nodes, found.edges)
        assert path.path == tuple(n.name for n in found.nodes)
        assert path.length == sum(n.cycles for n in found.nodes)
        assert not any(path.slack.values())
    dots = [sum(" dot " in n.scope and "wait" not in n.scope for n in g.nodes) for g in (few, many)]
    assert dots[1] - dots[0] == 4


@pytest.mark.parametrize("name", SPECIALIZED)
def test_roles_are_tied_by_what_one_waits_for_and_another_brings(name: str, ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir(name))
    found = timed(module, 5)
    role = {n.name: n.role for n in found.nodes}
    scope = {n.name: n.scope for n in found.nodes}
    kinds = {s.name: s.kind for s in scopes_of(module)}
    across = [e for e in found.edges if role[e.before] != role[e.after] and "begins" not in e.after]
    ties = [e for e in across if role[e.after] != "kernel" and role[e.before] != "kernel"]
    assert ties and all(kinds[scope[e.after]] is Kind.BARRIER_WAIT for e in ties)
    assert {Kind.COPY} <= {kinds[scope[e.before]] for e in ties if scope[e.before]}


def test_a_slow_producer_puts_its_copies_on_the_path_and_gives_the_consumers_slack(
    ttgir: Callable[[str], str],
) -> None:
    module = reader.parse(ttgir("two_consumers"))
    producer, consumer = role_with(module, Kind.COPY), role_with(module, Kind.DOT)
    found = timed(module, 7, lambda s: 1000.0 if s.kind is Kind.COPY else 1.0)
    path = critical_path(found.nodes, found.edges)
    first = by_scope(path, found.nodes)[0]
    assert first.scope.startswith(f"{producer} copy")
    assert first.on_path >= 7
    early = next(n for n in found.nodes if n.role == consumer and " dot " in n.scope)
    assert path.slack[early.name] > 1000


def test_a_slow_consumer_is_the_path_and_the_producer_waits_for_its_places(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("two_consumers"))
    producer, consumer = role_with(module, Kind.COPY), role_with(module, Kind.DOT)
    found = timed(module, 7, lambda s: 1000.0 if s.role == consumer and s.kind is Kind.DOT_WAIT else 1.0)
    path = critical_path(found.nodes, found.edges)
    assert by_scope(path, found.nodes)[0].scope.startswith(f"{consumer} dot wait")
    copies = [n for n in found.nodes if n.role == producer and " copy " in n.scope]
    assert all(path.slack[n.name] > 0 for n in copies[1:])


def test_a_wait_for_a_place_takes_no_time_of_its_own_and_a_wait_for_copies_does(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("two_consumers"))
    producer, consumer = role_with(module, Kind.COPY), role_with(module, Kind.DOT)
    waits = [n for n in timed(module, 9).nodes if "barrier wait" in n.scope]
    assert [n.cycles for n in waits if n.role == producer][-1] == 0
    assert all(n.cycles == 10 for n in waits if n.role == consumer)


def test_what_the_simulator_cannot_follow_is_a_reason(ttgir: Callable[[str], str]) -> None:
    text = ttgir("two_consumers").replace('"ttg.num-ctas" = 1', '"ttg.num-ctas" = 2')
    found = graph(reader.parse(text), {}, 5)
    assert not found.nodes and "cluster" in found.problem
