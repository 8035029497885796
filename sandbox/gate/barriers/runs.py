"""Simulates a kernel's barriers with small numbers of loop iterations, and with the launches of cases.

With S slots in the largest array of barriers or buffers, every loop with barriers runs 0, 1, S - 1, S + 1 and 2S + 1
times. The third of independent loops, and each after it, runs 2S + 1 times, or as often as its 750 rounds in the loops
around it allow. This covers the ends of the pipeline, ends in the second and the third turn, whose parities differ, and
two turns of every slot. `argument_search.py` chooses arguments for this.
`launched` adds the arguments of cases. "No finding" means that these runs end in every order of their roles' steps, and
that no slot they use is written while it is read. Where runs did not go far enough into a loop, the finding is
undecided (`loops.py`).
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.barriers import argument_search, loops, simulator
from pgo_agent.sandbox.gate.barriers.finding import Finding, Kind, Seen
from pgo_agent.sandbox.gate.barriers.interpret import Unroller
from pgo_agent.sandbox.gate.barriers.launches import LaunchFacts
from pgo_agent.sandbox.gate.barriers.terms import Known, Term, leaves
from pgo_agent.sandbox.gate.barriers.values import Choose, Impossible, TooLong, Undecided
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.tokens import Unreadable
from pgo_agent.sandbox.ttgir.tree import Module

PACKAGES = (Path(__file__).parent, Path(reader.__file__).parent)
MOST_OPS = 1_000_000  # executed in all runs of one kernel: some ten seconds
MOST_ROUNDS = 750  # of the innermost of three loops or more: 9 * 9 * 9 with four slots, some 50,000 operations
MOST_LAUNCHED = 60_000  # executed in runs of what cases launch, of one kernel: half a second
MOST_VALUES = 60_000  # executed with other values of one number, to find out what a wrong run depends on
SEVERITY = list(Kind)  # the gravest first
NOT_LAUNCHED = "runs with something wrong"
LAUNCHES, LAUNCH = "launches", "a launch"  # of cases, that were not followed


@cache
def version() -> str:
    """Return a hash of this package's source and the reader's, which changes whenever a finding might."""
    sources = [p.read_bytes() for package in PACKAGES for p in sorted(package.glob("*.py"))]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]


def read_and_simulate(text: str) -> Finding:
    """Simulate the text of a kernel; one that cannot be read is undecided."""
    try:
        return simulate(reader.parse(text))
    except Unreadable as e:
        return Finding(Kind.UNDECIDED, f"the TTGIR cannot be read: {e}")


def simulate(module: Module) -> Finding:
    """Return the gravest finding of all runs; undecided where a run or a loop could not be followed."""
    runs = Runs(module)
    runs.explore([({}, 0)])
    return runs.conclusion()


def explored(module: Module) -> "Runs":
    """Return all runs by numbers of the simulator's own choice, also those behind a deadlock."""
    runs = Runs(module, through=True)
    runs.explore([({}, 0)])
    return runs


def by_value(module: Module, known: Known, leaf: Term) -> tuple[set[int], set[int]] | None:
    """Return with which values of one number runs end well, and with which something is wrong, where all other numbers
    stay; None where a run could not be followed."""
    runs = Runs(module, through=True, most=MOST_VALUES)
    runs.explore([({x: n for x, n in known.items() if x != leaf}, 0)])
    if any(f.kind is Kind.UNDECIDED for f in runs.findings):
        return None
    well, wrong = (
        {r.known[leaf] for r in runs.ended if r.finding.found is w and leaf in r.known} for w in (False, True)
    )
    return well, wrong


def launch(module: Module, facts: LaunchFacts) -> Finding:
    """Return the gravest finding of one launch; undecided where it could not be followed. Loops that it does not enter
    do not matter."""
    runs = Runs(module)
    runs.explore([(facts.known, 2)], facts)
    ended = sorted(runs.findings, key=lambda f: SEVERITY.index(f.kind))
    if runs.skipped or not ended:
        return Finding(Kind.UNDECIDED, "it could not be followed")
    return ended[0] if ended[0].found else ended[-1]


