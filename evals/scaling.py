"""`python -m pgo_agent.evals.scaling`: candidates a minute on 1, 2 and 4 GPUs of this machine, and their winners.

The candidates of a run in a workspace are judged again, as given ones: once for each number of GPUs, each time against
the kernel as shipped, with a baseline of its own. What is built is in the workspace: the GPUs are what is waited for.
Winners agree when they are the same, or when each run's interval of one overlaps that of the other. Relies on runs as
`pgo-agent check` makes them; their locks keep others off meanwhile.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands import optimize
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Run, Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.views.summary import output
from pgo_agent.sandbox.errors import EnvironmentFault, Fault, UsageFault
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import gpus
from rich.table import Table

MINUTES = 600.0  # of one run: nothing here is to be cut
UNTRIED = {Verdict.BUILD_ERROR, Verdict.REJECTED, Verdict.NO_CHANGE}
Interval = Sequence[float]  # low, middle, high


@dataclass
class Clock:
    """When the phases of a run began and ended, by its events."""

    began: dict[str, float] = field(default_factory=dict)
    verdicts: list[float] = field(default_factory=list)  # of what a GPU judged

    def __call__(self, event: Mapping[str, Any]) -> None:
        now, kind = time.monotonic(), event["type"]
        if kind == "phase":
            self.began[event["doing"].partition(" ")[0]] = now
        elif kind == "baseline.completed":
            self.began["measured"] = now
        elif kind == "candidate.verdict" and "judging" in self.began:
            self.verdicts.append(now)

    @property
    def baseline(self) -> float:
        return self.began["measured"] - self.began["measuring"]

    @property
    def judging(self) -> float:
        return self.verdicts[-1] - self.began["judging"]


@dataclass(frozen=True)
class Measured:
    """A run on so many GPUs."""

    gpus: int
    run: str
    baseline: float  # seconds of the sweep
    judging: float  # seconds from the first candidate to the last verdict
    judged: int  # candidates
    winner: str | None
    speedups: dict[str, Interval]  # over the kernel as shipped, of what was accepted

    @property
    def a_minute(self) -> float:
        return 60 * self.judged / self.judging


def measure(
    store: Store, of: Run, counts: Sequence[int], names: Sequence[str], say: Callable[[str], None]
) -> list[Measured]:
    """`names`: of the GPUs, as `--gpus` takes them. Raises UsageFault for a run without candidates to judge, and what
    runs raise."""
    given = candidates(store, of)
    found = []
    for count in counts:
        say(f"{len(given)} candidates on {count} of {len(names)} GPUs")
        found.append(_once(store, of, given, names[:count]))
    return found


def candidates(store: Store, of: Run) -> list[dict[str, str]]:
    """What a run had to judge on a GPU, as candidates that are given."""
    fit = [c for c in store.candidates(of.id) if c.verdict not in (None, *UNTRIED) and c.has_bundle]
    if not fit:
        raise UsageFault(f"run {of.id} judged no candidate", "name one that did, with --run")
    return [{"from": c.id, "kind": "source" if c.kind != "ttgir" else "ttgir", "source": c.source} for c in fit]


def _once(store: Store, of: Run, given: Sequence[Mapping[str, str]], names: Sequence[str]) -> Measured:
    clock, count, own = Clock(), len(given), of.settings
    wishes = RunSettings(of.device, count, count, MINUTES, 1, own["sandbox"], "gpu", tuple(own["cases"]), own["python"])
    wishes = replace(wishes, given=tuple(given), gpus=",".join(names), alone=True)
    optimize.start(Path(of.target), wishes, store, clock)
    run = store.run("last")
    accepted = [c for c in store.candidates(run.id) if c.verdict == Verdict.ACCEPTED]
    speedups = {c.id: _interval(store, run, c) for c in accepted}
    winner = (run.summary or {}).get("winner")
    return Measured(len(names), run.id, clock.baseline, clock.judging, len(clock.verdicts), winner, speedups)


def _interval(store: Store, run: Run, c: Candidate) -> Interval:
    """Of the session that confirmed it."""
    found: Interval = store.evidence(run.id, c.id)["confirm"]["again"]["speedup"]
    return found


def agree(found: Sequence[Measured]) -> bool:
    """Whether all runs have the winner of the first, as far as the clock can tell."""
    return all(_agree(found[0], other) for other in found[1:])


def _agree(one: Measured, other: Measured) -> bool:
    if one.winner == other.winner:
        return True
    return all(_overlap(m.speedups.get(one.winner or ""), m.speedups.get(other.winner or "")) for m in (one, other))


def _overlap(a: Interval | None, b: Interval | None) -> bool:
    return a is not None and b is not None and a[0] <= b[-1] and b[0] <= a[-1]


def show(found: Sequence[Measured]) -> None:
    table = Table(title="the same candidates on several GPUs", title_justify="left")
    for column in ("GPUs", "baselines, s", "candidates", "s", "a minute", "times", "winner", "speedup"):
        table.add_column(column, justify="left" if column == "winner" else "right")
    for m in found:
        best = f"{m.speedups[m.winner][1]:.3f}x" if m.winner else ""
        times = f"{m.a_minute / found[0].a_minute:.2f}"
        row = (str(m.gpus), f"{m.baseline:.1f}", str(m.judged), f"{m.judging:.1f}", f"{m.a_minute:.2f}", times)
        table.add_row(*row, (m.winner or "none")[:8], best)
    out = output()
    out.print(table)
    out.print(f"winners: {'the same, as far as the clock can tell' if agree(found) else 'they differ'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Gives the exit code: 0 the winners agree, 1 they differ, 2 usage, 3 environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path(".pgo-agent"), help="The workspace of the run.")
    parser.add_argument("--run", default="last", help="Whose candidates are judged again.")
    parser.add_argument("--counts", default="1,2,4", help="Numbers of GPUs; those that are not there are left out.")
    parser.add_argument("--gpus", metavar="0,1", help="The GPUs, as for `pgo-agent optimize`.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    try:
        names = [g.uuid for g in gpus.usable(args.gpus)]
        counts = [n for n in map(int, args.counts.split(",")) if 0 < n <= len(names)]
        if not counts:
            raise EnvironmentFault(f"{len(names)} GPUs are visible here", "name fewer with --counts")
        with closing(Store(args.store, create=False)) as store:
            of = store.run(args.run)
            found = measure(store, of, counts, names, lambda text: print(text, file=sys.stderr, flush=True))
    except Fault as e:
        print(f"error: {e}", file=sys.stderr)
        return 2 if isinstance(e, UsageFault) else 3
    if args.json:
        print(json.dumps({"runs": [vars(m) | {"a_minute": m.a_minute} for m in found], "agree": agree(found)}))
    else:
        show(found)
    return 0 if agree(found) else 1


if __name__ == "__main__":
    sys.exit(main())
