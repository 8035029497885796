"""The chain of a profile goes through the roles that are slow, and grows with what is on it; on TTGIR that Triton made.

Times of scopes are chosen here, for a GPU would give its own.
"""

from collections.abc import Callable, Mapping
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.profile import critical_path as subject
from pgo_agent.sandbox.profile.critical_path import chain
from pgo_agent.sandbox.profile.kernel_profile import Chain, Missing
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.longest_path import ScopeChain
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, scopes_of
from pgo_agent.sandbox.profile.timeline.types import Lost, Pass, ScopeTime, Spread, Timed, Timeline
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tree import Module

SPECIALIZED = ("gemm_specialized", "persistent_specialized", "two_consumers", "attention")
DOTS = (Kind.DOT, Kind.DOT_WAIT)


def timeline(cycles: Mapping[str, float], of: Module) -> Timeline:
    """One build that recorded every scope of a module, with these P50."""
    timed = tuple(
        ScopeTime(s, Spread(c, c, c), 1.0, 0.0, None, 9) for s in scopes_of(of) if (c := cycles.get(s.name)) is not None
    )
    one = Pass(Timed(timed, Lost(), ()), 1.0, True, {}, (), 0, 4, {}, "")
    return Timeline((one,), {}, None, (), (), {})


def found(module: Module, weigh: Callable[[Scope], float], iterations: int = 7) -> Chain:
    made = chain(module, timeline({s.name: weigh(s) for s in scopes_of(module)}, module), iterations)
    assert isinstance(made, Chain), made
    return made


def producer_of(module: Module) -> str:
    """The role that copies and computes nothing."""
    kinds = {
        role: {s.kind for s in scopes_of(module) if s.role == role} for role in {s.role for s in scopes_of(module)}
    }
    (role,) = (r for r, k in kinds.items() if Kind.COPY in k and not k & {*DOTS})
    return role


def of_role(made: Chain, role: str, *kinds: Kind) -> list[ScopeChain]:
    return [s for s in made.scopes if any(s.scope.startswith(f"{role} {k} ") for k in kinds)]


@pytest.mark.parametrize("name", SPECIALIZED)
def test_slow_dots_are_the_chain_and_the_producers_copies_could_take_longer(
    name: str, ttgir: Callable[[str], str]
) -> None:
    module = reader.parse(ttgir(name))
    made = found(module, lambda s: 1000.0 if s.kind in DOTS else 1.0)
    first = made.scopes[0]
    assert any(first.scope.partition(f" {k} ")[2].isdigit() for k in DOTS)
    assert (first.on_path >= 7, first.slack) == (True, 0)
    in_loop = of_role(made, producer_of(module), Kind.COPY)
    assert in_loop and sum(s.cycles for s in in_loop) < first.cycles / 100
    assert made.length == pytest.approx(sum(s.cycles for s in made.scopes))


@pytest.mark.parametrize("name", SPECIALIZED)
def test_slow_copies_are_the_chain_and_the_consumers_dots_could_take_longer(
    name: str, ttgir: Callable[[str], str]
) -> None:
    module = reader.parse(ttgir(name))
    made = found(module, lambda s: 1000.0 if s.kind is Kind.COPY else 1.0)
    producer = producer_of(module)
    assert made.scopes[0].scope.startswith(f"{producer} copy ")
    assert made.scopes[0].on_path >= 7
    dots = [s for s in made.scopes if any(f" {k} " in s.scope for k in DOTS) and not s.scope.startswith(producer)]
    assert dots and sum(s.cycles for s in dots) < made.length / 100


