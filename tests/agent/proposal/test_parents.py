"""Where moves start from, and whose code comes of it."""

from dataclasses import replace
from typing import Any

import pytest
from pgo_agent.agent.evaluation import build, measure
from pgo_agent.agent.proposal import parents
from pgo_agent.agent.run import profile_targets, provenance
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.search import steps
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation.box import Box

from tests.agent import searching
from tests.agent.searching import tried

THEIRS: dict[str, Any] = {"author": "tiny", "proposer": "model"}
OURS: dict[str, Any] = {}


@pytest.fixture
def ctx(store: Store) -> Context:
    return searching.begin(store, "now-1")


def unboxed(ctx: Context) -> Context:
    """The same run on a machine without a sandbox."""
    return replace(ctx, builder=replace(ctx.builder, box=Box("none")))


# whose code -----------------------------------------------------------------------------------------------------------


def test_a_move_on_a_models_code_gives_a_models_code(ctx: Context) -> None:
    theirs = tried(ctx, Verdict.ACCEPTED, 1.1, **THEIRS)
    found = [p.author for p in parents.proposals(ctx) if p.parent == theirs.id]
    assert found and set(found) == {"embedded, onto tiny"}


def test_a_move_on_its_own_code_stays_the_moves_code(ctx: Context) -> None:
    ours = tried(ctx, Verdict.ACCEPTED, 1.1, **OURS)
    assert {p.author for p in parents.proposals(ctx) if p.parent == ours.id} == {provenance.EMBEDDED}


def test_what_comes_of_foreign_code_in_three_steps_is_foreign(ctx: Context) -> None:
    first = tried(ctx, Verdict.SLOWER, 0.99, **THEIRS)
    second = tried(ctx, Verdict.SLOWER, 0.99, author=provenance.author(ctx, first.id), parent=first.id)
    third = tried(ctx, Verdict.SLOWER, 0.99, author=provenance.author(ctx, second.id), parent=second.id)
    assert [c.author for c in (second, third)] == ["embedded, onto tiny"] * 2
    assert all(provenance.untrusted(ctx, c) for c in (first, second, third))


def test_a_record_that_calls_it_embedded_does_not_make_foreign_code_ours(ctx: Context) -> None:
    """Records from before had it so: what a candidate is made of counts, not its own author alone."""
    theirs = tried(ctx, Verdict.SLOWER, 0.99, **THEIRS)
    onto = tried(ctx, Verdict.SLOWER, 0.99, parent=theirs.id)
    assert onto.author == provenance.EMBEDDED and provenance.untrusted(ctx, onto)


def test_what_is_made_of_nobody_knows_what_is_foreign(ctx: Context) -> None:
    assert provenance.untrusted(ctx, tried(ctx, Verdict.SLOWER, 0.99, parent="0123456789abcdef"))


@pytest.mark.parametrize("theirs_first", [True, False])
def test_two_kernels_in_one_file_are_foreign_when_one_of_them_is(ctx: Context, theirs_first: bool) -> None:
    """`dispatch` puts a candidate beside what it was measured against: either may be somebody else's."""
    told = (THEIRS, OURS) if theirs_first else (OURS, THEIRS)
    first = tried(ctx, Verdict.ACCEPTED, 1.1, **told[0])
    second = tried(ctx, Verdict.SLOWER, 0.99, source=searching.adding("0.0"), parent="shipped", **told[1])
    ctx.store.db.execute("UPDATE candidates SET against = ? WHERE id = ?", (first.id, second.id))
    (theirs,) = (c for c in (first, second) if c.author == "tiny")
    assert provenance.author(ctx, first.id, second.id) == f"embedded, onto {theirs.author}"


def test_what_moves_make_of_foreign_code_is_refused_where_no_sandbox_works(ctx: Context) -> None:
    theirs = tried(ctx, Verdict.SLOWER, 0.99, **THEIRS)
    (onto,) = searching.propose(ctx, searching.another(50), parent=theirs.id, author=provenance.author(ctx, theirs.id))
    for refused in (onto, replace(onto, author=provenance.EMBEDDED)):
        with pytest.raises(EnvironmentFault, match="not your own code"):
            build.first(unboxed(ctx), refused, 1)


def test_foreign_code_that_was_built_elsewhere_is_not_interpreted_where_no_sandbox_works(ctx: Context) -> None:
    """A run may be resumed on another machine: what is built there is not run here without a box."""
    (onto,) = searching.propose(ctx, searching.another(51), author="embedded, of before-1", proposer="memory")
    ctx.store.set_built("now-1", onto.id, Built("b", {}, {}, {}, {}, ()))
    with pytest.raises(EnvironmentFault, match="not your own code"):
        measure.in_interpreter(unboxed(ctx), onto)


