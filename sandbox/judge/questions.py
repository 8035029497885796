"""What a judge may be asked and what it answers: a frozen dataclass for each command, and one for its answer.

Both are JSON between processes and machines (`json_codec.py`). `spool/protocol.py` holds the bounds of what comes from
another machine; this module knows types alone. Relies on nothing that takes long to import.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.gate.verdict import Judgement
from pgo_agent.sandbox.json_codec import OPTIONAL, JsonObject, Record
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.references import BundleRef, PlanRef, Side, Whole

CHECK_SECONDS = 120.0  # for one candidate on all small cases in the interpreter, unless a question says otherwise
A_co = TypeVar("A_co", covariant=True)


class Question(Record, Generic[A_co]):
    """A command with its fields."""

    do: ClassVar[str]
    answer: ClassVar[Any] = Judgement  # type of the answer

    def read(self, answer: JsonObject) -> A_co:
        """Return the answer that came as JSON. Raises Malformed."""
        result: A_co = json_codec.from_json(self.answer, answer)
        return result


# what is asked about --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Against(Record):
    """What a candidate is compared with, and where."""

    incumbent: Side
    shipped: Side
    tuned: Side | None
    public: tuple[str, ...]  # cases
    held_out: tuple[str, ...]
    weights: dict[str, float] | None  # of public cases
    no_slower: bool = field(default=False, kw_only=True, metadata=OPTIONAL)  # asked: is it slower? else: is it faster?


@dataclass(frozen=True)
class Problem(Record):
    """Why there is no other answer."""

    problem: str


@dataclass(frozen=True)
class Nothing(Record):
    """There is nothing to say."""


# the process ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Open(Question[Environment]):
    """Open a target and test the GPU: the first question of every process."""

    path: str
    python: str
    contract: str
    sandbox: str
    device: str  # that the interpreter reports to launchers
    forks: tuple[int, ...]  # open files: what boxed processes of `box.FORKED` are forked from, or none
    unfit: tuple[str, ...] = field(default=(), metadata=OPTIONAL)  # stress inputs: see own_steps.py
    do, answer = "open", Environment


@dataclass(frozen=True)
class Hello(Question[Nothing]):
    """Be there, with the target open."""

    do, answer = "hello", Nothing


@dataclass(frozen=True)
class Own(Question[Nothing]):
    """Take one of the target's own steps alone: see own_steps.py."""

    case: str
    stress_input: str
    shipped: Side
    do, answer = "own", Nothing


# results and times ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweepEntry(Record):
    """One configuration of one case."""

    bundle: BundleRef
    case: str
    choice: str
    own: bool | None = field(default=None, metadata=OPTIONAL)  # whether it is of the file's own list


@dataclass(frozen=True)
class SweptEntry(Record):
    """What was found of it."""

    bundle: str  # id
    case: str
    choice: str
    own: bool | None = field(default=None, metadata=OPTIONAL)
    problem: str = field(kw_only=True)  # why it is not right; empty: nothing was found wrong
    ms: tuple[float, ...] = field(kw_only=True)  # samples; none where it could not be timed
    check: JsonObject | None = field(default=None, metadata=OPTIONAL)  # how its results compare with the reference
    finalist: bool = field(default=False, metadata=OPTIONAL)  # timed side by side with the best of its case


@dataclass(frozen=True)
class Swept(Record):
    entries: tuple[SweptEntry, ...]


@dataclass(frozen=True)
class Sweep(Question[Swept]):
    """Check and time configurations of trusted bundles; time the best ones again."""

    entries: tuple[SweepEntry, ...]
    do, answer = "sweep", Swept


@dataclass(frozen=True)
class OfCandidate(Against, Question[Judgement]):
    """A question of a candidate, whose plans are chosen by the judge."""

    candidate: Whole

    @classmethod
    def of(cls, candidate: Whole, against: Against) -> Self:
        return cls(**vars(against), candidate=candidate)


@dataclass(frozen=True)
class Look(OfCandidate):
    """Take a candidate's public cases through smoke and quick time."""

    do = "look"


@dataclass(frozen=True)
class Judge(OfCandidate):
    """Take a candidate through smoke, quick time, numerics and time."""

    do = "judge"


@dataclass(frozen=True)
class Confirm(Against, Question[Judgement]):
    """Check and time a winner again, with new seeds."""

    candidate: Side
    do = "confirm"

    @classmethod
    def of(cls, candidate: Side, against: Against) -> Self:
        return cls(**vars(against), candidate=candidate)


