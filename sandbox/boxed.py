"""Runs the tracer and the compiler in the box and reads what they leave behind, trusting none of it.

A process that somebody killed is started again; one that ended by itself without an answer has failed.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.box import Box, Ran
from pgo_agent.sandbox.bundle import check, cubin
from pgo_agent.sandbox.bundle.shelf import Shelf
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.target import Target

TRACE_SECONDS, COMPILE_SECONDS = 240.0, 600.0  # deadlines of one boxed process
ATTEMPTS = 3  # for a process that was killed from outside
KEPT = ("cubin", "ptx")  # artefacts that go on the shelf beside the TTGIR
Cases = Mapping[str, Sequence[str] | None]  # set (CASES, SMALL, HELD_OUT) -> names, None for all
Traced = dict[str, Any]  # the tracer's answer, with the TTGIR under "texts"; or "error"


def place(folder: Path, target: Target, source: str) -> tuple[str, str]:
    """Writes contract and candidate into a box's folder; gives their paths in it."""
    for name in ("target", "candidate"):
        (folder / name).mkdir()
    (folder / "target" / target.path.name).write_text(target.source)
    (folder / "target" / target.contract_path.name).write_text(target.contract)
    (folder / "candidate" / target.path.name).write_text(source)
    return f"target/{target.contract_path.name}", f"candidate/{target.path.name}"


def trace(
    box: Box, shelf: Shelf, target: Target, device: Device, source: str, cases: Cases, limit: int | None
) -> Traced:
    """What the launcher of `source` does in each case, at most `limit` configurations of each; seconds under "took"."""
    for _ in range(ATTEMPTS):
        with shelf.scratch() as name:
            folder = Path(name)
            contract, candidate = place(folder, target, source)
            wanted = {s: None if n is None else list(n) for s, n in cases.items()}
            request = {
                "device": device.key,
                "contract": contract,
                "candidate": candidate,
                "limit": limit,
                "cases": wanted,
            }
            (folder / "request.json").write_text(json.dumps(request))
            ran = box.run("pgo_agent.sandbox.tracer", folder, TRACE_SECONDS)
            if not ran.killed:
                return _read_trace(folder / "out", ran) | {"took": ran.seconds}
    return _error("raised", "the tracing process was killed again and again")


def _read_trace(out: Path, ran: Ran) -> Traced:
    if ran.timed_out:
        return _error("timeout", f"the launcher ran for over {TRACE_SECONDS:.0f} s")
    try:
        traced: Traced = json.loads(check.read(out / "result.json", check.JSON_LIMIT))
        if "error" not in traced:
            texts = {k: check.read(out / f"{k}.ttgir", check.ARTEFACT_LIMIT) for k in traced["kernels"]}
            traced["texts"] = texts
    except (BadBundle, ValueError, TypeError, KeyError, AttributeError):
        return _error("raised", f"the tracer left no answer\n{ran.output[-2000:]}")
    return traced


def _error(kind: str, message: str) -> Traced:
    return {"error": {"kind": kind, "message": message, "line": None}}


def compile_missing(
    box: Box, shelf: Shelf, device: Device, texts: Mapping[str, bytes], options: Mapping[str, dict[str, Any]], jobs: int
) -> float:
    """Compiles the TTGIR that the shelf holds no build of, `jobs` at a time. Every key then has one, or an error."""
    seconds = 0.0
    for attempt in range(ATTEMPTS):
        missing = [k for k in texts if shelf.build(k) is None]
        if not missing:
            break
        with shelf.scratch() as name:
            folder = Path(name)
            (folder / "in").mkdir()
            for key in missing:
                (folder / "in" / f"{key}.ttgir").write_bytes(texts[key])
            kernels = [{"key": k, "options": options[k]} for k in missing]
            (folder / "request.json").write_text(json.dumps({"arch": device.arch, "jobs": jobs, "kernels": kernels}))
            ran = box.run("pgo_agent.sandbox.compiler", folder, COMPILE_SECONDS)
            seconds += ran.seconds
            for key in missing:
                _collect(shelf, folder / "out", key, texts[key], ran, last=attempt + 1 == ATTEMPTS)
    return seconds


def _collect(shelf: Shelf, out: Path, key: str, ttgir: bytes, ran: Ran, last: bool) -> None:
    """Puts one kernel's build, or its diagnostic, on the shelf. Nothing, when the process was killed before it."""
    try:
        answer = json.loads(check.read(out / f"{key}.json", check.JSON_LIMIT))
        if "error" in answer:
            shelf.put_build(key, {"error": str(answer["error"])[:65536]})
            return
        files = {s: shelf.put(check.read(out / f"{key}.{s}", check.ARTEFACT_LIMIT), s) for s in KEPT}
        files["ttgir"] = shelf.put(ttgir, "ttgir")
        code = cubin.code_id(shelf.get(files["cubin"], "cubin"))
        record = {"kernel": answer["metadata"] | {"files": files}, "static": answer["static"], "code_id": code}
        shelf.put_build(key, record)
    except (BadBundle, ValueError, TypeError, KeyError, AttributeError):
        if last or not ran.killed:
            shelf.put_build(key, {"error": f"error: the compiler left no answer\n{ran.output[-2000:]}"})
