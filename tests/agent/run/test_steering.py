"""What a person asks of a run reaches its loop by way of the record: once, in time or not at all, also after a kill."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.llm.models.budget import Budget, Guarded
from pgo_agent.agent.llm.models.relay import RelayModel
from pgo_agent.agent.llm.models.types import Asker, Exhausted
from pgo_agent.agent.proposal import bandit, lessons, parents, prompt
from pgo_agent.agent.run import provenance, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record import history, prompts, user_requests
from pgo_agent.agent.run.record.candidate import Candidate, candidate_id
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.agent.search import steps
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent import searching


@pytest.fixture
def ctx(store: Store) -> Context:
    return searching.begin(store, "second-1", minutes=20.0)


def ask(ctx: Context, kind: Kind, /, **body: object) -> int:
    return user_requests.add(ctx.store, ctx.run.id, kind, body)


def outcome(ctx: Context, n: int) -> str | None:
    return user_requests.of(ctx.store, ctx.run.id)[n - 1].outcome


def again(ctx: Context, c: Candidate) -> Candidate:
    return ctx.store.candidate(ctx.run.id, c.id)


def mine(ctx: Context, n: int = 900, parent: str = "shipped") -> str:
    """Asks for a candidate of one's own; gives its text."""
    source = searching.another(n)
    ask(ctx, Kind.SUBMIT, source=source, kind="source", parent=parent, of=parent)
    return source


@pytest.mark.parametrize(("kind", "body", "told"), [
    (Kind.BUDGET, {"name": "tokens", "value": 0}, "budget: tokens, 0"),
    (Kind.BUDGET, {"name": "minutes", "value": 2000000.0}, "budget: minutes, 2000000"),
    (Kind.BUDGET, {"name": "money", "value": 1234.56}, "budget: money, 1234.56"),
    (Kind.PIN, {"candidate": ""}, "pin: off"),
    (Kind.PIN, {"candidate": "0123456789abcdef"}, "pin: 01234567"),
    (Kind.VETO, {"candidate": "0123456789abcdef", "why": ""}, "veto: 01234567"),
    (Kind.VETO, {"candidate": "0123456789abcdef", "why": "too odd"}, "veto: 01234567, too odd"),
    (Kind.GUIDE, {"text": "use two stages"}, "guide: use two stages"),
    (Kind.SUBMIT, {"source": "x", "kind": "source", "parent": "shipped", "of": "shipped"},
     "submit: source edited from shipped"),
    (Kind.SUBMIT, {"source": "x", "kind": "ttgir", "parent": "shipped", "of": "0123456789abcdef"},
     "submit: TTGIR edited from 01234567"),
])  # fmt: skip
def test_what_was_asked_is_told_in_words(ctx: Context, kind: Kind, body: dict[str, object], told: str) -> None:
    ask(ctx, kind, **body)
    assert [s.asked for s in user_requests.of(ctx.store, ctx.run.id)] == [told]


# vetoes ---------------------------------------------------------------------------------------------------------------


def test_a_veto_is_a_verdict_before_the_candidate_is_built_or_judged(ctx: Context) -> None:
    (c,) = searching.propose(ctx, searching.another(1))
    n = ask(ctx, Kind.VETO, candidate=c.id, why="too odd")
    steps.build(ctx, 1)
    found = again(ctx, c)
    assert (found.verdict, found.stage, found.built) == ("vetoed", "veto", None)
    assert found.reason == "vetoed by the user: too odd" and "will not be judged" in str(outcome(ctx, n))


def test_a_veto_that_comes_too_late_changes_nothing_and_says_so(ctx: Context) -> None:
    c = searching.tried(ctx, Verdict.CHECKED)
    n = ask(ctx, Kind.VETO, candidate=c.id, why="")
    steps.apply_requests(ctx)
    assert again(ctx, c).verdict == "checked" and "too late: it is checked" in str(outcome(ctx, n))
    with pytest.raises(UsageFault, match="too late"):
        steering.may_veto(c)