def without(runs: "Runs", left_out: Collection[Known]) -> Finding:
    """Return the finding of runs without those by numbers with which the kernel is not launched."""
    kept = Runs(runs.module, executed=runs.executed)
    kept.skipped = {**runs.skipped, NOT_LAUNCHED: "kernel() does not launch it with these numbers"}
    whys = {at: Seen(why=seen.why) for at, seen in runs.loops.items()}
    kept.loops = {at: seen + whys[at] for at, seen in kept.loops.items()}
    for run in (r for r in runs.ended if r.known not in left_out):
        kept.add(run, False)
    ended = [r.finding for r in runs.ended]
    kept.findings += [f for f in runs.findings if not any(f is e for e in ended)]
    if kept.findings:
        return kept.conclusion()
    sentence = "kernel() launches it with none of the numbers that were tried"
    return Finding(Kind.UNDECIDED, sentence, coverage=kept.coverage(), loops=kept.loops, unsettled=True)


def launched(module: Module, before: Finding, launches: Sequence[LaunchFacts]) -> Finding:
    """Return the finding of `simulate` and of runs of these launches together.

    Where all launches could be followed, arguments that `simulate` could not choose do not matter. Single blocks are
    followed while there are loops that no run entered.
    """
    runs = Runs(module, before, dict(before.loops))
    for launch in launches:
        if runs.executed > MOST_LAUNCHED:
            runs.skipped[LAUNCHES] = f"{MOST_LAUNCHED} operations of those before were followed"
            break
        runs.explore([(launch.known, 2)], launch)
    for block in (b for launch in launches for b in launch.blocks()):
        if runs.executed > MOST_LAUNCHED or not loops.unseen(runs.loops, runs.slots):
            break
        runs.explore([(block.known, 2)], block)
    return runs.conclusion()


@dataclass(frozen=True)
class Ended:
    """A run that could be followed to its end."""

    known: Known  # its numbers
    finding: Finding
    times: Mapping[str, list[int]]  # where a loop stands -> its numbers of iterations


