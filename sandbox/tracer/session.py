"""One tracer process at work: loads target and candidate, and turns (case, configuration) into plans."""

import itertools
import traceback
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, in_place, target
from pgo_agent.sandbox.compiler import nvidia_tools
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.tracer import (
    autotune,
    compiler_stderr,
    error_messages,
    fake_addresses,
    fake_cuda_api,
    fake_gpu,
    launches,
)
from pgo_agent.sandbox.tracer.capture_ttgir import Capture
from pgo_agent.sandbox.tracer.plan_recorder import Recorder
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

_HOST = "the value of a tensor is needed on the host, where nothing is computed while a plan is recorded"
DESCRIBED = ("CASES", "SMALL", "HELD_OUT")


class InputsFault(Exception):
    """The target's inputs() failed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"inputs() of the target, not the kernel: {why}")


class Session:
    """Installs the stand-in GPU in this process and records launchers on it."""

    def __init__(self, device: str, contract: Path, candidate: Path, full: bool, located: bool = False) -> None:
        self.refusals, self.addresses = fake_cuda_api.Refusals(), fake_addresses.Addresses()
        self.refusals.file = str(candidate)
        self.capture = Capture(full, located, self.refusals.refuse)
        self.recorder = Recorder(self.refusals, self.addresses)
        self.sites = autotune.Sites(self.recorder.steps)
        self.listed = 0  # configurations of the case that was traced last
        self.device = devices.find(device)
        nvidia_tools.find(self.device.arch, *(["cuobjdump"] if full else []))
        fake_gpu.install(self.device, self.refusals, self.addresses, self._launched, self.capture.resources)
        self.capture.install()
        self.sites.install()
        self.mode = fake_gpu.FakeMode(allow_non_fake_inputs=True)
        self.source = candidate.read_text()
        with self.mode:
            self.target = target.load(contract, "pgo_target")
            self.kernel = target.load(candidate, "pgo_candidate").kernel

    def describe(self) -> dict[str, Any]:
        """Return the target's cases and figures as plain values. Raises ValueError when a case is not plain."""
        t = self.target
        sets = {s: {str(n): _plain(s, n, p) for n, p in getattr(t, s).items()} for s in DESCRIBED}
        work = {
            s: {n: {"flops": int(t.flops(p)), "bytes": int(t.bytes_moved(p))} for n, p in getattr(t, s).items()}
            for s in DESCRIBED
        }
        return {
            "sets": sets,
            "work": work,
            "libraries": sorted(getattr(t, "LIBRARIES", {})),
            "launch_space": getattr(t, "LAUNCH_SPACE", None),
            "weights": getattr(t, "WEIGHTS", None),
            "nondeterministic": bool(getattr(t, "NONDETERMINISTIC", False)),
        }

    def trace(
        self, case: dict[str, Any], limit: int | None, sample: bool = False, known: autotune.Known | None = None
    ) -> list[dict[str, Any]]:
        """Return a plan for every configuration of the case: one launch site varied at a time, at most `limit` in all.

        `sample`: of a longer list the first half of them as they are listed, the others from the whole of the rest.
        `known`: kernel -> its best configurations so far, the best first: a site that is not varied has the first of
        them that is in its list, and what is none of them is varied first. Some sites may not be varied.
        """
        self.sites.forget()
        self.sites.known = known or {}
        first = self._entry(case)
        entries = [first]
        if "error" in first:
            return entries
        several = {s: c for s, c in self.sites.configs.items() if len(c) > 1}
        varied = [(s, i) for s, c in several.items() for i in range(len(c)) if i != self.sites.base[s]]
        varied.sort(key=lambda v: self.sites.is_known(*v))
        base = dict(self.sites.base)
        self.listed = 1 + len(varied)
        varied = [v for v in varied if self.sites.is_varied(v[0])]
        chosen = _spread(varied, limit) if sample and limit is not None else varied
        for site, i in itertools.islice(chosen, None if limit is None else limit - 1):
            self.sites.forget()
            self.sites.choice = base | {site: i}
            entries.append(self._entry(case))
        return entries

    def _entry(self, case: dict[str, Any]) -> dict[str, Any]:
        with compiler_stderr.caught() as printed:
            try:
                plan = self._plan(case)
            except (Exception, SystemExit) as e:
                launched = [s for s in self.recorder.steps if "kernel" in s]
                return {"error": self._blame(e, printed()), "configs": self._configs(), "launched": launched}
        return {"plan": plan, "configs": self._configs()}

    def _configs(self) -> dict[str, Any]:
        chosen = self.sites.base | self.sites.choice
        return {s: autotune.describe(c[chosen.get(s, 0)]) for s, c in self.sites.configs.items()}

    def _plan(self, case: dict[str, Any]) -> dict[str, Any]:
        rec = self.recorder
        rec.reset()
        self.refusals.first = self.refusals.line = None
        self.sites.steps = rec.steps
        with self.mode:
            inputs = self._inputs(case)
            with rec:
                args = {n: rec.encode(a, "input") for n, a in inputs.items()}
                out = self.kernel(**inputs)
            if self.refusals.first:
                raise fake_cuda_api.Refused(self.refusals.first)
            outs = [rec.ref(t) for t in (out if isinstance(out, list | tuple) else [out])]
        return {"inputs": args, "storages": rec.storages, "steps": rec.steps, "out": outs}

    def _inputs(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return what the target's inputs() gives. Its fault is the target's: no candidate has run yet."""
        try:
            inputs = dict(self.target.inputs(case, fake_gpu.Generator()))
            in_place.check(in_place.names(self.target), inputs)
            return inputs
        except TargetFault as e:
            raise InputsFault(f"{e.message}: {e.hint}") from e
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise InputsFault(f"{_HOST} ({e.func}): draw sizes and places from the case's numbers instead") from e
        except Exception as e:
            raise InputsFault(f"{type(e).__name__}: {e}") from e

    def _launched(self, launcher: Any, grid: tuple[int, int, int], handle: int, args: tuple[Any, ...]) -> None:
        signature = [_listed(s) for s in launcher.src.signature.values()]
        values = [None if s == "constexpr" else self.recorder.encode(a) for s, a in zip(signature, args, strict=True)]
        kernel = self.capture.kernel(handle)
        if problem := next(launches.problems(kernel["name"], grid), ""):
            self.refusals.refuse(problem)
        if 0 not in grid:  # else nothing runs: Triton's own launcher returns at once
            step = {"kernel": kernel["key"], "grid": [int(g) for g in grid], "signature": signature, "args": values}
            self.recorder.add(step)

    def _blame(self, error: BaseException, printed: str) -> dict[str, Any]:
        """Return what went wrong, with the candidate's line, as plain values."""
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == self.refusals.file]
        kind = "refused" if isinstance(error, fake_cuda_api.Refused) or self.refusals.first else "raised"
        text = self.refusals.first or error_messages.describe(error, self.source, printed)
        return {
            "kind": kind,
            "type": type(error).__name__,
            "message": text,
            "line": self.refusals.line or (lines[-1] if lines else None),
        }


def _spread(listed: list[Any], limit: int) -> list[Any]:
    """At most `limit` - 1: the first as they are listed, and others at even distances in what follows."""
    first, rest = listed[: limit // 2], listed[limit // 2 :]
    count = limit - 1 - len(first)
    return listed if len(rest) <= count else [*first, *(rest[len(rest) * k // count] for k in range(count))]


def _listed(signature: Any) -> Any:
    return [_listed(s) for s in signature] if isinstance(signature, list | tuple) else str(signature)


def _plain(kind: str, name: object, case: Any) -> dict[str, Any]:
    fine = isinstance(case, dict) and all(
        isinstance(k, str) and (v is None or isinstance(v, bool | int | float | str)) for k, v in case.items()
    )
    if not fine:
        raise ValueError(f"{kind}[{name!r}] must be a dict of plain values (numbers, strings, booleans)")
    return dict(case)
