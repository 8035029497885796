"""One session of timing: opens every side on buffers of its own, times all of them, and looks at what they left.

The sides' buffers are laid out in an order of chance, and in a long session at several places: where they lie is worth
a percent of a launch of 50 us, the same for every round. The clock and the order of visits are `timing.py`'s, what the
samples say is `decision.py`'s.
"""

import random
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import torch
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.stages import STEP_SECONDS, Bench, Pick, verified_key
from pgo_agent.sandbox.judge.timing import Place, Side

PLACES = 3  # of each side at most
ROUNDS = 6  # at each place at least
ROOM = 0.5  # of the GPU's free memory may be taken for places beyond the first
Library = Callable[..., object]


class Inconsistent(Exception):
    """Timed launches gave different outputs (a race), or all of them other ones than were verified (a cheat)."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def time_sides(
    bench: Bench,
    sides: Mapping[str, Pick],
    case: str,
    rounds: int,
    stage: str,
    extra: Mapping[str, Library] | None = None,
    control: bool = True,
) -> dict[str, Side]:
    """Times the sides (and library calls in `extra`) in one session. `control`: the first one runs again, as 'A/A'.

    The side called 'candidate' gets the inputs that its results were verified on; all others get seeds of their own.
    Raises Inconsistent when a timed launch gave other outputs than it should.
    """
    picks = dict(sides) | ({"A/A": next(iter(sides.values()))} if control else {})
    libraries, many = extra or {}, _places(bench, picks, len(extra or {}), case, rounds)
    bench.announce(f"{stage} {case}", STEP_SECONDS * many + 2.0 * rounds)
    with ExitStack() as opened:
        timed = _open(bench, picks, libraries, case, many, opened)
        bench.timer.run(list(timed.values()), rounds)
        for name, pick in picks.items():
            verified = bench.verified.get(verified_key(pick, case)) if name == "candidate" else None
            _consistent(timed[name], case, verified)
        for side in timed.values():
            side.places = ()  # and the inputs of libraries with them, before another case is opened
        return timed


def _open(
    bench: Bench, picks: Mapping[str, Pick], extra: Mapping[str, Library], case: str, many: int, opened: ExitStack
) -> dict[str, Side]:
    """Opens each side at so many places, or at one where memory is too short for more: sizes are an estimate."""
    try:
        return _laid_out(bench, picks, extra, case, many, opened)
    except torch.OutOfMemoryError:
        if many == 1:
            raise
    opened.close()
    return _laid_out(bench, picks, extra, case, 1, opened)


def _laid_out(
    bench: Bench, picks: Mapping[str, Pick], extra: Mapping[str, Library], case: str, many: int, opened: ExitStack
) -> dict[str, Side]:
    seeds = {n: bench.seeds[case] if n == "candidate" else secrets.randbits(48) for n in (*picks, *extra)}

    def place(name: str) -> Place:
        if name in extra:
            return Place(partial(extra[name], **bench.inputs(case, seeds[name])))
        replay = bench.replay(picks[name], case, seeds[name])
        opened.callback(replay.close)
        return Place(replay, replay)

    # A library stays on the same tensors throughout: it may keep what it prepared for them, such as a graph.
    listed = [*picks] * many + [*extra]
    random.SystemRandom().shuffle(listed)
    found: dict[str, list[Place]] = {n: [] for n in seeds}
    for name in listed:
        found[name].append(place(name))
    return {n: Side(n, places, bench.deterministic) for n, places in found.items()}


def _places(bench: Bench, picks: Mapping[str, Pick], libraries: int, case: str, rounds: int) -> int:
    """How many places each side gets: those that the rounds are worth and that the memory has room for.

    What torch has in its cache counts as free. Every library has inputs of its own, at one place.
    """
    plans = [bundle.plans[case][choice] for bundle, choice in (p[case] for p in picks.values())]
    one = sum(s.nbytes for plan in plans for s in plan.storages)
    inputs = sum(s.nbytes for s in plans[0].storages if s.kind == "input")
    free, _ = torch.cuda.mem_get_info(bench.device)
    free += torch.cuda.memory_reserved(bench.device) - torch.cuda.memory_allocated(bench.device)
    return max(1, min(PLACES, rounds // ROUNDS, int((ROOM * free - libraries * inputs) / max(one, 1))))


def _consistent(side: Side, case: str, verified: int | None) -> None:
    if not side.consistent():
        raise Inconsistent(Verdict.RACE, f"{case}: timed launches of {side.name} on the same inputs differ")
    if not side.consistent(verified):
        raise Inconsistent(Verdict.CHEATING, f"{case}: timed launches gave other outputs than were verified")
