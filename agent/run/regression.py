"""What a comparison of two revisions of a kernel came to, as data: `check FILE --against BASE`.

Views print it, `--json` tells it. It compares and decides nothing: `evaluation/same_code.py` and the judge do.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from pgo_agent.agent.exit_codes import FAULTY, Exit
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import Record

Ratio = tuple[float, float, float]  # low, middle and high of an interval


class Outcome(StrEnum):
    """The one verdict. What is wrong with FILE keeps the name that the gate has for it: wrong, race, deadlock, ..."""

    SAME_CODE = "same_code"  # the same TTGIR and machine code in every case and configuration
    NOT_SLOWER = "not_slower"  # right, and timed
    SLOWER = "slower"  # right, and timed
    RIGHT = "right"  # not timed: no GPU
    UNDECIDED = "undecided"  # right or not, slower or not: nothing here could tell


@dataclass(frozen=True)
class Resources(Record):
    """What a build takes, without running it."""

    registers: int
    spills: int  # bytes
    shared: int  # bytes


@dataclass(frozen=True)
class KernelChange(Record):
    """One kernel of a configuration of a public case, of which something differs."""

    case: str
    configuration: str
    kernel: str
    before: Resources | None  # None: BASE has no such kernel there
    after: Resources | None
    lines: int  # of normalised TTGIR that differ; 0: the machine code differs alone


@dataclass(frozen=True)
class CodeCompared(Record):
    """How the code of FILE compares with that of BASE."""

    same: bool  # all of it, and all of it was compared
    how: str  # by which the same code was told
    cases: int
    configurations: int  # of BASE, over all cases
    differing: int = 0  # of them, or of FILE's where it has more
    left_out: int = 0  # configurations of long lists that were not built
    changes: tuple[KernelChange, ...] = ()


@dataclass(frozen=True)
class Result(Record):
    """The verdict, with what it rests on."""

    file: str
    against: str
    target: str
    device: str
    outcome: str  # of Outcome, or a verdict that says what is wrong
    said: str  # in a sentence
    reason: str = ""  # of the verdict in the record
    stage: str = ""
    code: CodeCompared | None = None  # None: not the same text, and not built
    speedup: Ratio | None = None  # of FILE over BASE, all cases together; None: not timed
    noise: Ratio | None = None  # of BASE over itself, in the same session
    cases: dict[str, Ratio] = field(default_factory=dict)
    again: Ratio | None = None  # the speedup in a second session, by another process
    covered: str = ""
    run: str = ""  # in the record; empty: nothing had to be judged
    candidate: str = ""

    @property
    def exit(self) -> Exit:
        if self.outcome in (Outcome.SLOWER, *FAULTY):
            return Exit.NONE_FOUND
        return Exit.BUDGET if self.outcome == Outcome.UNDECIDED else Exit.DONE


def outcome(verdict: str | None) -> str:
    """Return the outcome by the verdict on a candidate that is held against an incumbent; None: it was not judged."""
    if verdict in (None, Verdict.BUILT, Verdict.UNDECIDED, Verdict.VETOED):
        return Outcome.UNDECIDED
    return {Verdict.CHECKED: Outcome.RIGHT}.get(Verdict(str(verdict)), str(verdict))
