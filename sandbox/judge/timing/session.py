"""One session of timing: opens every side on its own buffers, times all of them, and checks their outputs.

Buffers are laid out in random order, and in a long session at several places: their position changes a launch of 50 us
by a percent, the same in every round. The clock and the order of visits are in `timer.py`, the verdict on samples in
`decision.py`.
"""

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from pgo_agent.sandbox import guard_zones, in_place
from pgo_agent.sandbox.gate.reason import Reason, of_case, plain, withheld
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.guard_zones import Fill
from pgo_agent.sandbox.judge.results.checks import STEP_SECONDS, Pick, TargetSession, verified_key
from pgo_agent.sandbox.judge.results.deviation import compare
from pgo_agent.sandbox.judge.results.numerics import Expected
from pgo_agent.sandbox.judge.timing.timer import BufferSet, TimedSide, checksum

PLACES = 3  # of each side at most
ROUNDS = 6  # at each place at least
LONG = 12  # rounds of a session that first empties torch's cache
ROOM = 0.5  # share of the GPU's free memory for all places
Library = Callable[..., object]


class Inconsistent(Exception):
    """Timed launches left something wrong: different outputs (race), outputs other than verified or changed inputs
    (cheating), writes outside or an error that is too large (wrong)."""

    def __init__(self, verdict: Verdict, why: Reason, launched: tuple[Pick, str]) -> None:
        super().__init__(why.for_person())
        self.why = why
        self.verdict = verdict
        self.launched = launched  # what was launched, and the case


def time_sides(
    bench: TargetSession,
    sides: Mapping[str, Pick],
    case: str,
    rounds: int,
    stage: str,
    extra: Mapping[str, Library] | None = None,
    control: bool = True,
) -> dict[str, TimedSide]:
    """Time the sides (and library calls in `extra`) in one session. `control`: the first one runs again, as 'A/A'.

    The side 'candidate' gets the inputs that its results were verified on; every other side gets its own seed. Raises
    Inconsistent when a launch gave wrong outputs, changed inputs, or wrote outside.
    """
    if rounds >= LONG:
        torch.cuda.empty_cache()  # memory that torch caches would hide where buffers lie
    picks = dict(sides) | ({"A/A": next(iter(sides.values()))} if control else {})
    libraries, many = extra or {}, _places(bench, picks, len(extra or {}), case, rounds)
    bench.announce(f"{stage} {case}", STEP_SECONDS * many + 2.0 * rounds)
    with ExitStack() as opened:
        timed = _open(bench, picks, libraries, case, many, opened)
        bench.timer.run(list(timed.values()), rounds)
        for side in timed.values():
            side.look_around()
        for name, pick in picks.items():
            key = verified_key(pick, case)
            verified = bench.verified.get(key) if name == "candidate" else None
            _consistent(timed[name], pick, case, verified)
            if verified is not None:
                _right(timed[name], pick, case, bench.expect(case), bench.allowed[key])
        for side in timed.values():
            side.places = ()  # frees also the inputs of libraries, before the next case
        return timed


def _open(
    bench: TargetSession,
    picks: Mapping[str, Pick],
    extra: Mapping[str, Library],
    case: str,
    many: int,
    opened: ExitStack,
) -> dict[str, TimedSide]:
    """Open each side at `many` places, or at one where memory is too small: sizes are an estimate."""
    try:
        return _laid_out(bench, picks, extra, case, many, opened)
    except torch.OutOfMemoryError:
        if many == 1:
            raise
    opened.close()
    return _laid_out(bench, picks, extra, case, 1, opened)


def _laid_out(
    bench: TargetSession,
    picks: Mapping[str, Pick],
    extra: Mapping[str, Library],
    case: str,
    many: int,
    opened: ExitStack,
) -> dict[str, TimedSide]:
    seeds = {n: bench.seeds[case] if n == "candidate" else secrets.randbits(48) for n in (*picks, *extra)}

    def place(name: str) -> BufferSet:
        if name in extra:
            inputs = bench.inputs(case, seeds[name])
            changed = [(t, t.clone()) for n in bench.changed for t in in_place.tensors(inputs[n])]
            return BufferSet(partial(extra[name], **inputs), restored=changed)
        replay = bench.replay(picks[name], case, seeds[name])
        opened.callback(replay.close)
        replay.poison(Fill())
        return BufferSet(replay, replay, int(checksum(replay.given)))

    # A library stays on the same tensors: it may store what it prepared for them, such as a graph.
    listed = [*picks] * many + [*extra]
    random.SystemRandom().shuffle(listed)
    buffers: dict[str, list[BufferSet]] = {n: [] for n in seeds}
    for name in listed:
        buffers[name].append(place(name))
    return {n: TimedSide(n, places, bench.deterministic) for n, places in buffers.items()}


def _places(bench: TargetSession, picks: Mapping[str, Pick], libraries: int, case: str, rounds: int) -> int:
    """Return the number of places of each side, by the rounds and the free memory.

    Memory in torch's cache counts as free. Every library has its own inputs, at one place.
    """
    plans = [bundle.plans[case][choice] for bundle, choice in (p[case] for p in picks.values())]
    kept = {"input"} if bench.changed else set[str]()  # as they were given, beside those that launches work on
    size = sum(s.nbytes * (1 + (s.kind in kept)) for plan in plans for s in plan.storages)
    inputs = sum(s.nbytes * (1 + (s.kind in kept)) for s in plans[0].storages if s.kind == "input")
    free, _ = torch.cuda.mem_get_info(bench.device)
    free += torch.cuda.memory_reserved(bench.device) - torch.cuda.memory_allocated(bench.device)
    return max(1, min(PLACES, rounds // ROUNDS, int((ROOM * free - libraries * inputs) / max(size, 1))))


def _consistent(side: TimedSide, pick: Pick, case: str, verified: int | None) -> None:
    def refuse(verdict: Verdict, words: str) -> Inconsistent:
        return Inconsistent(verdict, of_case(case, text=case) + plain(f": {words}"), (pick, case))

    if side.meddled:
        raise refuse(Verdict.CHEATING, f"launches of {side.name} changed their inputs while it was timed")
    if stray := side.stray:
        raise refuse(Verdict.WRONG, f"{side.name} {guard_zones.said(stray)} while it was timed")
    if not side.consistent():
        raise refuse(Verdict.RACE, f"timed launches of {side.name} on the same inputs differ")
    if not side.consistent(verified):
        raise refuse(Verdict.CHEATING, "timed launches gave other outputs than were verified")


def _right(side: TimedSide, pick: Pick, case: str, expected: Expected, allowed: Sequence[float]) -> None:
    """Raise Inconsistent where a sample of a launch's outputs errs by more than is `allowed` for that output."""
    for n, (exact, most) in enumerate(zip(expected.outputs, allowed, strict=True)):
        sampled = [drawn[n] for drawn in side.drawn]
        meant = exact.at(torch.cat([at for at, _ in sampled])).split([len(at) for at, _ in sampled]) if sampled else ()
        for (_, values), right in zip(sampled, meant, strict=True):
            error = compare(values, right)
            if error.misplaced or not error.worst <= most:
                why = of_case(case, text=case) + plain(f": a timed launch of {side.name}: output {n}: ")
                over = plain(f"error {error.worst:.3g}") + withheld(f" > {most:.3g}", most)
                why += plain("NaN or infinity out of place") if error.misplaced else over
                raise Inconsistent(Verdict.WRONG, why, (pick, case))