def test_a_veto_whose_verdict_was_recorded_before_a_kill_is_taken_once(ctx: Context) -> None:
    (c,) = searching.propose(ctx, searching.another(1))
    n = ask(ctx, Kind.VETO, candidate=c.id, why="")
    ((_, candidate, judged),) = steering.look(ctx)
    steps.settle(ctx, candidate, judged, None, 0.0)
    told = list[dict[str, object]]()
    resumed = replace(ctx, emit_to=lambda e: told.append(e.as_json()))
    steps.apply_requests(resumed)
    assert [e["type"] for e in told] == ["steer.taken"] and outcome(ctx, n)


def test_what_was_vetoed_teaches_nothing_and_costs_its_proposer_nothing(ctx: Context) -> None:
    (c,) = searching.propose(ctx, searching.another(1), finished=True)
    ask(ctx, Kind.VETO, candidate=c.id, why="")
    steps.apply_requests(ctx)
    assert bandit.tallies(ctx)["moves"].judged == 0
    later = searching.begin(ctx.store, "third-1")
    assert c.id not in {t.id for t in history.tried(ctx.store, history.of(later.run))}
    assert lessons.lines(later) == []


# budgets --------------------------------------------------------------------------------------------------------------


def test_a_budget_holds_from_the_next_piece_of_work_on_and_after_a_resume(ctx: Context) -> None:
    ask(ctx, Kind.BUDGET, name="minutes", value=0.0)
    steps.apply_requests(ctx)
    assert ctx.out_of_time() and searching.context(ctx.store, ctx.run.id).out_of_time()


def test_a_budget_of_tokens_reaches_the_purse_of_the_models(ctx: Context, tmp_path: Path) -> None:
    asker, purse = Asker(ctx.run.id, "add", "digest", lambda kind, **fields: None, wait=False), Budget(1_000_000)
    asked = replace(ctx, model=Guarded(RelayModel(tmp_path / "relay", asker), asker, purse, None))
    ask(ctx, Kind.BUDGET, name="tokens", value=7)
    steps.apply_requests(asked)
    assert asked.model is not None
    with pytest.raises(Exhausted, match="of 7 tokens 7 are left"):
        asked.model.complete("a prompt")


@given(st.sampled_from([*steering.BUDGETS, "x"]), st.text(max_size=12))
def test_a_budget_is_a_number_from_zero_on_or_a_clear_fault(name: str, text: str) -> None:
    try:
        told = steering.budget_of(name, text, RunFacts(prices={"m": (1.0, 1.0)}))
    except UsageFault as e:
        assert e.hint and e.message.isprintable()
        return
    assert told["name"] == name and 0 <= told["value"] < float("inf")


# what holds from a generation on --------------------------------------------------------------------------------------


def test_guidance_is_in_the_prompts_of_generations_that_begin_after_it(ctx: Context) -> None:
    ask(ctx, Kind.GUIDE, text="use two stages")
    assert "use two stages" not in prompt.render(prompt.gather(ctx))
    steering.begin(ctx, 1)
    said = prompt.render(prompt.gather(ctx))
    assert "\n> use two stages\n" in said and "The person who runs this says" in said


def test_guidance_waits_while_a_generation_is_asked_for(ctx: Context) -> None:
    prompts.keep(ctx.store, ctx.run.id, 1, "", "the prompt")
    n = ask(ctx, Kind.GUIDE, text="use two stages")
    steering.begin(ctx, 1)
    assert outcome(ctx, n) is None
    steering.begin(ctx, 2)
    assert "nobody reads" in str(outcome(ctx, n))


@given(st.text())
def test_guidance_is_one_printable_line_whatever_was_pasted(text: str) -> None:
    try:
        line = steering.guidance_of(text)
    except UsageFault as e:
        assert e.hint
        return
    assert line.isprintable() and 0 < len(line) <= steering.LONGEST


