"""Makes the runs of a plan that have no result yet, one after another, as `optimize` makes them.

What is killed, or waits for a reply, goes on with the same command: the file of results says which run was begun.
Where the command does not wait, every run is taken as far as it gets, so that all their questions can be answered
together. All runs share a workspace, so that what is built for one is there for the others; plans say that none learns
from another.
Several of these commands share the runs of a plan: each makes what no other is at (`parallel.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run import settings
from pgo_agent.agent.run.events import Emit, Event, Phase, RunStarted, RunWaiting
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.runner import waiting
from pgo_agent.evals.runner.results import BEGUN, ENDED, PlannedRun, Results
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.json_codec import JsonObject

W = TypeVar("W", bound=PlannedRun)
FAILED = "failed"  # a state of a run: its target was at fault, or what it was asked
Tell = Callable[[Store, Run, W], JsonObject]  # what a result says of a run that has ended


def run(
    results: Results[W], run_settings: RunSettings, store: Store, emit: Emit, describe: Tell[W], failures: bool = False
) -> Exit:
    """Make every run that has no result yet. Gives WAITING when a reply or a verdict is not there yet, else DONE.

    Runs that other processes are at are waited for in the end, and made where their process was killed.
    `failures`: a run whose target is at fault has a result, too. Raises what runs raise.
    """
    ended = (*settings.STATES, *([FAILED] if failures else []))
    with ExitStack() as suspended:
        for planned in _open(results, store, emit, None if run_settings.wait else suspended):
            _make_run(results, planned, run_settings, store, emit, failures)
            latest = store.run(results.begun(planned) or "last")
            if latest.state in ended:
                results.add(ENDED, run=latest.id, **planned.named, **describe(store, latest, planned))
    results.read_again()
    return Exit.WAITING if results.missing and not run_settings.wait else Exit.DONE


def _open(results: Results[W], store: Store, emit: Emit, suspended: ExitStack | None = None) -> Iterator[W]:
    """Yield runs without a result, each claimed until the next is asked for; first those that this workspace has begun,
    then, beside others, those of targets that it knows: their profiles are there.

    `suspended`: where nobody waits for replies, it keeps the claims to the end, so that no other process takes up a run
    that waits for one.
    """
    taken = list[W]()
    for wait in (False, True) if suspended is None else (False,):
        left = [w for w in results.plan.runs if w not in taken]
        while left := [w for w in left if results.ended(w) is None]:
            planned = _nearest(results, store, left)
            left.remove(planned)
            if wait:
                emit(Event(Phase(doing=f"waiting for other processes that make runs of {results.file}")))
            with ExitStack() as claim:
                ours = claim.enter_context(results.claimed(planned, wait))
                if ours and results.ended(planned) is None and _is_ready(results, planned, wait):
                    taken.append(planned)
                    yield planned
                    if suspended is not None:
                        suspended.enter_context(claim.pop_all())


def _is_ready(results: Results[W], planned: W, wait: bool) -> bool:
    """Return whether what a run takes over is there. `wait`: once no other process is at it."""
    for lender in results.lacks(planned):
        with results.claimed(lender, wait):
            pass
    return not results.lacks(planned)


def _nearest(results: Results[W], store: Store, left: Sequence[W]) -> W:
    """Return which of these runs this workspace should make before the others: as the plan says, unless others work on
    it."""
    begun, here = {w: results.begun(w) for w in results.plan.runs}, {r.id for r in store.runs()}
    known_targets = {w.target for w, name in begun.items() if name in here}
    others = {w.target for w, name in begun.items() if name and name not in here}

    def far(planned: W) -> int:
        if begun[planned] in here:
            return 0
        if not others or planned.target in known_targets:
            return 1
        return 3 if planned.target in others else 2

    return min(left, key=far)


def _make_run(
    results: Results[W], planned: W, run_settings: RunSettings, store: Store, emit: Emit, failures: bool
) -> None:
    """Make one run, from its beginning or from where it stopped."""

    def heard(event: Event) -> None:
        if isinstance(event.told, RunStarted) and results.begun(planned) != event.run:
            results.add(BEGUN, run=event.run, **planned.named)
        if isinstance(event.told, RunWaiting):
            results.waiting.append(waiting.of(event.run, event.told))
        emit(event)

    begun = _held_here(store, results.begun(planned))
    try:
        if begun is None or begun.state == FAILED:  # its target may have been fixed since
            optimize.start(Path(planned.target), results.settings_of(planned, run_settings), store, heard)
        elif begun.state not in settings.STATES:
            optimize.resume(begun.id, store, heard, {"wait": run_settings.wait, "judge": run_settings.judge})
    except TargetFault:
        ours = _held_here(store, results.begun(planned))
        if not failures or ours is None or ours.state != FAILED:
            raise


def _held_here(store: Store, name: str | None) -> Run | None:
    """Return a run that was begun, if this workspace holds it."""
    return next((r for r in store.runs() if r.id == name), None)