@dataclass
class Runs:
    """All runs of one kernel so far."""

    module: Module
    before: Finding | None = None
    loops: dict[str, Seen] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    executed: int = 0  # operations
    skipped: dict[str, str] = field(default_factory=dict)
    through: bool = False  # go on after a run that ends in a deadlock
    most: int = MOST_OPS
    ended: list["Ended"] = field(default_factory=list)  # runs that could be followed to their end

    def __post_init__(self) -> None:
        self.slots = loops.most_slots(self.module)
        self.wanted = sorted({0, 1, max(self.slots - 1, 0), self.slots + 1, 2 * self.slots + 1})
        self.loops = self.loops or loops.of(self.module)

    def explore(self, todo: list[tuple[Known, int]], launch: LaunchFacts | None = None) -> None:
        """Follow runs until none is left. `todo`: known numbers, and for how many loops they were chosen."""
        while todo and (self.through or not self.findings or self.findings[-1].kind is not Kind.DEADLOCK):
            known, chosen = todo.pop()
            unroller = Unroller(self.module, known)
            try:
                finding = _run(unroller, launch is None or not launch.secret)
                self.add(Ended(known, finding, unroller.loops), launch is not None)
            except Choose as e:
                todo += [(c, chosen + (e.kind == "trips")) for c in reversed(self.choices(e, known, chosen))]
            except TooLong as e:
                if launch is not None and known.keys() - launch.on_any_grid.keys():
                    self.explore([(launch.on_any_grid, 1)])
                elif launch is not None:
                    self.skipped[LAUNCH] = str(e)
                else:
                    self.findings.append(Finding(Kind.UNDECIDED, str(e)))
            except (Undecided, RecursionError) as e:
                self.findings.append(Finding(Kind.UNDECIDED, str(e)))
            except Impossible:
                pass
            self.executed += unroller.executed
            if todo and self.executed > self.most:
                sentence = f"{len(self.findings)} runs take {self.executed} operations, and more are left"
                self.findings.append(Finding(Kind.UNDECIDED, sentence))
                return

    def choices(self, e: Choose, known: Known, chosen: int) -> list[argument_search.Choice]:
        """Return arguments to go on with; note where there are none."""
        if chosen >= 2 and e.kind == "trips":
            short = [n for n in self.wanted if 0 < n * e.rounds <= MOST_ROUNDS] or [1]
            found = (_choices(e, [n], known) for n in (*reversed(short), self.wanted[-1]))
            choices = next((c[:1] for c in found if c), [])
        else:
            choices = _choices(e, self.wanted if chosen < 2 else self.wanted[-1:], known)
        if not choices:
            sentence = f"{e} is not known: no arguments were found that settle it"
            self.findings.append(Finding(Kind.UNDECIDED, sentence, unsettled=True))
        if e.kind == "trips" and e.at in self.loops:
            self.loops[e.at] += Seen(why=f"how often it runs follows from {_named(e.term)}")
        return choices

    def add(self, run: "Ended", launch: bool) -> None:
        """Take a run that could be followed to its end; `launch`: by the numbers of a case."""
        self.ended.append(run)
        self.findings.append(run.finding)
        for at in self.loops:
            times = run.times.get(at, [])
            self.loops[at] += Seen(max(times, default=0), sum(times), launched=launch)

    def conclusion(self) -> Finding:
        """Return the gravest finding of these runs and of those before."""
        bad = sorted((f for f in self._all() if f.found), key=lambda f: SEVERITY.index(f.kind))
        unknown = [f for f in self._all() if f.kind is Kind.UNDECIDED and not (f.unsettled and self._as_launched)]
        unseen = loops.unseen(self.loops, self.slots)
        first = (bad or unknown or [unseen or self._nothing()])[0]
        return replace(first, coverage=self.coverage(), loops=self.loops)

    def _all(self) -> list[Finding]:
        return [*([self.before] if self.before else []), *self.findings]

    @property
    def _as_launched(self) -> bool:
        """Whether launches of cases were followed, all of them to the end."""
        followed = any(f.kind is Kind.NONE for f in self.findings)
        return self.before is not None and followed and not self.skipped and not any(f.unsettled for f in self.findings)

    def coverage(self) -> Coverage:
        runs = sum(f.kind is not Kind.UNDECIDED for f in self.findings)
        entered = sum(bool(s.most) for s in self.loops.values())
        iterations = sum(s.iterations for s in self.loops.values())
        new = coverage.of(self.skipped, runs=(runs, len(self.findings)), operations=self.executed)
        entries = coverage.of(loops=(entered, len(self.loops)), loop_iterations=iterations)
        before = self.before.coverage if self.before else NOTHING
        old = {n: c for n, c in before.counts.items() if n not in entries.counts}
        return Coverage(old, before.skipped) + new + entries

    def _nothing(self) -> Finding:
        if not self.coverage().counts["runs"].ran:
            return Finding(Kind.UNDECIDED, "the kernel's own assumptions exclude every run that was tried")
        count = sum(1 for _ in self.module.kernel.walk()) - 1
        sentence = f"no hang and no mismatch in {self.coverage().said()}; not a proof"
        if not self.loops:
            sentence = f"{sentence}; no loop of its {count} operations holds barriers or asynchronous copies"
        return Finding(Kind.NONE, sentence)


def _run(unroller: Unroller, public: bool) -> Finding:
    """Return the finding of one run, with its numbers in the trace where they are public."""
    program = unroller.program()
    finding = simulator.run(program)
    finding = min([finding, *unroller.findings[:1]], key=lambda f: SEVERITY.index(f.kind))
    if not finding.found or not public:
        return finding
    when = [f"{n[-1]} iteration{'s' * (n[-1] != 1)} of the loop at {at}" for at, n in unroller.loops.items()]
    chosen = [f"{leaf.name} = {value}" for leaf, value in unroller.known.items()]
    trace = ("with " + ", ".join(when),) * bool(when) + ("for example with " + ", ".join(chosen),) * bool(chosen)
    return replace(finding, trace=finding.trace + trace)


def _choices(e: Choose, wanted: list[int], known: Known) -> list[argument_search.Choice]:
    if e.kind == "trips":
        return argument_search.trips(e.term, wanted, known)
    if e.kind == "flag":
        return argument_search.flags(e.term, [s * n for n in wanted for s in (1, -1)], known)
    return argument_search.values(e.term, wanted, known)


def _named(term: Term) -> str:
    """Return the names of the unknown numbers in a term."""
    sorted_leaves = sorted(leaves(term), key=lambda leaf: leaf.name)
    return ", ".join(f"{x.name} (a multiple of {x.step})" if x.step > 1 else x.name for x in sorted_leaves)
