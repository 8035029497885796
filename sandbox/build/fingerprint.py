"""What a source would launch, traced and not compiled: sources with one fingerprint are the same code.

A build is named by TTGIR, options, architecture and compiler (`kernel_key`), and kept under that name: equal names are
one build. So launches that are equal in these and in their plans need no compiler to be told the same, which takes
seconds. Names of kernels stand in TTGIR: what differs here may still be the same code, which only builds show.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.trace_and_compile import Cases, Traced, TracedPlan
from pgo_agent.sandbox.bundle import decode
from pgo_agent.sandbox.bundle.store import canonical
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.json_codec import JsonObject


@dataclass(frozen=True)
class Fingerprint:
    launches: dict[str, tuple[str, ...]]  # case -> a hash for each configuration, sorted; empty: it was not traced
    kernels: int = 0  # that are launched

    @property
    def configurations(self) -> int:
        return sum(map(len, self.launches.values()))


UNKNOWN = Fingerprint({})


@dataclass(frozen=True)
class CaseLaunches:
    """What a source does in one case."""

    parameters: JsonObject  # of the case
    inputs: JsonObject  # that the launcher was given; empty where it failed
    hashes: tuple[str, ...]  # one for each configuration, sorted
    error: str = ""  # of the first configuration that failed; empty: none did


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


def by_case(builder: Builder, source: str, limit: int) -> dict[str, CaseLaunches]:
    """Return what a source does in all public cases, at most `limit` configurations of each; nothing if it failed
    whole.

    Raises what `Builder.build` raises for untrusted code, and Killed.
    """
    builder.box.admit(untrusted=True)
    place = builder.box, builder.contents, builder.target, builder.device
    traced = trace_and_compile.trace(*place, source, {"CASES": None}, limit, sample=True, untrusted=True)
    if "error" in traced:
        return {}
    try:
        return dict(_cases(builder, traced))
    except (BadBundle, KeyError, TypeError, AttributeError, ValueError):
        return {}  # the tracer's answer is malformed: the build says so


def _cases(builder: Builder, traced: Traced) -> Iterator[tuple[str, CaseLaunches]]:
    keys = builder.keys(traced)
    for case, entries in traced["traced"]["CASES"].items():
        failed = next((str(e["error"]["message"]) for e in entries if "error" in e), "")
        whole = [e for e in entries if "plan" in e]
        inputs = {decode.kernel_name(n): x for n, x in whole[0]["plan"]["inputs"].items()} if whole else {}
        for x in inputs.values():
            decode.value(x)
        hashes = tuple(sorted(_hash(e, keys) for e in whole))
        yield case, CaseLaunches(traced["described"]["sets"]["CASES"][case], inputs, hashes, failed)


def _read(builder: Builder, traced: Traced) -> Fingerprint:
    keys = builder.keys(traced)
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
