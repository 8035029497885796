"""The input and the result of the stages of the gate that need no GPU.

Every stage is a function (candidate, original) -> Evidence. It reads checked data (a bundle's manifest, TTGIR, static
profiles) and never runs a candidate's code. A stage that covered nothing has not passed: its evidence is undecided.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from pgo_agent.sandbox.bundle.documents import Manifest, PlanDocument, Static
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import reason as reasons
from pgo_agent.sandbox.gate.call_difference import Differences
from pgo_agent.sandbox.gate.case_variants import Launcher
from pgo_agent.sandbox.gate.coverage import NOTHING, Coverage
from pgo_agent.sandbox.gate.reason import Reason, plain
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject, Record

PASSED = "passed"  # stands for no verdict in JSON


@dataclass(frozen=True)
class Evidence(Record):
    """The result of one stage."""

    stage: str
    verdict: Verdict | None  # None: passed; UNDECIDED: could not decide, the gate goes on
    why: Reason
    seconds: float = 0.0  # wall clock
    found: Mapping[str, object] = field(default_factory=dict)  # plain JSON
    coverage: Coverage = NOTHING  # what it checked; a stage that checked nothing is undecided

    def __post_init__(self) -> None:
        if self.verdict is None and self.coverage.empty:
            object.__setattr__(self, "verdict", Verdict.UNDECIDED)
            object.__setattr__(self, "why", plain("nothing was looked at: ") + self.why)

    @property
    def reason(self) -> str:
        """Why, in one line, for a person."""
        return self.why.for_person()

    @property
    def ends(self) -> bool:
        """Whether the candidate goes no further."""
        return self.verdict not in (None, Verdict.UNDECIDED)

    def as_json(self) -> JsonObject:
        fields: JsonObject = {"stage": self.stage, "verdict": str(self.verdict or PASSED), "reason": self.reason}
        fields |= {"why": self.why.as_json(), "seconds": round(self.seconds, 3), "found": self.found}
        return fields if self.coverage == NOTHING else fields | {"coverage": self.coverage.as_json()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `as_json` gave. Raises KeyError and ValueError for anything else."""
        verdict = None if value["verdict"] == PASSED else Verdict(value["verdict"])
        why, covered = reasons.from_json(value["reason"], value.get("why")), Coverage.from_json(value.get("coverage"))
        return cls(value["stage"], verdict, why, value["seconds"], value["found"], covered)


@dataclass(frozen=True)
class Side:
    """The plans of one bundle: a candidate, or the original at a configuration for each case."""

    contents: ContentStore
    manifest: Manifest
    plans: Mapping[str, Sequence[PlanDocument]]  # case -> its plans
    statics: Mapping[str, Static]  # kernel key -> static profile
    replaced: Mapping[str, str] = field(default_factory=dict)  # of TTGIR: `ttgir`, `code_id` of the kernel's own
    in_place: tuple[str, ...] = ()  # inputs that kernel() changes, by the contract
    launcher: Launcher | None = None  # what kernel() launches for other cases can be asked
    again: Differences | None = None  # what it does differently when it is called again; None: not known

    @cached_property
    def texts(self) -> dict[str, str]:
        """The TTGIR of every kernel that a plan launches, by its key."""
        files = {k: self.manifest["kernels"][k]["files"]["ttgir"] for k in self.launched}
        return {k: self.contents.get(digest, "ttgir").decode() for k, digest in files.items()}

    @property
    def launched(self) -> list[str]:
        """Keys of all kernels that any plan launches, each once."""
        return list(dict.fromkeys(k for plans in self.plans.values() for p in plans for k in kernels(p)))


def side(
    contents: ContentStore,
    manifest: Manifest,
    replaced: Mapping[str, str] | None = None,
    in_place: tuple[str, ...] = (),
    launcher: Launcher | None = None,
    again: Differences | None = None,
) -> Side:
    """Return the side of a bundle with all its plans, and its kernels' static profiles from the content store."""
    plans = {case: list(choices.values()) for case, choices in manifest["plans"].items()}
    statics = {k: (contents.build(k) or {}).get("static", {}) for k in manifest["kernels"]}
    return Side(contents, manifest, plans, statics, replaced or {}, in_place, launcher, again)


Stage = Callable[[Side, Side], Evidence]


def kernels(plan: PlanDocument) -> list[str]:
    """Return the keys of the kernels that a plan launches, in order."""
    return [s["kernel"] for s in plan["steps"] if "kernel" in s]


def tensors(part: Any) -> Iterator[Mapping[str, Any]]:
    """Give all tensors in a part of a plan, at any depth."""
    if isinstance(part, Mapping):
        if "t" in part:
            yield part
        part = list(part.values())
    for inner in part if isinstance(part, list | tuple) else ():
        yield from tensors(inner)


def addressed(part: Any) -> Iterator[int]:
    """Give the storages whose addresses stand as numbers in a part of a plan, at any depth."""
    if isinstance(part, Mapping):
        if "address" in part:
            yield part["address"]
        part = list(part.values())
    for inner in part if isinstance(part, list | tuple) else ():
        yield from addressed(inner)


def examine(stages: Sequence[Stage], candidate: Side, original: Side) -> list[Evidence]:
    """Run the stages in order, until one ends the candidate; add the seconds of each."""
    asked: list[Evidence] = []
    for stage in stages:
        started = time.monotonic()
        evidence = stage(candidate, original)
        asked.append(replace(evidence, seconds=time.monotonic() - started))
        if evidence.ends:
            break
    return asked
