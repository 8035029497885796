"""What former runs teach: lines without secrets, an order of moves, and a former winner that is measured anew."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.proposal import lessons, parents
from pgo_agent.agent.proposal.lessons import MOST, WIDE
from pgo_agent.agent.run import provenance
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import history
from pgo_agent.agent.run.record.history import Tried
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.search import steps
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.reason import figure, of_case, quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation.box import Box

from tests.agent import searching
from tests.agent.command_line import pgo
from tests.agent.searching import ADD, SOURCE, tried

SAME_CONTRACT = SOURCE.replace("import torch\n", "import torch  # another text\n", 1)
OTHER_CONTRACT = SOURCE.replace("dict(n=9_991)", "dict(n=9_989)")


@pytest.fixture
def before(store: Store) -> Context:
    """A former run, under way."""
    return searching.begin(store, "before-1")


def now(store: Store, **settings: Any) -> Context:
    return searching.begin(store, "now-1", **settings)


# lines ----------------------------------------------------------------------------------------------------------------


def test_wins_come_first_then_near_misses_then_failures_then_what_was_slower(before: Context) -> None:
    tried(before, Verdict.SLOWER, 0.7, move="slow one")
    tried(before, Verdict.WRONG, move="wrong one", stage="numerics", why=figure("max error", 0, 3.0, 1e-3))
    tried(before, Verdict.SLOWER, 0.99, move="near one")
    tried(before, Verdict.ACCEPTED, 1.05, move="small win")
    tried(before, Verdict.ACCEPTED, 1.5, move="large win")
    found = lessons.lines(now(before.store))
    assert [next(m for m in ("large", "small", "near", "wrong", "slow ") if m in line) for line in found] == [
        "large",
        "small",
        "near",
        "wrong",
        "slow ",
    ]
    assert found[0] == "accepted 1.500x its incumbent on NVIDIA H200: large win (r)"
    assert found[3] == "wrong in stage numerics, not measured: wrong one (r): output 0: max error 3"


def test_what_a_model_must_not_see_is_in_no_line(before: Context) -> None:
    """Held-out cases by name, bounds of errors, and the file that somebody gave."""
    tried(before, Verdict.WRONG, stage="numerics", why=quoted("odd: max error 3 above 1.5e-3"))
    tried(before, Verdict.WRONG, stage="numerics", why=of_case("HELD_OUT/odd") + figure("max error", 0, 7.0, 1.5e-3))
    tried(before, Verdict.RACE, stage="race", why=figure("max error", 0, 7.0, 2.5e-3), rationale="odd is what fails")
    tried(before, Verdict.ACCEPTED, 1.1, move="given", rationale="given as /home/me/x.py", proposer="given")
    text = "\n".join(lessons.lines(now(before.store)))
    assert not any(secret in text for secret in ("odd", "0.0015", "0.0025", "max error 7 above", "/home"))
    assert text.count("fails on a case that is not shown") == 1 and "accepted 1.100x" in text


def test_another_text_of_the_kernel_keeps_its_lessons_with_a_note(store: Store) -> None:
    tried(searching.begin(store, "before-1", SAME_CONTRACT), Verdict.WRONG, move="old one")
    (line,) = lessons.lines(now(store))
    assert "of another text of the kernel: old one" in line


def test_another_contract_is_another_target(store: Store) -> None:
    tried(searching.begin(store, "before-1", OTHER_CONTRACT), Verdict.WRONG)
    assert lessons.lines(now(store)) == []


def test_a_run_sees_what_was_there_when_it_began_and_nothing_later(before: Context) -> None:
    """So it decides the same after a kill, whatever other runs did in between."""
    tried(before, Verdict.WRONG, move="early")
    ctx = now(before.store)
    tried(before, Verdict.WRONG, move="late")
    tried(ctx, Verdict.WRONG, move="own")
    tried(searching.begin(before.store, "after-1"), Verdict.WRONG, move="after")
    (line,) = lessons.lines(ctx)
    assert "early" in line


def test_a_run_from_before_there_were_lessons_knows_of_none(before: Context) -> None:
    tried(before, Verdict.WRONG)
    ctx = now(before.store)
    before.store.db.execute("UPDATE runs SET knows = NULL, contract = NULL WHERE id = 'now-1'")
    assert lessons.lines(replace(ctx, run=before.store.run("now-1"))) == []


_TEXTS = st.text(max_size=300)
_TRIED = st.builds(
    Tried,
    run=st.just("before-1"),
    id=st.text("0123456789abcdef", min_size=16, max_size=16),
    parent=st.just("shipped"),
    kind=st.just("source"),
    move=_TEXTS,
    rationale=_TEXTS,
    author=_TEXTS,
    verdict=st.sampled_from([str(v) for v in Verdict]),
    stage=st.sampled_from(["numerics", "interpreter", "time"]),
    why=_TEXTS.map(quoted),
    speedup=st.none() | st.floats(0.01, 100),
    against=st.none(),
    proposer=st.sampled_from(["model", "moves", "given", None]),
    device=st.just("h200"),
    gpu=st.sampled_from(["", "NVIDIA H200"]),
    triton=st.just(""),
    same_text=st.booleans(),
)


@given(st.lists(_TRIED, max_size=60))
def test_whatever_was_tried_it_is_a_screen_of_printable_lines(found: list[Tried]) -> None:
    lines = lessons.as_lines(found, ["odd"])
    assert len(lines) == len(set(lines)) <= MOST and bool(lines) == bool(found)
    assert all(len(line) <= WIDE and line.isprintable() for line in lines)
    assert lines == lessons.as_lines(found, ["odd"])


def test_many_failures_leave_room_for_what_else_there_is(before: Context) -> None:
    for i in range(40):
        tried(before, Verdict.WRONG, move=f"wrong {i}")
    for i in range(40):
        tried(before, Verdict.SLOWER, 0.5, move=f"slow {i}")
    found = lessons.lines(now(before.store))
    assert len(found) <= MOST and sum("wrong" in line for line in found) == 3
    assert sum("slow " in line for line in found) > 6


# the order of moves ---------------------------------------------------------------------------------------------------


def order(ctx: Context) -> list[str]:
    return [p.move for p in parents.proposals(ctx)]


@pytest.mark.parametrize(("verdict", "speedup"), [(Verdict.WRONG, None), (Verdict.RACE, None), (Verdict.SLOWER, 0.8)])
def test_what_failed_or_lost_in_a_former_run_is_tried_last_and_says_so(
    before: Context, verdict: Verdict, speedup: float | None
) -> None:
    plain = order(before)
    assert len(plain) > 2
    tried(before, verdict, speedup, move=plain[0])
    ctx = now(before.store)
    assert order(ctx) == [*plain[1:], plain[0]]
    *_, last = parents.proposals(ctx)
    assert f"tried last: {verdict}" in last.rationale and "in run before-1" in last.rationale


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"triton": "3.0"}, id="another compiler"),
        pytest.param({"device": "a100"}, id="another GPU"),
        pytest.param({"source": SAME_CONTRACT}, id="another text"),
    ],
)
def test_what_failed_elsewhere_is_tried_in_its_turn(store: Store, told: dict[str, Any]) -> None:
    plain = order(now(store))
    ctx = searching.begin(store, "before-1", told.get("source", SOURCE))
    if "triton" in told:
        store.set_settings("before-1", ctx.settings, replace(ctx.run.facts, triton=told["triton"]))
    tried(ctx, Verdict.WRONG, move=plain[0])
    if "device" in told:
        store.db.execute("UPDATE runs SET device = ? WHERE id = 'before-1'", (told["device"],))
    assert order(searching.begin(store, "now-2")) == plain


def test_what_was_only_estimated_to_be_slow_is_tried_in_its_turn(before: Context) -> None:
    plain = order(before)
    tried(before, Verdict.SLOWER, None, move=plain[0], stage="static")
    assert order(now(before.store)) == plain


def test_the_newest_verdict_on_a_move_decides(before: Context) -> None:
    plain = order(before)
    tried(before, Verdict.SLOWER, 0.9, move=plain[0])
    tried(before, Verdict.ACCEPTED, 1.2, move=plain[0])
    assert order(now(before.store)) == plain


# former winners -------------------------------------------------------------------------------------------------------


def test_the_fastest_former_winner_is_proposed_first_and_never_taken_as_measured(before: Context) -> None:
    first = tried(before, Verdict.ACCEPTED, 1.2)
    second = tried(before, Verdict.ACCEPTED, 1.1, source=searching.adding("1.0"), parent=first.id)
    tried(searching.begin(before.store, "before-2"), Verdict.ACCEPTED, 1.3, source=searching.adding("2.0"))
    ctx = now(before.store)
    steps.propose(ctx, 1)
    found = before.store.candidates("now-1")[0]
    assert (found.id, found.proposer, found.parent) == (second.id, "memory", "shipped")
    assert (found.verdict, found.speedup) == (None, None)
    assert "1.320x the kernel as shipped on NVIDIA H200 in run before-1: to be measured anew" in found.rationale


def test_what_comes_from_memory_is_foreign_whoever_wrote_it(before: Context) -> None:
    tried(before, Verdict.ACCEPTED, 1.2)
    ctx = now(before.store)
    steps.propose(ctx, 1)
    found = before.store.candidates("now-1")[0]
    assert found.author == "embedded, of before-1" and provenance.untrusted(ctx, found)
    alone = replace(ctx, builder=replace(ctx.builder, box=Box("none")))
    assert list(lessons.remembered(alone)) == []


def test_a_winner_that_is_remembered_twice_keeps_the_name_of_who_wrote_it(before: Context) -> None:
    won = tried(before, Verdict.ACCEPTED, 1.2)
    again = searching.begin(before.store, "before-2")
    tried(again, Verdict.ACCEPTED, 1.3, source=won.source, author="embedded, of before-1", proposer="memory")
    (again,) = lessons.remembered(now(before.store))
    assert (again.source, again.author) == (won.source, "embedded, of before-1")


@pytest.mark.parametrize("other", ["text", "gpu"])
def test_a_winner_of_another_text_or_gpu_is_not_proposed(store: Store, other: str) -> None:
    ctx = searching.begin(store, "before-1", SAME_CONTRACT if other == "text" else SOURCE)
    tried(ctx, Verdict.ACCEPTED, 1.2)
    if other == "gpu":
        store.db.execute("UPDATE runs SET device = 'a100' WHERE id = 'before-1'")
    assert list(lessons.remembered(now(store))) == []


def test_ttgir_that_won_inside_of_another_candidate_is_not_proposed_without_it(before: Context) -> None:
    first = tried(before, Verdict.ACCEPTED, 1.2)
    tried(before, Verdict.ACCEPTED, 2.0, kind="ttgir", parent=first.id)
    (proposal,) = lessons.remembered(now(before.store))
    assert proposal.source == first.source


def test_the_order_with_lessons_is_the_same_each_time(before: Context) -> None:
    tried(before, Verdict.ACCEPTED, 1.2)
    tried(before, Verdict.SLOWER, 0.9, move=order(before)[0])
    ctx = now(before.store)
    found = [[p.id for p in islice(steps._fresh(ctx, 1), 4)] for _ in range(2)]
    assert found[0] == found[1]


# for people -----------------------------------------------------------------------------------------------------------


def test_a_person_is_shown_the_lessons_of_a_target(before: Context) -> None:
    tried(before, Verdict.ACCEPTED, 1.25, move="[bold]win")
    done = pgo("lessons", ADD, "--store", before.store.root, cwd=before.store.root)
    assert (done.code, done.out) == (0, "accepted 1.250x its incumbent on NVIDIA H200: [bold]win (r)\n")


def test_a_target_without_runs_has_none_to_show(store: Store) -> None:
    done = pgo("lessons", "gemm", "--store", store.root, cwd=store.root)
    assert (done.code, done.out) == (0, "no run of gemm in this workspace has come to a verdict\n")


def test_the_contract_is_told_from_the_kernels_text() -> None:
    found = target.read(ADD)
    asked = [replace(found, source=s, contract=s).asked for s in (SOURCE, SAME_CONTRACT, OTHER_CONTRACT)]
    assert asked[0] == asked[1] != asked[2]
    assert history.Subject(found.digest, found.asked) == history.Subject(found.digest, asked[0])
