"""Compares two files of rows, run by run and case by case: what is delivered there, winner or tuned baseline.

Code that did not change cannot regress: where both deliver the same plan, nothing is tested. Else the raw samples are
compared by Mann and Whitney's test. A clock moves from night to night, so each round's time is divided by that of a
side whose code is the same in both files, where there is one (the `yard`); rounds of one session are still no sample
of all sessions, so a difference counts only from a least effect on, and above what each session's A/A shows.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pgo_agent.evals.nightly.row import SHIPPED, TUNED, Case, Row
from pgo_agent.evals.regressions import ranks
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.judge.timing import verdict

EFFECT = 1 - verdict.REGRESSION  # least part by which something must be slower, to count
CHANCE = 0.01  # of any false alarm, over all that is tested
NAMED = ("driver", "torch", "triton")  # of an environment: said where they differ
Key = tuple[str, str, int | None]  # kernel, optimizer, seed
Place = tuple[str, str, int | None, str]  # with the case


class Standing(StrEnum):
    SLOWER = "regression"
    FAILS = "fails now"  # it did not before: a regression, too
    FASTER = "faster"
    WORKS = "works now"
    EQUAL = "no difference"
    SAME = "same code"
    BOTH_FAIL = "fails in both"


REGRESSIONS = (Standing.SLOWER, Standing.FAILS)


@dataclass(frozen=True)
class Compared:
    place: Place
    standing: Standing
    change: float | None = None  # time of the later over that of the earlier; None: nothing was tested
    chance: float | None = None  # of as large a difference by chance, corrected for all that is tested
    threshold: float | None = None  # that the change must exceed
    yard: str = ""  # the side that times were divided by; empty: none, these are plain times
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    cases: tuple[Compared, ...]
    notes: tuple[str, ...]  # what was not compared, and what else differs

    @property
    def regressions(self) -> list[Compared]:
        return [c for c in self.cases if c.standing in REGRESSIONS]


@dataclass(frozen=True)
class _Tested:
    """Two lots of samples that are to be compared."""

    before: Sequence[float]
    after: Sequence[float]
    threshold: float
    yard: str

    @property
    def change(self) -> float:
        return statistics.median(self.after) / statistics.median(self.before)


def compare(before: Sequence[Row], after: Sequence[Row], effect: float = EFFECT, chance: float = CHANCE) -> Comparison:
    """Raises UsageFault where no row of one has a fellow in the other."""
    earlier, later = ({r.key: r for r in rows} for rows in (before, after))
    notes, pairs = list(_alone(earlier, later)), list[tuple[Row, Row]]()
    for key in (k for k in earlier if k in later):
        one, other = earlier[key], later[key]
        if why := _unlike(one, other):
            notes.append(f"{named((*one.key, ''))} was not compared: {why}")
        else:
            pairs.append((one, other))
    if not pairs:
        raise UsageFault(
            "no row of one file can be compared with one of the other",
            "\n     ".join(notes) or "see `pgo-agent eval compare --help`",
        )
    notes.extend(n for one, other in pairs for n in _apart(one, other))
    notes.extend(dict.fromkeys(n for one, other in pairs for n in _moved(one, other)))
    return Comparison(tuple(_told(pairs, effect, chance)), tuple(notes))


def _alone(earlier: Mapping[Key, Row], later: Mapping[Key, Row]) -> Iterator[str]:
    for own, other, which in ((earlier, later, "the first"), (later, earlier, "the second")):
        yield from (f"{named((*r.key, ''))} is in {which} file alone" for key, r in own.items() if key not in other)


def _unlike(one: Row, other: Row) -> str:
    """Why two rows of one name cannot be compared; empty where they can."""
    if one.gpu != other.gpu:
        return f"it was measured on an {one.gpu}, then on an {other.gpu}"
    if one.budget != other.budget:
        return "the budgets of its runs differ"
    if not (one.failed or other.failed or one.cases.keys() & other.cases.keys()):
        return f"they have no case in common: {_listed(one.cases)}, then {_listed(other.cases)}"
    works = {c: (k.flops, k.bytes) for c, k in one.cases.items()}
    changed = [c for c, k in other.cases.items() if works.get(c, (k.flops, k.bytes)) != (k.flops, k.bytes)]
    return f"{changed[0]} asks for other work now" if changed else ""


def _listed(cases: Iterable[str]) -> str:
    return ", ".join(c.split("/", 1)[-1] for c in cases)


def _apart(one: Row, other: Row) -> Iterator[str]:
    """The cases that only one of two rows has; a row that failed has none."""
    if one.failed or other.failed:
        return
    for own, fellow, which in ((one, other, "the first"), (other, one, "the second")):
        yield from (f"{named((*own.key, c))} is in {which} file alone" for c in own.cases if c not in fellow.cases)


def _moved(one: Row, other: Row) -> Iterator[str]:
    for name in NAMED:
        was, now = one.environment.get(name), other.environment.get(name)
        if was != now:
            yield f"{name} was {was}, and is {now}"


def _told(pairs: Sequence[tuple[Row, Row]], effect: float, chance: float) -> Iterator[Compared]:
    known: dict[Place, Compared] = {}
    tested: dict[Place, _Tested] = {}
    for one, other in pairs:
        for place, found in _cases(one, other, effect):
            if isinstance(found, Compared):
                known[place] = found
            else:
                tested[place] = found
    slower = ranks.holm({p: ranks.larger(t.before, t.after) for p, t in tested.items()})
    faster = ranks.holm({p: ranks.larger(t.after, t.before) for p, t in tested.items()})
    for place, t in tested.items():
        known[place] = _decided(place, t, slower[place], faster[place], chance)
    yield from (known[p] for p in sorted(known, key=str))


def _cases(one: Row, other: Row, effect: float) -> Iterator[tuple[Place, Compared | _Tested]]:
    if one.failed or other.failed:
        place = (*one.key, "")
        standing = Standing.BOTH_FAIL if one.failed and other.failed else Standing.WORKS
        standing = Standing.FAILS if other.failed and not one.failed else standing
        yield place, Compared(place, standing, why=(other.failed or one.failed).splitlines()[0])
        return
    for name in (n for n in one.cases if n in other.cases):
        place, was, now = (*one.key, name), one.cases[name], other.cases[name]
        if plan(was, was.delivered) == plan(now, now.delivered) != "":
            yield place, Compared(place, Standing.SAME)
        else:
            yield place, _test(was, now, one.environment.get("torch") == other.environment.get("torch"), effect)


def plan(case: Case, side: str) -> str:
    """What a side launches, by its name; empty of a library."""
    return str(case.plans.get(side, {}).get("plan_id") or "")


def _test(was: Case, now: Case, same_torch: bool, effect: float) -> _Tested:
    yard = _yard(was, now, same_torch)
    threshold = 1 + max(effect, *(_noise(c) for c in (was, now)))
    return _Tested(_times(was, yard), _times(now, yard), threshold, yard)


def _yard(was: Case, now: Case, same_torch: bool) -> str:
    """A side whose code is the same in both: a baseline, or a library of the same torch."""
    own = [s for s in (SHIPPED, TUNED) if plan(was, s) == plan(now, s) != ""]
    libraries = [s for s in was.libraries if same_torch and s in now.libraries]
    return next(iter([*own, *libraries]), "")


def _times(case: Case, yard: str) -> list[float]:
    own = case.ms[case.delivered]
    return [a / b for a, b in zip(own, case.ms[yard], strict=True)] if yard else list(own)


def _noise(case: Case) -> float:
    """By how much the shipped kernel may differ from itself, as a part."""
    a = case.noise
    return max(abs(math.log(x)) for x in (a.low, a.mid, a.high))


def _decided(place: Place, t: _Tested, slower: float, faster: float, chance: float) -> Compared:
    found = Compared(place, Standing.EQUAL, t.change, min(slower, faster), t.threshold, t.yard)
    if t.change > t.threshold and slower < chance:
        return replace(found, standing=Standing.SLOWER)
    if t.change < 1 / t.threshold and faster < chance:
        return replace(found, standing=Standing.FASTER)
    return found


def named(place: Place) -> str:
    kernel, optimizer, seed, case = place
    told = f"{kernel} by {optimizer}" + ("" if seed is None else f", seed {seed}")
    return f"{told}, {case.split('/', 1)[-1]}" if case else told
