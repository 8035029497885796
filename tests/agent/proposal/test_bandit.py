"""Places of a generation go to who paid so far; nobody is asked in vain; the record alone decides."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.commands import recordings
from pgo_agent.agent.llm.models.replay import ReplayModel
from pgo_agent.agent.llm.models.types import Asker, Reply
from pgo_agent.agent.proposal import bandit
from pgo_agent.agent.proposal.bandit import MODEL, MOVES, Tally, mixed
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.events import Event
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.search import steps
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent import searching
from tests.agent.command_line import pgo, write
from tests.agent.llm.models.test_model_run import EDIT
from tests.agent.loopback import completion, serving

NOTHING = {MODEL: Tally(), MOVES: Tally()}
LAST = "x + tl.load(y_ptr"


def proposer(name: str, most: int = 100) -> Iterator[str]:
    return (name for _ in range(most))


def shared(places: int, known: dict[str, Tally], most: int = 100, seed: int = 0, turn: int = 1) -> Counter[str]:
    streams = {n: proposer(n, most if n == MODEL else 100) for n in known}
    return Counter(islice(mixed(streams, known, seed, turn), places))


# places ---------------------------------------------------------------------------------------------------------------


def test_who_paid_better_gets_more_places() -> None:
    found = shared(8, {MODEL: Tally(8, 4.0), MOVES: Tally(8, 0.4)})
    assert found[MODEL] > found[MOVES] >= 1


def test_who_never_paid_still_gets_one_place() -> None:
    assert shared(4, {MODEL: Tally(50, 0.0), MOVES: Tally(50, 25.0)}) == {MODEL: 1, MOVES: 3}


def test_who_has_nothing_left_makes_room() -> None:
    assert shared(6, {MODEL: Tally(8, 6.0), MOVES: Tally(8, 0.0)}, most=2) == {MODEL: 2, MOVES: 4}


def test_who_gets_no_place_is_not_asked() -> None:
    """A model's call costs money: with one place for the better one, it is not begun."""

    def costly() -> Iterator[str]:
        raise AssertionError("it was asked")
        yield ""

    streams = {MODEL: costly(), MOVES: proposer(MOVES)}
    assert list(islice(mixed(streams, {MODEL: Tally(3, 0.0), MOVES: Tally(3, 1.5)}, 0, 4), 1)) == [MOVES]


def test_a_single_place_goes_to_the_one_and_then_to_the_other() -> None:
    assert shared(1, NOTHING) == {MODEL: 1}
    assert shared(1, {MODEL: Tally(1, 0.25), MOVES: Tally()}) == {MOVES: 1}


def test_who_was_asked_little_is_asked_again_in_time() -> None:
    """However bad its luck: what is not known grows with all that the others were asked."""
    assert shared(1, {MODEL: Tally(8, 0.0), MOVES: Tally(10, 4.0)}) == {MOVES: 1}
    assert shared(1, {MODEL: Tally(8, 0.0), MOVES: Tally(1000, 400.0)}) == {MODEL: 1}


def test_equals_are_told_apart_by_the_seed_and_always_alike() -> None:
    first = [tuple(shared(1, NOTHING, seed=s)) for s in range(1, 30)]
    assert set(first) == {(MODEL,), (MOVES,)}
    assert first == [tuple(shared(1, NOTHING, seed=s)) for s in range(1, 30)]


_TALLIES = st.builds(lambda n, w: Tally(n, n * w), st.integers(0, 500), st.floats(0, 1))


@given(_TALLIES, _TALLIES, st.integers(2, 12), st.integers(0, 3), st.integers(0, 5))
def test_all_places_are_given_and_everybody_has_one(a: Tally, b: Tally, places: int, seed: int, left: int) -> None:
    found = shared(places, {MODEL: a, MOVES: b}, most=left, seed=seed)
    assert found.total() == places and found[MODEL] <= left
    assert found[MOVES] >= 1 and found[MODEL] >= min(1, left)
    assert found == shared(places, {MODEL: a, MOVES: b}, most=left, seed=seed)


# what pays ------------------------------------------------------------------------------------------------------------


