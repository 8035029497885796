"""What a source would launch, traced and not compiled: sources with one fingerprint are the same code.

A build is named by TTGIR, options, architecture and compiler (`kernel_key`), and kept under that name: equal names are
one build. So launches that are equal in these and in their plans need no compiler to be told the same, which takes
seconds. Names of kernels stand in TTGIR: what differs here may still be the same code, which only builds show.
"""

import hashlib
from dataclasses import dataclass

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.trace_and_compile import Cases, Traced, TracedPlan
from pgo_agent.sandbox.bundle.store import canonical


@dataclass(frozen=True)
class Fingerprint:
    launches: dict[str, tuple[str, ...]]  # case -> a hash for each configuration, sorted; empty: it was not traced
    kernels: int = 0  # that are launched

    @property
    def configurations(self) -> int:
        return sum(map(len, self.launches.values()))


UNKNOWN = Fingerprint({})


def taken(builder: Builder, source: str, cases: Cases, untrusted: bool) -> Fingerprint:
    """Return the fingerprint of a source on cases, all configurations of them; UNKNOWN where a part is not traced.

    Raises what `Builder.build` raises, and Killed.
    """
    builder.box.admit(untrusted)
    place = builder.box, builder.contents, builder.target, builder.device
    traced = trace_and_compile.trace(*place, source, cases, None)
    if "error" in traced:
        return UNKNOWN
    try:
        return _read(builder, traced)
    except (KeyError, TypeError, AttributeError, ValueError):
        return UNKNOWN  # the tracer's answer is malformed: the build says so


def _read(builder: Builder, traced: Traced) -> Fingerprint:
    keys = {n: builder.key(traced["texts"][n], k["options"]) for n, k in traced["kernels"].items()}
    launches = dict[str, tuple[str, ...]]()
    for section, by_case in traced["traced"].items():
        for case, entries in by_case.items():
            if any("error" in e for e in entries):
                return UNKNOWN
            launches[f"{section}/{case}"] = tuple(sorted(_hash(e, keys) for e in entries))
    return Fingerprint(launches, len(set(keys.values())))


def _hash(entry: TracedPlan, keys: dict[str, str]) -> str:
    plan = entry["plan"]
    steps = [{**s, "kernel": keys[s["kernel"]]} if "kernel" in s else s for s in plan["steps"]]
    return hashlib.sha256(canonical({**plan, "steps": steps})).hexdigest()
