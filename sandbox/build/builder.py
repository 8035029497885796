"""Source text -> bundle: runs the tracer and the compiler in the box and assembles what they leave as checked data.

The tracer's answer is untrusted: kernel keys are computed anew from the TTGIR text, plans go through the bundle's
checks before anybody else sees them. A candidate's failure is a value (`Failure`), never an exception.
"""

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.build import configurations, repeated_calls, shared_buffers, trace_and_compile, ttgir_override
from pgo_agent.sandbox.build.result import Built, Failure, nothing
from pgo_agent.sandbox.build.trace_and_compile import Cases, KnownConfigs, Traced, TracedError, TracedPlan
from pgo_agent.sandbox.build.versions import kernel_key, triton_version
from pgo_agent.sandbox.bundle import decode, schema, validate
from pgo_agent.sandbox.bundle.documents import (
    BuildDocument,
    Config,
    Described,
    Manifest,
    Options,
    PlanDocument,
    Static,
)
from pgo_agent.sandbox.bundle.store import ContentStore, room
from pgo_agent.sandbox.compiler import ptxas
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle, Killed
from pgo_agent.sandbox.gate.call_difference import Differences
from pgo_agent.sandbox.isolation.box import Box
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.threads import threads
from pgo_agent.sandbox.ttgir import triton_parser

MESSAGE_LIMIT = 8192  # characters of what a tracer says went wrong; its own words are fewer


class _FirstUnfit(Exception):
    """The first configurations of several autotuned launches do not all fit the device."""


