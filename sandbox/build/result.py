"""What became of a build: a bundle in the content store, what is known of its kernels without running them, and what
failed. The record keeps it as JSON, and gives it back as itself."""

from dataclasses import dataclass, field, replace

from pgo_agent.sandbox.bundle.documents import Config, Described, Static, merged
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.call_difference import Differences, together
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.json_codec import OPTIONAL, Record


@dataclass(frozen=True)
class Failure(Record):
    kind: str  # refused, raised, build_error, timeout, rejected, killed
    message: str
    line: int | None = None  # of the candidate's file
    case: str = ""


@dataclass(frozen=True)
class Choice(Record):
    """One configuration of one case: a plan of the bundle."""

    label: str
    config: Config  # parameters of the launch site that was varied
    kernels: tuple[str, ...]  # keys of what it launches
    plan_id: str  # identity of (code, plan)


@dataclass(frozen=True)
class Built(Record):
    bundle: str  # id; empty when nothing could be built
    described: Described
    choices: dict[str, tuple[Choice, ...]]  # case -> configurations that built
    statics: dict[str, Static]  # kernel key -> static profile
    codes: dict[str, str]  # kernel key -> code id
    failures: tuple[Failure, ...]  # of configurations, or of the whole
    seconds: dict[str, float] = field(default_factory=dict)  # wall clock of trace and compile
    replaced: dict[str, str] = field(default_factory=dict)  # of a TTGIR candidate: see Builder._replaced
    listed: dict[str, int] = field(default_factory=dict)  # case -> configurations that the file has, built or not
    # case -> what kernel() does differently when it is called again; None: it was not called again
    again: Differences | None = field(default=None, metadata=OPTIONAL)
    stages: tuple[Evidence, ...] = ()  # what the gate's stages without a GPU say of it, in the order of asking
    whole: bool = True  # whether the held-out cases were built, too

    @property
    def ok(self) -> bool:
        return bool(self.bundle)

    def choice(self, case: str, label: str) -> Choice:
        """Return the configuration of a case that is called so. Raises KeyError where there is none."""
        return {c.label: c for c in self.choices[case]}[label]

    def statics_of(self, choice: Choice) -> tuple[Static, ...]:
        """Return the static profiles of what a configuration launches, in order."""
        return tuple(self.statics[k] for k in choice.kernels)

    def codes_of(self, choice: Choice) -> tuple[str, ...]:
        """Return the code ids of what a configuration launches, in order."""
        return tuple(self.codes[k] for k in choice.kernels)


def nothing(failure: Failure) -> Built:
    return Built("", {}, {}, {}, {}, (failure,))


def joined(contents: ContentStore, first: Built, more: Built) -> Built:
    """Return two builds of one source on different cases, as one with a bundle of both. Seconds add up."""
    if not more.ok:
        return replace(first, failures=(*first.failures, *more.failures))
    ours, theirs = contents.manifest(first.bundle), contents.manifest(more.bundle)
    return replace(
        first,
        bundle=contents.put_bundle(merged(ours, theirs)),
        described=more.described,  # held-out cases are hidden from a first build
        choices=first.choices | more.choices,
        statics=first.statics | more.statics,
        codes=first.codes | more.codes,
        listed=first.listed | more.listed,
        again=together(first.again, more.again),
        failures=(*first.failures, *more.failures),
        seconds={k: first.seconds.get(k, 0.0) + more.seconds.get(k, 0.0) for k in first.seconds | more.seconds},
    )