def test_a_candidate_of_ones_own_is_proposed_first_beyond_the_budget_and_is_foreign(ctx: Context) -> None:
    ctx.change({"candidates": 1})
    source = mine(ctx)
    assert steps.propose(ctx, 1) == 2
    first, second = ctx.store.candidates(ctx.run.id)
    assert (first.source, first.author, first.proposer) == (source, "user", "user") and second.author == "embedded"
    assert provenance.untrusted(ctx, first) and not provenance.untrusted(ctx, second)
    assert provenance.author(ctx, first.id) == "embedded, onto user"


def test_a_candidate_of_ones_own_is_in_its_generation_again_after_a_kill(ctx: Context) -> None:
    source = mine(ctx)
    steering.begin(ctx, 1)  # and then the process is killed
    resumed = searching.context(ctx.store, ctx.run.id)
    steps.propose(resumed, 1)
    assert candidate_id(source) in {c.id for c in ctx.store.candidates(ctx.run.id, 1)}


def test_a_candidate_of_ones_own_that_was_taken_before_a_kill_still_wants_its_generation(ctx: Context) -> None:
    assert not steering.wants_a_generation(ctx, 1)
    mine(ctx)
    assert steering.wants_a_generation(ctx, 1)
    steering.begin(ctx, 1)  # and then the process is killed
    assert steering.wants_a_generation(searching.context(ctx.store, ctx.run.id), 1)
    steps.propose(ctx, 1)
    assert not steering.wants_a_generation(ctx, 1)


def test_a_candidate_of_ones_own_whose_generation_does_not_come_about_was_taken_by_nobody(ctx: Context) -> None:
    mine(ctx)
    steering.begin(ctx, 1)
    assert not steering.unread(ctx.store, ctx.run.id)
    steering.give_back(ctx, 1)
    assert [s.outcome for s in steering.unread(ctx.store, ctx.run.id)] == [None]
    steering.begin(ctx, 2)
    steps.propose(ctx, 2)
    steering.give_back(ctx, 2)
    assert not steering.unread(ctx.store, ctx.run.id)


def test_a_text_that_is_known_is_not_proposed_twice_and_the_person_is_told(ctx: Context) -> None:
    c = searching.tried(ctx, Verdict.CHECKED, source=searching.another(900))
    mine(ctx, 900)
    steering.begin(ctx, 2)
    assert outcome(ctx, 1) == f"your text is candidate {c.id[:8]} already"


def test_a_pinned_parent_comes_first_until_it_is_let_go(ctx: Context) -> None:
    c = searching.tried(ctx, Verdict.CHECKED)
    n = ask(ctx, Kind.PIN, candidate=c.id)
    assert next(parents.proposals(ctx)).parent == "shipped"
    steering.begin(ctx, 2)
    assert steering.start(ctx) == c.id == next(parents.proposals(ctx)).parent and f"from {c.id[:8]}" in str(
        outcome(ctx, n)
    )
    ask(ctx, Kind.PIN, candidate="")
    steering.begin(ctx, 3)
    assert steering.start(ctx) == "shipped" and steering.started_from(ctx, 1) == "shipped"
    assert steering.pinned(ctx, 2) == c.id


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.DEADLOCK, Verdict.BUILD_ERROR])
def test_what_is_broken_cannot_be_pinned(ctx: Context, verdict: Verdict) -> None:
    with pytest.raises(UsageFault, match="nothing is made of it"):
        steering.may_pin(searching.tried(ctx, verdict))


def test_a_candidate_of_ones_own_may_bring_a_longer_list_of_configurations_than_a_proposal(ctx: Context) -> None:
    one = 'triton.Config({{"BLOCK": 1024}}, num_warps={}, num_stages={})'
    six = ", ".join(one.format(n, s) for n in (1, 2, 4) for s in (1, 2))
    own = 'triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=8)'
    assert own in searching.SOURCE
    c = searching.built(ctx, searching.SOURCE.replace(own, six), author=steering.AUTHOR, proposer=steering.AUTHOR)
    assert c.built and not c.built.failures and {len(o) for o in c.built.choices.values()} == {3}
