"""Runs that are open: their candidates are submitted while they go on, by an agent behind a server.

The loop asks here for the next submission. A run that nobody submits to for a while ends, with its last session; one
that holds the workspace while another one is wanted gives way, and can be resumed. Relies on the record alone.
"""

import time

from pgo_agent.agent.run import steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.agent.run.settings import STATES

POLL = 0.3  # seconds between looks into the record
_ENDED = {*STATES, "failed"}
_seen: dict[str, int] = {}  # run -> finished generations when this process gave way last, or began


class Yielded(Exception):
    """Another open run of the workspace has something to judge, and this one has not."""


def wait(ctx: Context) -> bool:
    """Wait for a submission to an open run, or until there is to be none; return whether there is one. Return at once
    for any other run.

    Raises Yielded. The time is not the run's, whose minutes are for work.
    """
    if not ctx.run.facts.open_to:
        return False
    _take_turns(ctx)
    if not (_wanted(ctx.store, ctx.run.id) or ctx.out_of_time() or _closing(ctx)):
        _idle(ctx)
    _close(ctx)
    return bool(user_requests.waiting(ctx.store, ctx.run.id, Kind.SUBMIT))


def _idle(ctx: Context) -> None:
    """Wait until something is asked. Raises Yielded."""
    ctx.emit("phase", phase="open", doing=f"waiting for what {ctx.run.facts.open_to} submits")
    last = time.monotonic()
    with ctx.unbooked():
        while time.monotonic() - last < ctx.run.facts.idle and not _wanted(ctx.store, ctx.run.id):
            if _others_wait(ctx):
                raise Yielded
            time.sleep(POLL)


def _closing(ctx: Context) -> bool:
    """Whether somebody ended the run: what was submitted is judged yet, and then nothing is waited for."""
    return bool(user_requests.of(ctx.store, ctx.run.id, Kind.CLOSE))


def _close(ctx: Context) -> None:
    """Record that the run ends, if nothing waits that comes first."""
    if not user_requests.waiting(ctx.store, ctx.run.id, Kind.SUBMIT):
        for request in user_requests.waiting(ctx.store, ctx.run.id, Kind.CLOSE):
            steering.taken(ctx, request, "the run ends with its last session")


def _take_turns(ctx: Context) -> None:
    """Give way after each generation that this process judged, where another open run has something waiting.

    Raises Yielded.
    """
    finished = sum(ctx.store.generations(ctx.run.id).values())
    if finished > _seen.setdefault(ctx.run.id, finished) and _others_wait(ctx):
        _seen[ctx.run.id] = finished
        raise Yielded


def _others_wait(ctx: Context) -> bool:
    return any(user_requests.waiting(ctx.store, r.id) for r in open_runs(ctx.store) if r.id != ctx.run.id)


def open_runs(store: Store) -> list[Run]:
    """Return the open runs that have not ended, oldest first."""
    return [r for r in store.runs() if r.facts.open_to and r.state not in _ENDED]


def _wanted(store: Store, run: str) -> bool:
    """Whether something was asked that ends the wait."""
    return bool(user_requests.waiting(store, run, Kind.SUBMIT, Kind.CLOSE, Kind.BUDGET))
