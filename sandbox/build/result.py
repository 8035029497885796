"""What became of a build: a bundle in the content store, what is known of its kernels without running them, and what
failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pgo_agent.sandbox.bundle import schema
from pgo_agent.sandbox.bundle.store import ContentStore


@dataclass(frozen=True)
class Failure:
    kind: str  # refused, raised, build_error, timeout, rejected, killed
    message: str
    line: int | None = None  # of the candidate's file
    case: str = ""


@dataclass(frozen=True)
class Choice:
    """One configuration of one case: a plan of the bundle."""

    label: str
    config: dict[str, Any]  # parameters of the launch site that was varied
    kernels: tuple[str, ...]  # keys of what it launches
    plan_id: str  # identity of (code, plan)


@dataclass(frozen=True)
class Built:
    bundle: str  # id; empty when nothing could be built
    described: dict[str, Any]  # the target's cases and figures (trust it for the original only)
    choices: dict[str, tuple[Choice, ...]]  # case -> configurations that built
    statics: dict[str, dict[str, Any]]  # kernel key -> static profile
    codes: dict[str, str]  # kernel key -> code id
    failures: tuple[Failure, ...]  # of configurations, or of the whole
    seconds: dict[str, float] = field(default_factory=dict)  # wall clock of trace and compile
    replaced: dict[str, str] = field(default_factory=dict)  # of a TTGIR candidate: see Builder._replaced
    listed: dict[str, int] = field(default_factory=dict)  # case -> configurations that the file has, built or not

    @property
    def ok(self) -> bool:
        return bool(self.bundle)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Built":
        """From plain values, as `dataclasses.asdict` makes them and JSON keeps them; what is no field is left out."""
        choices = {
            c: tuple(Choice(**{**o, "kernels": tuple(o["kernels"])}) for o in os) for c, os in told["choices"].items()
        }
        failures = tuple(Failure(**f) for f in told["failures"])
        own = {f.name: told[f.name] for f in fields(cls) if f.name in told}
        return cls(**{**own, "choices": choices, "failures": failures})


def nothing(failure: Failure) -> Built:
    return Built("", {}, {}, {}, {}, (failure,))


def joined(contents: ContentStore, first: Built, more: Built) -> Built:
    """Two builds of one source on different cases, as one with a bundle of both. Seconds add up."""
    if not more.ok:
        return replace(first, failures=(*first.failures, *more.failures))
    ours, theirs = contents.manifest(first.bundle), contents.manifest(more.bundle)
    both = {k: ours[k] | theirs[k] for k in ("kernels", "plans")}
    return replace(
        first,
        bundle=contents.put_bundle({"schema": schema.VERSION, **both}),
        choices=first.choices | more.choices,
        statics=first.statics | more.statics,
        codes=first.codes | more.codes,
        listed=first.listed | more.listed,
        failures=(*first.failures, *more.failures),
        seconds={k: first.seconds.get(k, 0.0) + more.seconds.get(k, 0.0) for k in first.seconds | more.seconds},
    )