@dataclass(frozen=True)
class Timed(Record):
    times: dict[str, dict[str, tuple[float, ...]]]  # case -> side -> ms
    # case -> why the reference was not compiled; None: nobody asked for it
    uncompiled: dict[str, str] | None = field(default=None, metadata=OPTIONAL)
    # library -> case -> why it has no time there, or why its results would not be accepted
    libraries: dict[str, dict[str, str]] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Final(Question[Timed]):
    """Time every side and every library on the given cases, in one session each."""

    sides: dict[str, Side]
    cases: tuple[str, ...]
    compile_reference: bool | None = field(default=None, metadata=OPTIONAL)
    do, answer = "final", Timed


@dataclass(frozen=True)
class Race(Question[Judgement]):
    """Run a sanitized build, or (`stress`) the plain one many times."""

    bundle: BundleRef
    case: str
    choice: str
    stress: bool
    sanitized: bool | None = field(default=None, metadata=OPTIONAL)
    unguarded: bool = field(default=False, metadata=OPTIONAL)  # no guard zones: a memory checker takes their place
    do = "race"


@dataclass(frozen=True)
class IdleLaunches(Record):
    idle: tuple[str, ...]  # names of kernels


@dataclass(frozen=True)
class Idle(Question[IdleLaunches]):
    """Find the launches that a candidate's outputs do not need, if there are more than in the shipped kernel."""

    case: str
    candidate: Side
    shipped: Side
    do, answer = "idle", IdleLaunches


@dataclass(frozen=True)
class Numerics(Question[Judgement]):
    """Check the results of one configuration of every case, on new inputs."""

    candidate: Side
    stage: str
    do = "numerics"


@dataclass(frozen=True)
class Difference(Record):
    differs: str  # case; empty: none


@dataclass(frozen=True)
class SameBits(Question[Difference]):
    """Find the first public case in which the outputs of two sides differ."""

    public: tuple[str, ...]
    candidate: Side
    own: Side
    do, answer = "same_bits", Difference


@dataclass(frozen=True)
class Check(Question[Judgement]):
    """Run a candidate's source on the small cases, in Triton's interpreter."""

    source: str
    foreign: bool = False  # untrusted code: it may have killed itself
    seconds: float = CHECK_SECONDS
    kernels: tuple[str, ...] = ()  # that the candidate's plans launch in public cases; empty: not given
    do = "check"


# profiles -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recording(Record):
    """What one launch of an instrumented build recorded: artefacts, and counts of blocks."""

    headers: str
    records: str
    blocks: int
    fetched: int


@dataclass(frozen=True)
class Recorded(Record):
    """Launches of an instrumented build."""

    repeats: tuple[Recording, ...]
    block_bytes: int
    warps: int
    same_outputs: bool  # as those of the plain build
    plain_ms: tuple[float, ...]
    instrumented_ms: tuple[float, ...]


@dataclass(frozen=True)
class Timeline(Question[Recorded | Problem]):
    """Launch an instrumented build and fetch what it recorded."""

    case: str
    kernel: str  # key of the instrumented build
    repeats: int
    blocks: int  # most whose records are fetched; of the others only headers
    shelf: str  # content store that gets the artefacts; a judge elsewhere takes its own
    instrumented: PlanRef
    plain: PlanRef
    do, answer = "timeline", Recorded | Problem


PEAK_MARGIN = 1.1  # factor by which a kernel may beat the measured peaks before it is below the floor


@dataclass(frozen=True)
class PeakRates(Record):
    """The best measured rates of a GPU for a case's types."""

    flops: float  # FLOP/s
    moved: float  # bytes/s of device memory, read and written together


@dataclass(frozen=True)
class Peaks(Question[PeakRates | Problem]):
    """Tell what this GPU reaches with the types of a case."""

    case: str
    do, answer = "peaks", PeakRates | Problem


@dataclass(frozen=True)
class Counted(Record):
    """What Nsight Compute says of one launch."""

    tool: str  # "ncu 2025.3.1"
    facts: JsonObject  # of its report; who asked knows what they mean


@dataclass(frozen=True)
class Count(Question[Counted | Problem]):
    """Have the GPU's counters read in the first launch of a kernel. Of a judge elsewhere alone."""

    case: str
    kernel: str  # key
    plain: PlanRef
    do, answer = "counters", Counted | Problem


_PROCESS = (Open, Hello, Own)
_ALL = (*_PROCESS, Sweep, Look, Judge, Confirm, Final, Race, Idle, Numerics, SameBits, Check, Timeline, Peaks, Count)
KINDS: dict[str, type[Question[Any]]] = {kind.do: kind for kind in _ALL}


def read(message: JsonObject) -> Question[Any]:
    """Return the question of a message `{"do": COMMAND, ...fields}`. Raises Malformed, and KeyError for no command."""
    fields = {k: v for k, v in message.items() if k != "do"}
    return json_codec.decoded(KINDS[str(message["do"])], fields)