@dataclass(frozen=True)
class Builder:
    """Builds candidates of one target for one device."""

    target: Target
    device: Device
    box: Box
    contents: ContentStore
    cores: int = os.cpu_count() or 1
    report: Callable[[str], None] = trace_and_compile.silent  # how far a long compilation is
    known: KnownConfigs = field(default_factory=dict, hash=False)  # for launches that a source leaves as they are
    varied: frozenset[str] | None = None  # kernels that have more than the best of these; None: all

    def build(
        self,
        source: str,
        cases: Cases,
        limit: int | None,
        workers: int = 1,
        untrusted: bool = False,
        ttgir: str = "",
        sample: bool = False,
        replaced: str = "",
        again: bool = False,
    ) -> Built:
        """Trace `source` on the cases and compile what it launches. `limit`: most configurations of a case.
        `sample`: of a longer list they are taken from the whole of it.

        `workers`: processes that trace or compile at a time. `ttgir`: a text that takes the place of one of its
        kernels' own (`ttgir_override.py`). `replaced`: the key of that one, by a build of other cases; these may not
        launch it. `again`: call kernel() again for each case, to see whether it does the same (`repeated_calls.py`).

        Raises EnvironmentFault for `untrusted` code (written by a model, taken from elsewhere) where no sandbox works,
        and where the disk is full; Killed when somebody kills the tracer or the compiler again and again. `untrusted`
        code may have done that itself, and must not stop a run by it: it gets a Failure of kind `killed`.
        """
        self.box.admit(untrusted)
        try:
            built = self._build(source, cases, limit, workers, (ttgir, replaced), sample, untrusted, again)
        except Killed as e:
            if not untrusted:
                raise
            return nothing(Failure("killed", e.message))
        if built.failures:
            room(self.contents.root)
        return built

    def _build(
        self,
        source: str,
        cases: Cases,
        limit: int | None,
        workers: int,
        ttgir: tuple[str, str],
        sample: bool,
        untrusted: bool,
        again: bool,
    ) -> Built:
        parts = _shared(cases, max(1, workers // 2))  # more tracers importing torch at once hinder one another

        def trace(part: Cases, again: bool, full: bool) -> Traced:
            where = (*self._place(), source, part, limit)
            return trace_and_compile.trace(
                *where,
                sample=sample,
                untrusted=untrusted,
                again=again,
                full=full,
                report=self.report,
                known=self.known,
                varied=self.varied,
            )

        def assembled(full: bool) -> Built:
            with threads(workers) as pool:
                first = [pool.submit(trace, part, False, full) for part in parts]
                repeated = [pool.submit(trace, cases, True, full)] if again else []
                traced, later = [f.result() for f in first], [f.result() for f in repeated]
            return self._assemble(traced, workers, *ttgir, later, full)

        try:
            return assembled(full=False)
        except _FirstUnfit:
            return assembled(full=True)

    def key(self, ttgir: bytes, options: Mapping[str, Any]) -> str:
        """Return what a build of this text by this builder is called."""
        return kernel_key(ttgir, options, self.device.arch, triton_version(self.box.python))

    def keys(self, traced: Traced) -> dict[str, str]:
        """Return what builds of a trace's kernels are called, by the tracer's own names. Raises KeyError, TypeError."""
        return {n: self.key(traced["texts"][n], k["options"]) for n, k in traced["kernels"].items()}

    def first_fits(self, traced: Traced) -> bool:
        """Return `configurations.first_fits` of a trace, by the builds that the content store has. Raises as `keys`."""
        builds = {n: self.contents.build(key) for n, key in self.keys(traced).items()}
        return configurations.first_fits(traced, {n: self._problem(b) if b else "" for n, b in builds.items()})

    def _place(self) -> tuple[Box, ContentStore, Target, Device]:
        return self.box, self.contents, self.target, self.device

    def _assemble(
        self,
        parts: list[Traced],
        jobs: int,
        ttgir: str,
        replaced: str = "",
        again: Sequence[Traced] = (),
        full: bool = False,
    ) -> Built:
        """Return the build of what was traced. Raises _FirstUnfit where a `full` tracer is to be asked."""
        failed = next((t["error"] for t in parts if "error" in t), None)
        if failed:
            return nothing(Failure(failed["kind"], str(failed["message"]), _line(failed)))
        try:
            exchanged = self._exchange(parts, ttgir, replaced) if ttgir else None
            repeated = [self._different(parts, later) for later in again]
            built = replace(self._assembled(parts, jobs, full or bool(ttgir)), again=repeated[0] if repeated else None)
            return (
                replace(built, replaced=self._replaced(built.bundle, *exchanged)) if exchanged and built.ok else built
            )
        except ttgir_override.Refused as e:
            return nothing(Failure(e.kind, e.message, e.line))
        except (BadBundle, KeyError, TypeError, AttributeError, ValueError) as e:
            reason = (
                str(e) if isinstance(e, BadBundle) else f"the tracer's answer is malformed ({type(e).__name__}: {e})"
            )
            return nothing(Failure("rejected", reason))

    def _different(self, parts: Sequence[Traced], again: Traced) -> Differences:
        """Return case -> what kernel() does differently when it is called again."""
        keys = {} if "error" in again else self.keys(again)
        left = [repeated_calls.Left(p, self.keys(p)) for p in parts]
        return repeated_calls.differences(left, repeated_calls.Left(again, keys))

    def _exchange(self, parts: list[Traced], ttgir: str, replaced: str) -> tuple[str, str] | None:
        """Put a candidate's TTGIR into the traced parts; return the keys of the kernel's own build and of the new."""
        ask = partial(triton_parser.ask, self.box, self.contents, self.device.arch)
        return ttgir_override.exchange(parts, ttgir, self.key, ask, replaced)

    def _replaced(self, bundle: str, own_key: str, new: str) -> dict[str, str]:
        """Return what was replaced by what, and the bundle as it is without that.

        A kernel whose own text does not compile has neither code nor bundle to compare with.
        """
        old, by = self.contents.build(own_key) or {}, self.contents.build(new) or {}
        codes = {"code_id": old.get("code_id", ""), "new_code_id": by.get("code_id", "-")}
        own = {"key": own_key, "ttgir": old.get("kernel", {}).get("files", {}).get("ttgir", "")}
        result = {**own, "by": new, **codes}
        return result | {"bundle": self._without(bundle, own_key, new) if "kernel" in old else ""}

    def _without(self, bundle: str, own_key: str, new: str) -> str:
        """Return the bundle with the kernel's own build in place of the new one."""
        manifest = json.loads(
            json.dumps(self.contents.manifest(bundle)).replace(f'"kernel": "{new}"', f'"kernel": "{own_key}"')
        )
        manifest["kernels"][own_key] = (self.contents.build(own_key) or {})["kernel"]
        manifest["kernels"].pop(new, None)
        return self.contents.put_bundle(manifest)

    def _assembled(self, parts: list[Traced], jobs: int, full: bool) -> Built:
        names, texts, options = self._kernels(parts)
        compiled = trace_and_compile.compile_missing(
            self.box, self.contents, self.device, texts, options, jobs, self.report
        )
        seconds = {"trace": max(p["took"] for p in parts), "compile": compiled}
        builds = {k: self.contents.build(k) or {} for k in texts}
        problems = {theirs: self._problem(builds[key]) for theirs, key in names.items()}
        if not full and not all(configurations.first_fits(part, problems) for part in parts):
            raise _FirstUnfit
        plans: dict[str, dict[str, PlanDocument]] = {}
        configs: dict[tuple[str, str], Config] = {}
        failures: list[Failure] = []
        for part in parts:
            for kind, traced in part["traced"].items():
                for case, entries in traced.items():
                    failures += self._choose(f"{kind}/{case}", entries, names, builds, plans, configs)
        described: Described = json_codec.from_json(Described, parts[0]["described"])
        if not plans:
            return Built("", described, {}, {}, {}, tuple(failures), seconds)
        launched = {
            key for choices in plans.values() for plan in choices.values() for key in configurations.launched(plan)
        }
        kernels = {k: builds[k]["kernel"] for k in launched}
        manifest: Manifest = {"schema": schema.VERSION, "kernels": kernels, "plans": plans}
        bundle = self.contents.put_bundle(manifest)
        validate.load(self.contents.bundle(bundle), self.contents.artefacts, limits_of(self.device))
        codes = {k: builds[k]["code_id"] for k in launched}
        choices = {
            case: configurations.choices(case, labelled, configs, manifest, codes) for case, labelled in plans.items()
        }
        statics = {k: _static(builds[k]) for k in launched}
        listed = {case: n for part in parts for case, n in configurations.counts(part).items()}
        return Built(bundle, described, choices, statics, codes, tuple(failures), seconds, listed=listed)

    def _kernels(self, parts: list[Traced]) -> tuple[dict[str, str], dict[str, bytes], dict[str, Options]]:
        """Return the tracer's keys -> ours, and TTGIR and options by our keys. Raises BadBundle for a flag not
        allowed."""
        names, texts, options = {}, {}, {}
        for part in parts:
            for theirs, kernel in part["kernels"].items():
                ptxas.flags(kernel["options"].get("ptx_options"))
                key = self.key(part["texts"][theirs], kernel["options"])
                names[theirs], texts[key], options[key] = key, part["texts"][theirs], kernel["options"]
        return names, texts, options

    def _choose(
        self,
        case: str,
        entries: list[TracedPlan],
        names: dict[str, str],
        builds: Mapping[str, BuildDocument],
        plans: dict[str, dict[str, PlanDocument]],
        configs: dict[tuple[str, str], Config],
    ) -> list[Failure]:
        """Add the configurations of a case that built and fit the device; return the failures of the others."""
        failures = [] if entries else [Failure("rejected", "the tracer's answer holds no configuration", None, case)]
        for entry in entries:
            label, config = configurations.label(
                entry["configs"], entries, configurations.several(entry, names, builds)
            )
            while (case, label) in configs:  # launches of one kernel that differ in their arguments only
                label = decode.word(f"{label} again", "choice")  # which ends this before long
            if "error" in entry:
                e = entry["error"]
                prefix = f"{label}: " if len(entries) > 1 else ""
                message = f"{prefix}{e['type']}: {e['message']}"[:MESSAGE_LIMIT]
                failures.append(Failure(str(e["kind"]), message, _line(e), case))
                continue
            steps = [configurations.named(s, names) for s in entry["plan"]["steps"]]
            broken = next((p for s in steps if "kernel" in s and (p := self._problem(builds[s["kernel"]]))), "")
            if broken:
                failures.append(Failure("build_error", f"{label}: {broken}", None, case))
                continue
            plans.setdefault(case, {})[label] = {**entry["plan"], "steps": steps}
            configs[case, label] = config
        return failures

    def _problem(self, build: BuildDocument) -> str:
        """Return why a kernel cannot be launched on the device; empty when it can."""
        if "error" in build:
            return str(build["error"])
        shared, most = build["kernel"]["shared"], self.device.smem_block
        if shared <= most:
            return ""
        buffers = shared_buffers.listed(self.contents.get(build["kernel"]["files"]["ttgir"], "ttgir").decode())
        return f"error: out of shared memory: {shared} bytes, the device has {most}{f'; {buffers}' if buffers else ''}"


def _shared(cases: Cases, workers: int) -> list[Cases]:
    """Return the cases in at most `workers` parts of the same size; in one as long as their names are not known.

    No more parts than that: every tracer first spends seconds on importing torch and triton.
    """
    if any(names is None for names in cases.values()):
        return [cases]
    pairs = [(s, n) for s, names in cases.items() for n in names or ()]
    bounds = [len(pairs) * i // workers for i in range(workers + 1)]
    cut = [pairs[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    return [{s: [n for k, n in part if k == s] for s, _ in part} for part in cut] or [cases]


def _static(build: BuildDocument) -> Static:
    kernel = build["kernel"]
    return {**build["static"], "name": kernel["name"], "num_warps": kernel["num_warps"]}


def limits_of(device: Device) -> validate.Limits:
    """Return what a bundle may ask of this device: nine tenths of its memory, a twentieth for scratch."""
    return validate.Limits(device.arch, device.smem_block, device.memory * 9 // 10, device.memory // 20)


def _line(error: TracedError) -> int | None:
    line = error.get("line")
    return line if type(line) is int else None