def test_in_attention_slow_dots_leave_the_copy_of_v_slack_and_slow_copies_leave_it_to_the_first_dot(
    ttgir: Callable[[str], str],
) -> None:
    module = reader.parse(ttgir("attention"))
    producer, consumer = producer_of(module), "default"
    values = [s.name for s in scopes_of(module) if (s.role, s.kind) == (producer, Kind.COPY)][-1]
    scores = next(s.name for s in scopes_of(module) if (s.role, s.kind) == (consumer, Kind.DOT))
    dots = {s.scope: s for s in found(module, lambda s: 1000.0 if s.kind in DOTS else 1.0).scopes}
    copies = {s.scope: s for s in found(module, lambda s: 1000.0 if s.kind is Kind.COPY else 1.0).scopes}
    assert dots[values].slack >= 1000 and copies[values].slack == 0
    assert copies[scores].slack > 900 and dots[scores].slack == 0


@pytest.mark.parametrize("name", ["cp_async", "gemm"])
def test_in_a_kernel_of_one_role_everything_is_on_the_chain(name: str, ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir(name))
    few, many = found(module, lambda _: 10.0, 3), found(module, lambda _: 10.0, 8)
    assert all(s.slack == 0 and s.on_path for s in many.scopes)
    (dot,) = [(a, b) for a, b in zip(by_name(few), by_name(many), strict=True) if " dot " in a.scope and is_dot(a)]
    assert dot[1].on_path - dot[0].on_path == 5
    assert (few.iterations, many.iterations) == (3, 8)


def by_name(made: Chain) -> list[ScopeChain]:
    return sorted(made.scopes, key=lambda s: s.scope)


def is_dot(s: ScopeChain) -> bool:
    return s.scope.partition(f" {Kind.DOT} ")[2].isdigit()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["gemm", *SPECIALIZED]), data=st.data())
def test_a_cycle_more_of_a_scope_on_the_chain_lengthens_it_by_its_executions_on_it(
    name: str, data: st.DataObject, ttgir: Callable[[str], str]
) -> None:
    """No less, for the chain that was found is still there; no more than what is on the new one, without which the
    new one was there before. Waits that another role serves take no time of their own, whatever was measured.
    """
    module = parsed(ttgir(name))
    times = {s.name: float(data.draw(st.integers(1, 300), s.name)) for s in scopes_of(module)}
    before = found(module, lambda s: times[s.name], 4)
    waits = {s.name for s in scopes_of(module) if s.kind is Kind.BARRIER_WAIT}
    grown = data.draw(st.sampled_from([s for s in before.scopes if s.on_path and s.scope not in waits]))
    after = found(module, lambda s: times[s.name] + (s.name == grown.scope), 4)
    (then,) = (s for s in after.scopes if s.scope == grown.scope)
    assert before.length + grown.on_path <= after.length <= before.length + then.on_path


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(SPECIALIZED), data=st.data())
def test_a_scope_that_grows_by_more_than_its_slack_lengthens_the_chain(
    name: str, data: st.DataObject, ttgir: Callable[[str], str]
) -> None:
    module = parsed(ttgir(name))
    times = {s.name: float(data.draw(st.integers(1, 300), s.name)) for s in scopes_of(module)}
    before = found(module, lambda s: times[s.name], 4)
    waits = {s.name for s in scopes_of(module) if s.kind is Kind.BARRIER_WAIT}
    chosen = data.draw(st.sampled_from([s for s in before.scopes if s.scope not in waits]))
    after = found(module, lambda s: times[s.name] + (s.name == chosen.scope) * (chosen.slack + 1), 4)
    assert after.length >= before.length + 1


@cache
def parsed(text: str) -> Module:
    return reader.parse(text)


def test_what_cannot_be_followed_and_what_was_not_timed_are_reasons(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("two_consumers").replace('"ttg.num-ctas" = 1', '"ttg.num-ctas" = 2'))
    made = chain(module, timeline({s.name: 1.0 for s in scopes_of(module)}, module))
    assert isinstance(made, Missing) and "cluster" in made.why
    assert made.name == subject.NAME
    assert chain(module, timeline({}, module)) == Missing(subject.NAME, "no scope was timed")
