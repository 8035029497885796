"""Where a run goes on: by its record alone, at the node where it was killed."""

import shutil
from pathlib import Path

import pytest
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import ProfileVisibility
from pgo_agent.agent.search.recovery import next_node
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent import breaking, searching
from tests.agent.breaking import Whole
from tests.agent.command_line import pgo, write


def begun(store: Store) -> Context:
    return searching.begin(store, "second-2", profile_visibility=ProfileVisibility.NONE)


def test_the_record_of_a_generation_says_which_node_comes_next(store: Store) -> None:
    ctx = begun(store)
    assert next_node(ctx) == ("propose", 1, 0)
    one, other = searching.propose(ctx, searching.another(1), searching.another(2))
    assert next_node(ctx) == ("build", 1, 0)
    ctx.store.set_built(ctx.run.id, one.id, searching.as_shipped(ctx))
    assert next_node(ctx) == ("build", 1, 0)  # the other one is not built
    ctx.store.set_built(ctx.run.id, other.id, searching.as_shipped(ctx))
    assert next_node(ctx) == ("judge", 1, 0)
    for c in (one, other):
        searching.judge(ctx, c, Verdict.SLOWER, "quick")
    assert next_node(ctx) == ("record", 1, 0)
    ctx.store.finish_generation(ctx.run.id, 1)
    assert next_node(ctx) == ("propose", 2, 1)


def test_generations_without_a_win_are_counted_from_the_last_win(store: Store) -> None:
    ctx = begun(store)
    for verdict in (Verdict.SLOWER, Verdict.ACCEPTED, Verdict.SLOWER, Verdict.WRONG):
        searching.tried(ctx, verdict, 1.1)
    assert next_node(ctx) == ("propose", 5, 2)


def test_an_incumbent_without_a_profile_is_profiled_first(store: Store) -> None:
    assert next_node(searching.begin(store, "second-2")) == ("profile", 1, 0)


def test_without_a_baseline_a_run_begins_with_it(store: Store) -> None:
    ctx = begun(store)
    store.db.execute("UPDATE runs SET baseline = NULL WHERE id = 'second-2'")
    assert next_node(ctx) == ("baseline", 1, 0)


@pytest.mark.slow
def test_a_run_that_was_killed_at_its_end_proposes_nothing_more(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.folder / ".pgo-agent", tmp_path / ".pgo-agent")
    write(tmp_path)
    db = breaking.database(tmp_path)
    with db:
        db.execute("UPDATE runs SET state = 'running', summary = NULL")
    db.close()
    done = pgo(*breaking.RESUME, cwd=tmp_path)
    assert done.code == 0, done.err
    assert not [e for e in done.events if e["type"] in ("candidate.proposed", "candidate.verdict")]
    assert breaking.record(tmp_path) == whole.record
