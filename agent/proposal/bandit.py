"""Divides the places of a generation among proposers, by the results of their earlier candidates: a bandit.

Places go one by one to the proposer with the highest index, UCB1-Tuned at its largest variance, that of a fair coin:

    index = mean + sqrt(ln N / (4 n))

of P. Auer, N. Cesa-Bianchi, P. Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning 47
(2002), section 4. The mean is over the worth (`worth`) of a proposer's judged candidates and one imagined candidate of
worth PRIOR. n counts these and the places that the proposer already holds in this generation; N is the sum of all n. If
there are enough places, each proposer gets one before the rest are divided. A proposer with nothing left frees its
places. One without a place is not asked: a model's call costs money, and there is at most one in a generation.
Everything is read from the store, so a resumed run decides the same. The run's seed breaks ties.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.proposal.lessons import NEAR
from pgo_agent.agent.run.context import Context
from pgo_agent.sandbox.gate.verdict import Verdict

MODEL, MOVES = "model", "moves"
PRIOR = 0.5  # the assumed worth of a proposer without results: higher than most
T = TypeVar("T")
_WORTH = {Verdict.CHECKED: 0.25, Verdict.BUILT: 0.2, Verdict.UNDECIDED: 0.25, Verdict.SLOWER: 0.15}
_ACCEPTED, _NEARLY = 0.5, 0.35


@dataclass(frozen=True)
class Tally:
    """How many candidates of a proposer were judged, and the sum of their worths."""

    judged: int = 0
    worth: float = 0.0

    @property
    def mean(self) -> float:
        return (self.worth + PRIOR) / (self.judged + 1)


def worth(verdict: str, speedup: float | None) -> float:
    """Return the worth of a verdict, from 0 to 1: 0 for a broken candidate, then no new code, slower, not measured,
    nearly as fast. An accepted one gets 0.5 and up to 0.5 more by the logarithm of its speedup, with the most from 2x
    on.
    """
    if verdict in FAULTY:
        return 0.0
    if verdict == Verdict.ACCEPTED:
        return _ACCEPTED + (1 - _ACCEPTED) * min(1.0, max(0.0, math.log2(speedup or 1.0)))
    if verdict == Verdict.NO_CHANGE:
        return 0.05
    near = speedup is not None and speedup >= NEAR
    return _NEARLY if near else _WORTH.get(Verdict(verdict), 0.0)


def tallies(ctx: Context) -> dict[str, Tally]:
    """Return the tally of each proposer. Replies do not count: one that had come when a run was killed was not there
    when its generation began.
    """
    by_proposer = {MODEL: Tally(), MOVES: Tally()}
    for c in ctx.store.candidates(ctx.run.id):
        if c.verdict not in (None, Verdict.VETOED) and c.proposer in by_proposer:
            t = by_proposer[c.proposer]
            by_proposer[c.proposer] = Tally(t.judged + 1, t.worth + worth(str(c.verdict), c.speedup))
    return by_proposer


def mixed(
    streams: Mapping[str, Iterator[T]], tallies_by_name: Mapping[str, Tally], seed: int, turn: int
) -> Iterator[T]:
    """Yield proposals, each from the stream whose turn it is. A stream is not started before it has a place."""
    live, held = dict(streams), Counter[str]()
    while live:
        who = max(live, key=lambda n: (not held[n], _index(n, live, tallies_by_name, held), _lot(n, seed, turn)))
        proposal = next(live[who], None)
        if proposal is None:
            del live[who]
            continue
        held[who] += 1
        yield proposal


def _index(
    who: str, live: Mapping[str, object], tallies_by_name: Mapping[str, Tally], held: Mapping[str, int]
) -> float:
    count = {n: tallies_by_name[n].judged + 1 + held[n] for n in live}
    return tallies_by_name[who].mean + math.sqrt(math.log(sum(count.values())) / (4 * count[who]))


def _lot(who: str, seed: int, turn: int) -> tuple[bool, str]:
    """The key that breaks ties: the model first without a seed, else a hash of the seed."""
    return (who == MODEL, "") if not seed else (False, hashlib.sha256(f"{seed} {turn} {who}".encode()).hexdigest())


def shares(ctx: Context, generation: int) -> dict[str, int]:
    """Return proposer -> its number of places in a generation, sorted by name."""
    return dict(sorted(Counter(c.proposer or "" for c in ctx.store.candidates(ctx.run.id, generation)).items()))


def report_shares(ctx: Context, generation: int) -> None:
    """Emit how the places of a generation are divided, if there was a choice and the shares changed."""
    now, before = shares(ctx, generation), shares(ctx, generation - 1)
    if (ctx.model is not None or MODEL in now or MODEL in before) and now != before:
        means = {name: round(t.mean, 3) for name, t in tallies(ctx).items()}
        ctx.emit("places.shared", generation=generation, places=now, worth=means)
