"""Who proposes what of a generation: proposers share its places by what their candidates came to so far.

Places go one by one to the proposer with the highest index, UCB1-Tuned at its largest variance, that of a fair coin:

    index = mean + sqrt(ln N / (4 n))

of P. Auer, N. Cesa-Bianchi, P. Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning 47
(2002), section 4. The mean is of what a proposer's judged candidates were worth (`worth`), beside one imagined of
PRIOR; n counts them, that one, and the places that it holds in this generation already; N is the sum of all n. Where
there are as many places, each proposer gets one before the others are shared. Who has nothing left makes room for the
rest. A proposer without a place is not asked: a model's call costs money, and there is at most one in a generation.
Everything comes from the store, so a run that was killed decides the same; of equals the run's seed picks one.
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
PRIOR = 0.5  # what a proposer is taken to be worth that nobody has seen: more than most are
T = TypeVar("T")
_WORTH = {Verdict.CHECKED: 0.25, Verdict.BUILT: 0.2, Verdict.UNDECIDED: 0.25, Verdict.SLOWER: 0.15}
_ACCEPTED, _NEARLY = 0.5, 0.35


@dataclass(frozen=True)
class Tally:
    """What the judged candidates of a proposer came to."""

    judged: int = 0
    worth: float = 0.0

    @property
    def mean(self) -> float:
        return (self.worth + PRIOR) / (self.judged + 1)


def worth(verdict: str, speedup: float | None) -> float:
    """0 for what is broken, then no new code, right but slower, right and not measured, nearly as fast; half a point
    for an accepted candidate and the rest by the logarithm of its speedup, up to twice as fast.
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
    """What each proposer of the run came to. Replies do not count: one that is in hand when a run dies was not there
    when its generation began.
    """
    found = {MODEL: Tally(), MOVES: Tally()}
    for c in ctx.store.candidates(ctx.run.id):
        if c.verdict not in (None, Verdict.VETOED) and c.proposer in found:
            t = found[c.proposer]
            found[c.proposer] = Tally(t.judged + 1, t.worth + worth(str(c.verdict), c.speedup))
    return found


def mixed(streams: Mapping[str, Iterator[T]], known: Mapping[str, Tally], seed: int, turn: int) -> Iterator[T]:
    """The proposals of all streams, each from whose turn it is; a stream is not begun before it has a place."""
    live, held = dict(streams), Counter[str]()
    while live:
        who = max(live, key=lambda n: (not held[n], _index(n, live, known, held), _lot(n, seed, turn)))
        found = next(live[who], None)
        if found is None:
            del live[who]
            continue
        held[who] += 1
        yield found


def _index(who: str, live: Mapping[str, object], known: Mapping[str, Tally], held: Mapping[str, int]) -> float:
    count = {n: known[n].judged + 1 + held[n] for n in live}
    return known[who].mean + math.sqrt(math.log(sum(count.values())) / (4 * count[who]))


def _lot(who: str, seed: int, turn: int) -> tuple[bool, str]:
    """Of equals: without a seed the model, else a lot."""
    return (who == MODEL, "") if not seed else (False, hashlib.sha256(f"{seed} {turn} {who}".encode()).hexdigest())


def shares(ctx: Context, generation: int) -> dict[str, int]:
    """Proposer -> its places in a generation, in order of name."""
    return dict(sorted(Counter(c.proposer or "" for c in ctx.store.candidates(ctx.run.id, generation)).items()))


def tell(ctx: Context, generation: int) -> None:
    """Says how the places of a generation are shared, where there is a choice and it is not as it was before."""
    now, before = shares(ctx, generation), shares(ctx, generation - 1)
    if (ctx.model is not None or MODEL in now or MODEL in before) and now != before:
        means = {name: round(t.mean, 3) for name, t in tallies(ctx).items()}
        ctx.emit("places.shared", generation=generation, places=now, worth=means)
