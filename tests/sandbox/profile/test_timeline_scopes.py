"""Records stand where a kernel's parts begin and end, in texts that Triton's own parser reads, and nowhere else."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile.timeline import find_scopes, scope_sets
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.instrument import instrument
from pgo_agent.sandbox.profile.timeline.scope_sets import MOST, ScopeSet, Unsupported, Why
from pgo_agent.sandbox.ttgir import normalize, reader, triton_parser

from tests.sandbox.gate.barriers.test_kernels import KERNELS

RECORD = re.compile(r'\n\s*proton\.record (start|end) "([^"]*)"')


def text_of(made: str | Unsupported) -> str:
    assert isinstance(made, str), made
    return made


@pytest.mark.parametrize("name", KERNELS)
def test_every_part_of_a_kernel_is_recorded_in_one_of_the_passes_and_each_pass_holds_few(
    name: str, ttgir: Callable[[str], str]
) -> None:
    module = reader.parse(ttgir(name))
    everything = scope_sets.scopes_of(module)
    calibrating, *passes = scope_sets.plan_scopes(module, 6)
    roles = {s.name for s in everything if s.kind is Kind.ROLE}
    inner = Counter(s.name for p in passes for s in p.scopes if s.kind is not Kind.ROLE)
    assert inner == Counter({s.name: 1 for s in everything if s.kind is not Kind.ROLE})
    assert all(roles <= p.named.keys() and len(p.scopes) <= 6 + len(roles) for p in passes)
    assert {s.kind for s in calibrating.scopes} == {Kind.ROLE, Kind.EMPTY}


@pytest.mark.parametrize("name", KERNELS)
def test_without_its_records_an_instrumented_text_is_the_text_that_it_was_made_of(
    name: str, ttgir: Callable[[str], str]
) -> None:
    text = ttgir(name)
    module = reader.parse(text)
    for wanted in (*scope_sets.plan_scopes(module, 5), ScopeSet(scope_sets.scopes_of(module))):
        made = text_of(instrument(module, wanted))
        assert RECORD.sub("", made) == text
        assert Counter(RECORD.findall(made)) == Counter((w, n) for n in wanted.named for w in ("start", "end"))


@pytest.mark.parametrize("name", KERNELS)
def test_tritons_own_parser_reads_every_scope_of_a_kernel_at_once(
    name: str, ttgir: Callable[[str], str], add_contents: ContentStore
) -> None:
    module = reader.parse(triton_parser.bare(ttgir(name)))
    made = text_of(instrument(module, ScopeSet(scope_sets.scopes_of(module))))
    answer = triton_parser.ask(box.choose(), add_contents, 90, made, records=True)
    assert answer.error is None
    assert normalize.digest(reader.parse(answer.printed)) == normalize.digest(reader.parse(made))


def test_a_text_with_records_is_no_candidate_for_the_parser(
    ttgir: Callable[[str], str], add_contents: ContentStore
) -> None:
    module = reader.parse(ttgir("cp_async"))
    made = text_of(instrument(module, ScopeSet(scope_sets.scopes_of(module))))
    assert triton_parser.ask(box.choose(), add_contents, 90, made).error is not None


def test_waits_dots_bodies_and_stores_of_each_role_have_scopes(ttgir: Callable[[str], str]) -> None:
    found = {(s.role, s.kind) for s in scope_sets.scopes_of(reader.parse(ttgir("attention")))}
    consumer = {Kind.ROLE, Kind.LOOP, Kind.BARRIER_WAIT, Kind.DOT, Kind.DOT_WAIT, Kind.BODY, Kind.STORE}
    roles = {role for role, _ in found}
    assert any(consumer <= {k for r, k in found if r == role} for role in roles - {"kernel"})
    assert any({k for r, k in found if r == role} >= {Kind.BARRIER_WAIT, Kind.COPY} for role in roles - {"kernel"})


@pytest.mark.parametrize("name", ["gemm_specialized", "attention"])
def test_waits_and_dots_that_follow_one_another_are_told_apart(name: str, ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir(name))
    alone = [s for s in scope_sets.scopes_of(module) if s.kind in find_scopes.ALONE]
    assert all(len(s.ops) == 1 for s in alone)
    assert len(alone) == sum(find_scopes.kind_of(op) in find_scopes.ALONE for op in module.walk())


def test_a_scope_says_where_it_stands_in_the_source_and_in_how_many_loops(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("cp_async"))
    dot = next(s for s in scope_sets.scopes_of(module) if s.kind is Kind.DOT)
    assert re.fullmatch(r"barrier_kernels\.py:\d+", dot.source)
    assert (dot.depth, dot.role, dot.ops) == (1, "kernel", ("ttng.warp_group_dot",))


def test_scopes_that_nest_end_in_the_opposite_order(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("two_consumers"))
    open_: list[str] = []
    for what, name in RECORD.findall(text_of(instrument(module, ScopeSet(scope_sets.scopes_of(module))))):
        if what == "start":
            open_.append(name)
        else:
            assert open_.pop() == name


def test_a_function_that_is_not_inlined_is_a_reason(ttgir: Callable[[str], str]) -> None:
    text = ttgir("cp_async")
    callee = "  tt.func private @helper() attributes {noinline = true} {\n    tt.return\n  }\n"
    at = text.index("  tt.func public")
    module = reader.parse(text[:at] + callee + text[at:])
    assert scope_sets.plan_scopes(module, 8) == []
    found = instrument(module, ScopeSet(()))
    assert isinstance(found, Unsupported) and found.why is Why.CALLEE and "@helper" in found.told


def test_more_scopes_than_an_entry_can_name_are_a_reason_and_fit_in_halves(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("cp_async"))
    dot = next(s for s in scope_sets.scopes_of(module) if s.kind is Kind.DOT)
    many = ScopeSet(tuple(replace(dot, name=str(i)) for i in range(MOST + 1)))
    found = instrument(module, many)
    assert isinstance(found, Unsupported) and found.why is Why.SCOPES
    assert all(isinstance(instrument(module, half), str) for half in many.halves())
    assert all(len(p.scopes) <= MOST for p in scope_sets.plan_scopes(module, 10_000))


def test_scopes_of_another_module_are_a_reason(ttgir: Callable[[str], str]) -> None:
    module = reader.parse(ttgir("cp_async"))
    scope = replace(scope_sets.scopes_of(module)[0], first=10**6)
    found = instrument(module, ScopeSet((scope,)))
    assert isinstance(found, Unsupported) and found.why is Why.PLACE


def test_a_set_of_scopes_is_the_same_after_a_trip_through_json(ttgir: Callable[[str], str]) -> None:
    for wanted in scope_sets.plan_scopes(reader.parse(ttgir("two_consumers")), 8):
        assert ScopeSet.from_json(wanted.as_json()) == wanted
