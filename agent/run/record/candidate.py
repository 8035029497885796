"""A candidate as recorded, from its proposal to its verdict: the proposal, its build and the result."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.gate.reason import Reason
from pgo_agent.sandbox.json_codec import JsonObject

USER = "user"  # the proposer of what a person or an agent submitted, whoever its author is


@dataclass(frozen=True, kw_only=True)
class NewCandidate:
    """A proposal with its author and parent, for a generation."""

    id: str
    parent: str  # what it is made of: a candidate or `shipped`
    kind: str  # launch, source, gluon or ttgir
    move: str
    rationale: str
    author: str  # who wrote it: see provenance.py
    source: str
    cites: Bottleneck | None = None  # what in its parent's profile its move answers
    proposer: str | None = None  # whose place in its generation it takes: see bandit.py

    @classmethod
    def of(cls, p: Proposal, author: str, parent: str) -> "NewCandidate":
        """Build a candidate from a proposal; it takes no place yet."""
        copied = {"kind": p.kind, "move": p.move, "rationale": p.rationale, "source": p.source}
        return cls(id=candidate_id(p.source), author=author, parent=parent, cites=p.cites, **copied)


@dataclass(frozen=True, kw_only=True)
class Candidate(NewCandidate):
    """A candidate of a run, with what is known of it so far."""

    run: str
    generation: int
    position: int
    bundle: str | None  # of its build; empty: nothing could be built; None until it is built
    verdict: str | None
    stage: str | None
    why: Reason | None  # for its verdict
    speedup: float | None
    seconds: float | None
    against: str | None  # what it was measured against, the incumbent then: a candidate or `shipped`
    read_build: Callable[[], Built | None] = field(repr=False, compare=False)  # its record holds 40 kB of it

    @property
    def by(self) -> str:
        """Return who is named for it: its proposer, or the author of what was submitted."""
        return self.author if self.proposer in (None, USER) else str(self.proposer)

    @property
    def reason(self) -> str | None:
        """Return the reason of its verdict, for a person."""
        return self.why.for_person() if self.why is not None else None

    @property
    def build_key(self) -> "BuildKey":
        return BuildKey(str(self.bundle), self.id, self.read_build)

    @property
    def has_bundle(self) -> bool:
        """Whether it was built with success."""
        return bool(self.bundle)

    @property
    def built(self) -> Built | None:
        """Return its build as recorded now; None before it is built."""
        return self.read_build()

    @property
    def build(self) -> Built:
        """Return its build. Raises RuntimeError before it is built."""
        return self.build_key.build

    def as_json(self) -> JsonObject:
        """Return its fields as plain JSON values, by the names of their columns in the record."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("bundle", "read_build")}
        built = self.built
        nested = {"built": built and built.as_json(), "cites": self.cites and self.cites.as_json()}
        return plain | nested | {"reason": self.reason, "why": None if self.why is None else self.why.as_json()}


@dataclass(frozen=True)
class BuildKey:
    """By what a cache knows the build of a candidate: another build has another bundle.

    It holds no candidate: caches of a whole night would keep its text, as it was before its verdict and after.
    """

    bundle: str
    candidate: str = field(compare=False)
    read_build: Callable[[], Built | None] = field(repr=False, compare=False)

    @property
    def build(self) -> Built:
        """Return the build. Raises RuntimeError before there is one."""
        built = self.read_build()
        if built is None:
            raise RuntimeError(f"candidate {self.candidate} is asked for its build before it is built")
        return built


def candidate_id(source: str) -> str:
    """Return the id of a candidate: a hash of its text, the same in every run."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]