def test_a_faster_candidate_is_worth_more_than_a_right_one_and_that_more_than_a_broken_one() -> None:
    order: list[tuple[Verdict, float | None]] = [
        (Verdict.WRONG, None),
        (Verdict.NO_CHANGE, None),
        (Verdict.SLOWER, 0.8),
        (Verdict.CHECKED, None),
        (Verdict.SLOWER, 0.99),
        (Verdict.ACCEPTED, 1.02),
        (Verdict.ACCEPTED, 1.5),
        (Verdict.ACCEPTED, 2.0),
    ]
    found = [bandit.worth(v, s) for v, s in order]
    assert found == sorted(set(found)) and (found[0], found[-1]) == (0.0, 1.0)
    assert bandit.worth(Verdict.ACCEPTED, 50.0) == 1.0


@given(st.sampled_from(list(Verdict)), st.none() | st.floats(0.01, 100))
def test_every_verdict_is_worth_something_between_nothing_and_one(verdict: Verdict, speedup: float | None) -> None:
    assert 0.0 <= bandit.worth(verdict, speedup) <= 1.0


def test_tallies_are_what_the_record_says(store: Store) -> None:
    ctx = searching.begin(store, "now-1")
    searching.tried(ctx, Verdict.ACCEPTED, 2.0)
    searching.tried(ctx, Verdict.WRONG, proposer=MODEL, author="tiny")
    searching.tried(ctx, Verdict.ACCEPTED, 2.0, proposer="memory", author="embedded, of before-1")
    searching.propose(ctx, searching.another(99))
    assert bandit.tallies(ctx) == {MODEL: Tally(1, 0.0), MOVES: Tally(1, 1.0)}


# generations ----------------------------------------------------------------------------------------------------------


def replies(*operations: str) -> list[str]:
    return [EDIT.replace(LAST, LAST.replace("+", op)) for op in operations]


def recorded(store: Store, folder: Path, *texts: str) -> Path:
    """A recording of these replies to prompts that nobody will ask."""
    asker = searching.begin(store, "recorded-1")
    for i, text in enumerate(texts):
        asker.store.add_call("recorded-1", Reply(text, 1, 1, 0.1, "tiny"), "t", f"prompt {i}", "")
    recordings.write(store, "recorded-1", folder / "replies.jsonl")
    return folder / "replies.jsonl"


def played(ctx: Context, file: Path, emit: Any = None) -> Context:
    """The context with a model that gives the recorded replies, from where the run is."""
    asked = tuple(c.prompt for c in ctx.store.calls(ctx.run.id))
    asker = Asker(ctx.run.id, "add", ctx.run.digest, lambda kind, **fields: None, asked=asked)
    return replace(ctx, model=ReplayModel(file, asker), emit_to=emit or ctx.emit_to)


def outline(found: list[Candidate]) -> list[tuple[Any, ...]]:
    return [(c.generation, c.position, c.id, c.move, c.author, c.proposer, c.parent) for c in found]


def whole_search(store: Store, file: Path, run: str) -> list[tuple[Any, ...]]:
    """Two generations of a run with a replay; every candidate of the first is right and slow."""
    ctx = searching.begin(store, run, width=3)
    for n in (1, 2):
        steps.propose(played(searching.context(store, run), file), n)
        for c in store.candidates(run, n):
            searching.judge(ctx, c, Verdict.CHECKED, "interpreter")
        store.finish_generation(run, n)
    return outline(store.candidates(run))


def test_the_same_replies_and_verdicts_give_the_same_candidates_in_the_same_order(store: Store, tmp_path: Path) -> None:
    file = recorded(store, tmp_path, *replies("-", "*"))
    first = whole_search(store, file, "now-1")
    assert first == whole_search(store, file, "now-2")
    assert {proposer for *_, proposer, _ in first} == {MODEL, MOVES}