def test_foreign_code_is_told_as_such_to_the_profiler_and_when_it_is_built_again(ctx: Context) -> None:
    theirs = tried(ctx, Verdict.ACCEPTED, 1.1, **THEIRS)
    onto = tried(ctx, Verdict.ACCEPTED, 1.1, parent=theirs.id)
    assert {w.untrusted for w in profile_targets.wanted(ctx, onto.id)} == {True}
    with pytest.raises(EnvironmentFault, match="not your own code"):
        build.again(unboxed(ctx), onto)


# where to start -------------------------------------------------------------------------------------------------------


def test_a_models_candidate_that_is_right_and_near_is_a_parent(ctx: Context) -> None:
    near, far = tried(ctx, Verdict.SLOWER, 0.99, **THEIRS), tried(ctx, Verdict.SLOWER, 0.5, **THEIRS)
    wrong, same = tried(ctx, Verdict.WRONG, **THEIRS), tried(ctx, Verdict.NO_CHANGE, **THEIRS)
    found = {p.name for p in parents.parents(ctx)}
    assert near.id in found and not {far.id, wrong.id, same.id} & found


def test_the_incumbent_goes_first_until_patience_nears_its_end(ctx: Context) -> None:
    tried(ctx, Verdict.SLOWER, 0.97)
    assert not parents.restarts(ctx) and parents.parents(ctx)[0].name == "shipped"


def test_the_search_starts_again_from_the_best_runner_up_whoever_wrote_it(ctx: Context) -> None:
    ours, theirs = tried(ctx, Verdict.SLOWER, 0.97), tried(ctx, Verdict.SLOWER, 0.99, **THEIRS)
    assert parents.restarts(ctx)
    assert [p.name for p in parents.parents(ctx)] == [theirs.id, ours.id, "shipped"]
    events = list[dict[str, Any]]()
    steps.propose(replace(ctx, emit_to=lambda e: events.append(e.as_json())), 3)
    first = ctx.store.candidates("now-1", 3)[0]
    assert (first.author, first.parent) == ("embedded, onto tiny", theirs.id)
    (told,) = (e["candidates"] for e in events if e["type"] == "search.restarted")
    assert told == [theirs.id, ours.id]


def test_a_start_from_a_runner_up_varies_its_launches_too(ctx: Context) -> None:
    one = tried(ctx, Verdict.SLOWER, 0.97)
    before = {p.kind for p in parents.proposals(ctx) if p.parent == one.id}
    tried(ctx, Verdict.WRONG)
    again = {p.kind for p in parents.proposals(ctx) if p.parent == one.id}
    assert "launch" not in before and "launch" in again


def test_what_was_near_the_kernel_as_shipped_is_far_behind_a_large_win(ctx: Context) -> None:
    """A runner-up is compared with the incumbent of now, not with the one that it was measured against."""
    near = tried(ctx, Verdict.SLOWER, 0.99)
    assert parents.runners_up(ctx) == [near]
    won = tried(ctx, Verdict.ACCEPTED, 1.5)
    assert parents.runners_up(ctx) == []
    behind = tried(ctx, Verdict.SLOWER, 0.9, parent=won.id)
    assert parents.runners_up(ctx) == [behind]


def test_a_win_ends_the_start_from_runners_up(ctx: Context) -> None:
    for _ in range(2):
        tried(ctx, Verdict.SLOWER, 0.97)
    won = tried(ctx, Verdict.ACCEPTED, 1.1)
    assert not parents.restarts(ctx) and parents.parents(ctx)[0].name == won.id


def test_ttgir_is_no_parent_of_moves(ctx: Context) -> None:
    tried(ctx, Verdict.SLOWER, 0.99, kind="ttgir", **THEIRS)
    tried(ctx, Verdict.WRONG)
    assert [p.name for p in parents.parents(ctx)] == ["shipped"]


def test_where_nothing_is_measured_the_search_does_not_start_again(ctx: Context) -> None:
    for _ in range(5):
        tried(ctx, Verdict.CHECKED)
    ctx.store.set_baseline("now-1", replace(ctx.baseline(), environment=None))
    assert not parents.restarts(ctx)


def test_a_text_that_no_analysis_can_read_ends_no_run(ctx: Context) -> None:
    """A model's candidate may hold what the moves have never seen: they say so, and the incumbent has its turn."""
    deep = searching.another().replace("return z", "return z" + " + 0" * 5000)
    theirs = tried(ctx, Verdict.SLOWER, 0.99, source=deep, **THEIRS)
    assert {p.parent for p in parents.proposals(ctx)} == {"shipped"}
    assert (theirs.id, "every move") in [(c, m) for c, m, _ in ctx.store.skipped("now-1")]
