"""The target of a proof: the run's own contract, with the cases and probes of a dispatch in place of its public cases.

It writes texts and has them traced in the box; it judges nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands.dispatch.probes import Probe
from pgo_agent.sandbox import target
from pgo_agent.sandbox.build import fingerprint
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.fingerprint import CaseLaunches
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore, writing
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.target import Target

SAMPLE = 8  # configurations of a long list whose launches are compared
SECONDS = 120.0  # for the guards' time on the host


@dataclass(frozen=True)
class Place:
    """Where things are built."""

    contents: ContentStore
    box: Box
    device: Device
    cores: int


def with_cases(subject: Target, cases: Sequence[str], probes: Sequence[Probe]) -> Target:
    """Return the target with these public cases and probes as its cases, which all count alike."""
    kept = f"{{n: CASES[n] for n in {tuple(cases)!r}}}"
    lines = [f"CASES = {{**{kept}, {', '.join(p.text for p in probes)}}}"]
    if "WEIGHTS" in {n for node in target.parse(subject.contract, "").body for n in target.names_of(node)}:
        lines.append("WEIGHTS = dict.fromkeys(CASES, 1.0)")
    return subject.with_more("\n".join(lines) + "\n")


def with_kernel(subject: Target, source: str) -> Target:
    """Return the target with another kernel part. `source`: a file with the run's contract, or the kernel file."""
    if subject.sidecar:
        return Target(subject.path, source, subject.contract_path, subject.contract)
    return Target(subject.path, source, subject.contract_path, source)


def launches(subject: Target, place: Place) -> dict[str, CaseLaunches]:
    """Return what the kernel launches in each public case. Raises what building untrusted code raises."""
    builder = Builder(subject, place.device, place.box, place.contents, place.cores)
    return fingerprint.by_case(builder, subject.source, SAMPLE)


def written(folder: Path, subject: Target) -> Path:
    """Write a target's files into a folder, and return the kernel file."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / subject.path.name).write_text(subject.source, encoding="utf-8")
        if subject.sidecar:
            (folder / subject.contract_path.name).write_text(subject.contract, encoding="utf-8")
    return folder / subject.path.name


def host_seconds(guards: Mapping[str, str], cases: Mapping[str, JsonObject], place: Place) -> dict[str, float]:
    """Return case -> seconds that asking the guards in turn takes on this host.

    `guards`: name -> text. Raises EnvironmentFault where they could not be timed.
    """
    with place.contents.scratch() as name:
        folder = Path(name)
        (folder / "out").mkdir(exist_ok=True)
        request = {"text": "\n".join(guards.values()), "guards": list(guards), "cases": cases}
        (folder / "request.json").write_text(json.dumps(request))
        ran = place.box.run("pgo_agent.sandbox.tracer.guard_time", folder, SECONDS)
        try:
            answer = validate.answer(folder / "out" / "result.json")
            return {c: float(str(answer[c])) for c in cases}
        except (BadBundle, KeyError, TypeError, ValueError):
            raise EnvironmentFault(f"the guards could not be timed: {ran.output[-500:]}", "try again") from None
