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
from pgo_agent.sandbox.judge.timing import decision

EFFECT = 1 - decision.REGRESSION  # least part by which something must be slower, to count
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
    """Return how two lists of rows compare. Raises UsageFault where they have no row in common."""
    earlier, later = ({r.key: r for r in rows} for rows in (before, after))
    notes, pairs = list(_alone(earlier, later)), list[tuple[Row, Row]]()
    for key in (k for k in earlier if k in later):
        before_row, after_row = earlier[key], later[key]
        if why := _unlike(before_row, after_row):
            notes.append(f"{named((*before_row.key, ''))} was not compared: {why}")
        else:
            pairs.append((before_row, after_row))
    if not pairs:
        raise UsageFault(
            "no row of one file can be compared with one of the other",
            "\n     ".join(notes) or "see `pgo-agent eval compare --help`",
        )
    notes.extend(n for before_row, after_row in pairs for n in _apart(before_row, after_row))
    notes.extend(dict.fromkeys(n for before_row, after_row in pairs for n in _moved(before_row, after_row)))
    return Comparison(tuple(_compared(pairs, effect, chance)), tuple(notes))


def _alone(earlier: Mapping[Key, Row], later: Mapping[Key, Row]) -> Iterator[str]:
    for rows, other, which in ((earlier, later, "the first"), (later, earlier, "the second")):
        yield from (f"{named((*r.key, ''))} is in {which} file alone" for key, r in rows.items() if key not in other)


def _unlike(was: Row, now: Row) -> str:
    """Return why two rows of one name cannot be compared; empty where they can."""
    if was.gpu != now.gpu:
        return f"it was measured on an {was.gpu}, then on an {now.gpu}"
    if was.budget != now.budget:
        return "the budgets of its runs differ"
    if not (was.failed or now.failed or was.cases.keys() & now.cases.keys()):
        return f"they have no case in common: {_listed(was.cases)}, then {_listed(now.cases)}"
    works = {c: (k.flops, k.bytes) for c, k in was.cases.items()}
    changed = [c for c, k in now.cases.items() if works.get(c, (k.flops, k.bytes)) != (k.flops, k.bytes)]
    return f"{changed[0]} asks for other work now" if changed else ""


def _listed(cases: Iterable[str]) -> str:
    return ", ".join(c.split("/", 1)[-1] for c in cases)


def _apart(was: Row, now: Row) -> Iterator[str]:
    """Yield the cases that only one of two rows has; a row that failed has none."""
    if was.failed or now.failed:
        return
    for row, fellow, which in ((was, now, "the first"), (now, was, "the second")):
        yield from (f"{named((*row.key, c))} is in {which} file alone" for c in row.cases if c not in fellow.cases)


def _moved(was_row: Row, now_row: Row) -> Iterator[str]:
    for name in NAMED:
        was, now = (row.environment.as_json().get(name) for row in (was_row, now_row))
        if was != now:
            yield f"{name} was {was}, and is {now}"


def _compared(pairs: Sequence[tuple[Row, Row]], effect: float, chance: float) -> Iterator[Compared]:
    decided: dict[Place, Compared] = {}
    tested: dict[Place, _Tested] = {}
    for was, now in pairs:
        for place, result in _cases(was, now, effect):
            if isinstance(result, Compared):
                decided[place] = result
            else:
                tested[place] = result
    slower = ranks.holm({p: ranks.larger(t.before, t.after) for p, t in tested.items()})
    faster = ranks.holm({p: ranks.larger(t.after, t.before) for p, t in tested.items()})
    for place, t in tested.items():
        decided[place] = _decided(place, t, slower[place], faster[place], chance)
    yield from (decided[p] for p in sorted(decided, key=str))


def _cases(before: Row, after: Row, effect: float) -> Iterator[tuple[Place, Compared | _Tested]]:
    if before.failed or after.failed:
        place = (*before.key, "")
        standing = Standing.BOTH_FAIL if before.failed and after.failed else Standing.WORKS
        standing = Standing.FAILS if after.failed and not before.failed else standing
        yield place, Compared(place, standing, why=(after.failed or before.failed).splitlines()[0])
        return
    for name in (n for n in before.cases if n in after.cases):
        place, was, now = (*before.key, name), before.cases[name], after.cases[name]
        if plan(was, was.delivered) == plan(now, now.delivered) != "":
            yield place, Compared(place, Standing.SAME)
        else:
            yield place, _test(was, now, before.environment.torch == after.environment.torch, effect)


def plan(case: Case, side: str) -> str:
    """Return what a side launches, by its name; empty of a library."""
    return str(case.plans.get(side, {}).get("plan_id") or "")


def _test(was: Case, now: Case, same_torch: bool, effect: float) -> _Tested:
    yard = _yard(was, now, same_torch)
    threshold = 1 + max(effect, *(_noise(c) for c in (was, now)))
    return _Tested(_times(was, yard), _times(now, yard), threshold, yard)


def _yard(was: Case, now: Case, same_torch: bool) -> str:
    """Return a side whose code is the same in both: a baseline, or a library of the same torch."""
    baselines = [s for s in (SHIPPED, TUNED) if plan(was, s) == plan(now, s) != ""]
    libraries = [s for s in was.libraries if same_torch and s in now.libraries]
    return next(iter([*baselines, *libraries]), "")


def _times(case: Case, yard: str) -> list[float]:
    delivered = case.ms[case.delivered]
    return [a / b for a, b in zip(delivered, case.ms[yard], strict=True)] if yard else list(delivered)


def _noise(case: Case) -> float:
    """By how much the shipped kernel may differ from itself, as a part."""
    a = case.noise
    return max(abs(math.log(x)) for x in (a.low, a.mid, a.high))


def _decided(place: Place, t: _Tested, slower: float, faster: float, chance: float) -> Compared:
    result = Compared(place, Standing.EQUAL, t.change, min(slower, faster), t.threshold, t.yard)
    if t.change > t.threshold and slower < chance:
        return replace(result, standing=Standing.SLOWER)
    if t.change < 1 / t.threshold and faster < chance:
        return replace(result, standing=Standing.FASTER)
    return result


def named(place: Place) -> str:
    kernel, optimizer, seed, case = place
    name = f"{kernel} by {optimizer}" + ("" if seed is None else f", seed {seed}")
    return f"{name}, {case.split('/', 1)[-1]}" if case else name
