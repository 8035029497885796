"""What a run tells while it goes on: a frozen dataclass for each kind of event, in one feed.

`--json` prints the feed, the progress display and sessions read it, also from another process. Each event is one JSON
object: its type, its run, then its fields. Relies on `json_codec.py`; emits nothing (`context.py` does).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.agent.run.regression import Result
from pgo_agent.sandbox.json_codec import OPTIONAL, JsonObject, Malformed, Record, decoded


class Told(Record):
    """What is told, whoever tells it."""

    type: ClassVar[str]


@dataclass(frozen=True)
class Event(Record):
    """What a run tells."""

    told: Told
    run: str = ""  # empty: it is of no run
    workspace: str = ""  # of the process that tells it, where several make runs

    @property
    def type(self) -> str:
        return self.told.type

    def as_json(self) -> JsonObject:
        about = {"run": self.run} if self.run else {}
        where = {"workspace": self.workspace} if self.workspace else {}
        return {"type": self.type, **about, **self.told.as_json(), **where}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `as_json` gave. Raises Malformed."""
        try:
            kind = KINDS[value["type"]]
        except (KeyError, TypeError):
            raise Malformed(f"{value!r:.60} is no event") from None
        told = {k: v for k, v in value.items() if k not in ("type", "run")}
        where = "" if "workspace" in kind.__annotations__ else told.pop("workspace", "")
        return cls(decoded(kind, told), value.get("run", ""), where)


Emit = Callable[[Event], None]


def made(kind: str, run: str, fields: dict[str, object]) -> Event:
    """Return an event of a kind by its name. Raises KeyError and TypeError for what is none."""
    return Event(KINDS[kind](**fields), run)


@dataclass(frozen=True)
class RunStarted(Told):
    type = "run.started"
    target: str
    device: str
    gpu: bool  # whether anything is measured
    gpus: tuple[dict[str, str], ...]
    judge: str
    sandbox: str
    settings: JsonObject
    workspace: str


@dataclass(frozen=True)
class RunWaiting(Told):
    type = "run.waiting"
    request: str
    reply: str
    why: str
    how: str = field(default="", metadata=OPTIONAL)  # a command for the machine of the GPU


@dataclass(frozen=True)
class RunCompleted(Told):
    type = "run.completed"
    state: str
    summary: JsonObject
    gpu_seconds: float


@dataclass(frozen=True)
class Error(Told):
    type = "error"
    message: str
    hint: str


@dataclass(frozen=True)
class Phase(Told):
    type = "phase"
    phase: str = field(default="", metadata=OPTIONAL)
    doing: str = field(kw_only=True)


@dataclass(frozen=True)
class Progressed(Told):
    type = "progress"
    said: str


@dataclass(frozen=True)
class Note(Told):
    type = "note"
    text: str


@dataclass(frozen=True)
class Warned(Told):
    type = "warning"
    text: str


@dataclass(frozen=True)
class SteerTaken(Told):
    type = "steer.taken"
    n: int
    kind: str
    outcome: str


@dataclass(frozen=True)
class BaselineCompleted(Told):
    type = "baseline.completed"
    points: int
    gpu_seconds: float


@dataclass(frozen=True)
class ProfileCompleted(Told):
    type = "profile.completed"
    candidate: str
    case: str
    bound: str
    bottleneck: Bottleneck | None
    passes: dict[str, str]  # name -> why it was not taken; empty: it was
    seconds: float
    author: str


@dataclass(frozen=True)
class SearchRestarted(Told):
    type = "search.restarted"
    generation: int
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class PlacesShared(Told):
    type = "places.shared"
    generation: int
    places: dict[str, int]  # proposer -> places
    worth: dict[str, float]


@dataclass(frozen=True)
class CandidateProposed(Told):
    type = "candidate.proposed"
    candidate: str
    generation: int
    kind: str
    move: str
    rationale: str
    cites: Bottleneck | None
    proposer: str | None
    author: str


@dataclass(frozen=True)
class CandidateVerdict(Told):
    type = "candidate.verdict"
    candidate: str
    generation: int
    kind: str
    move: str
    verdict: str
    stage: str
    reason: str
    speedup: float | None
    seconds: float
    gpu_seconds: float
    stages: tuple[JsonObject, ...]
    coverage: JsonObject


@dataclass(frozen=True)
class RevisionsCompared(Told):
    type = "check.against"
    result: Result


@dataclass(frozen=True)
class GenerationCompleted(Told):
    type = "generation.completed"
    generation: int
    incumbent: str
    judged: int


@dataclass(frozen=True)
class ModelPrompted(Told):
    type = "model.prompted"
    model: str
    tokens: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class ModelReplied(Told):
    type = "model.replied"
    model: str
    sources: int
    remark: str
    mends: str
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float


@dataclass(frozen=True)
class ModelWaiting(Told):
    type = "model.waiting"
    role: str
    request: str
    reply: str


@dataclass(frozen=True)
class ModelSpent(Told):
    type = "model.spent"
    role: str
    tokens: int
    money: float | None
    of_tokens: int | None
    of_money: float | None


@dataclass(frozen=True)
class ModelExhausted(Told):
    type = "model.exhausted"
    role: str
    model: str
    text: str


@dataclass(frozen=True)
class RoleReplied(Told):
    type = "role.replied"
    role: str
    model: str
    remark: str
    seconds: float
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True)
class RoleFallback(Told):
    type = "role.fallback"
    role: str
    model: str
    about: str
    text: str


@dataclass(frozen=True)
class JudgeWaiting(Told):
    type = "judge.waiting"
    folder: str
    requests: int
    how: str


@dataclass(frozen=True)
class GpuWaiting(Told):
    type = "gpu.waiting"
    index: str
    uuid: str
    holder: str


@dataclass(frozen=True)
class GpuQuarantined(Told):
    type = "gpu.quarantined"
    index: str
    uuid: str
    why: str
    left: int


KINDS: dict[str, type[Told]] = {kind.type: kind for kind in Told.__subclasses__()}