def test_a_run_that_dies_with_a_reply_in_hand_proposes_the_same_generation(store: Store, tmp_path: Path) -> None:
    said, other = replies("-", "*")
    file = recorded(store, tmp_path, f"{said}\n{other}", other)  # whose edits do not fit together: it gets a remark
    undisturbed = whole_search(store, file, "now-1")

    def dies(event: Event) -> None:
        if event.type == "model.replied":
            raise KeyboardInterrupt

    ctx = searching.begin(store, "now-2", width=3)
    with pytest.raises(KeyboardInterrupt):
        steps.propose(played(ctx, file, dies), 1)
    assert store.candidates("now-2") == [] and len(store.calls("now-2")) == 1
    steps.propose(played(searching.context(store, "now-2"), file), 1)
    assert outline(store.candidates("now-2")) == [c for c in undisturbed if c[0] == 1]
    asked = [c.prompt for c in store.calls("now-2")]  # the first prompt, and the message on its reply
    assert len(asked) == len(set(asked)) == 2


def several(*operations: str) -> str:
    """One reply with a candidate for each."""
    return "\n".join(f"## Candidate {n}: try {n}\n{text}" for n, text in enumerate(replies(*operations), 1))


def test_what_a_reply_proposes_beyond_its_places_comes_before_the_model_is_asked_again(
    store: Store, tmp_path: Path
) -> None:
    file = recorded(store, tmp_path, several("-", "*", "/"), *replies("%"))
    ctx, calls = searching.begin(store, "now-1", width=2), []
    for n in (1, 2, 3, 4):
        steps.propose(played(searching.context(store, "now-1"), file), n)
        for c in store.candidates("now-1", n):
            searching.judge(ctx, c, Verdict.CHECKED, "interpreter")
        store.finish_generation("now-1", n)
        calls.append(len(store.calls("now-1")))
    assert calls == [1, 1, 1, 2]
    texts = [c.source for c in store.candidates("now-1") if c.proposer == MODEL]
    assert [LAST.replace("+", op) in text for op, text in zip("-*/%", texts, strict=True)] == [True] * 4


def test_what_is_left_of_a_reply_goes_with_what_it_started_from(store: Store, tmp_path: Path) -> None:
    """A candidate that was written for the kernel as shipped says nothing of the one that won."""
    file = recorded(store, tmp_path, several("-", "*"), *replies("%"))
    ctx = searching.begin(store, "now-1", width=2)
    steps.propose(played(searching.context(store, "now-1"), file), 1)
    first = next(c for c in store.candidates("now-1", 1) if c.proposer == MODEL)
    searching.accept(ctx, first, 1.1)
    store.finish_generation("now-1", 1)
    steps.propose(played(searching.context(store, "now-1"), file), 2)
    assert len(store.calls("now-1")) == 2


def test_a_generation_says_how_it_is_shared_when_that_changes(store: Store, tmp_path: Path) -> None:
    file = recorded(store, tmp_path, *replies("-"))
    events = list[dict[str, Any]]()
    for n in (1, 2, 3):
        if n == 1:
            searching.begin(store, "now-1", width=2)
        steps.propose(played(searching.context(store, "now-1"), file, lambda e: events.append(e.as_json())), n)
    told = [(e["generation"], e["places"]) for e in events if e["type"] == "places.shared"]
    assert told == [(1, {MODEL: 1, MOVES: 1}), (2, {MOVES: 2})]
    assert {e["proposer"] for e in events if e["type"] == "candidate.proposed"} == {MODEL, MOVES}


@pytest.mark.slow
def test_a_run_tells_who_proposed_what(tmp_path: Path) -> None:
    write(tmp_path)
    short = ("optimize", "add.py", "--case", "1m", "--candidates", "2", "--width", "2", "--model", "tiny")
    with serving([completion(EDIT)]) as server:
        done = pgo(*short, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
    assert done.code == 0 and "generation 1 is shared" in done.err, done.err
    shown = json.loads(pgo("show", "--json", cwd=tmp_path).out)
    assert {(v["proposer"], v["author"]) for v in shown["verdicts"]} == {(MODEL, "tiny-1"), (MOVES, "embedded")}
    assert "in stage interpreter, not measured: model rewrite" in pgo("lessons", "add.py", cwd=tmp_path).out
