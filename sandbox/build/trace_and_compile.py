"""Runs the tracer and the compiler in the box and reads what they leave behind, trusting none of it.

A process that somebody killed is started again, and a failure on a full disk does not count: neither says anything
about a candidate. One that ended by itself without an answer has failed.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from pgo_agent.sandbox import held_out, json_codec
from pgo_agent.sandbox.bundle import decode, elf, validate
from pgo_agent.sandbox.bundle.documents import (
    Config,
    Described,
    KernelDocument,
    Options,
    PlanDocument,
    Static,
    StepDocument,
)
from pgo_agent.sandbox.bundle.store import ContentStore, room
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation.box import ATTEMPTS, TRACER, Box, Ran, killed
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.tracer import NEEDS_CUBINS

TRACE_SECONDS, COMPILE_SECONDS = 240.0, 600.0  # deadlines of one boxed process
FULL = ("--full",)  # asks a tracer for finished kernels
TELLING = 12.0  # seconds between two messages of progress
KEPT = ("cubin", "ptx")  # artefacts that go in the content store beside the TTGIR
LISTED = ("sass", "live")  # and these, of a build with line information
T = TypeVar("T")
Cases = Mapping[str, Sequence[str] | None]  # set (CASES, SMALL, HELD_OUT) -> names, None for all
KnownConfigs = Mapping[str, Mapping[str, Sequence[Mapping[str, object]]]]  # case -> kernel -> its best, in order


def silent(_message: str) -> None:
    """Do nothing with a message of progress."""


class TracedKernel(TypedDict):
    name: str
    options: Options
    shape: dict[str, int]


class TracedError(TypedDict, total=False):
    kind: str
    type: str
    message: str
    line: int | None


class TracedPlan(TypedDict, total=False):
    """What one configuration of a case does."""

    configs: dict[str, Config]  # autotuned launch -> its configuration
    plan: PlanDocument
    error: TracedError
    launched: list[StepDocument]  # before the error


class Traced(TypedDict, total=False):
    """The tracer's answer. A boxed process wrote it: whoever reads it must expect anything but these types."""

    error: TracedError  # of the whole
    described: Described
    kernels: dict[str, TracedKernel]
    traced: dict[str, dict[str, list[TracedPlan]]]  # set -> case -> configurations
    listed: dict[str, int]  # case -> configurations that it has
    texts: dict[str, bytes]  # key -> TTGIR
    located: dict[str, bytes]  # and with locations
    ttir: dict[str, bytes]
    took: float  # seconds


def place(folder: Path, target: Target, source: str, hide: bool) -> tuple[str, str]:
    """Write contract and candidate into a box's folder; return their paths in it. `hide`: without held-out cases."""
    told = held_out.statements(target.contract) if hide else frozenset[str]()
    for name in ("target", "candidate"):
        (folder / name).mkdir()
    (folder / "target" / target.path.name).write_text(held_out.without(target.source, told))
    (folder / "target" / target.contract_path.name).write_text(held_out.without(target.contract, told))
    (folder / "candidate" / target.path.name).write_text(held_out.without(source, told))
    return f"target/{target.contract_path.name}", f"candidate/{target.path.name}"


def trace(
    box: Box,
    contents: ContentStore,
    target: Target,
    device: Device,
    source: str,
    cases: Cases,
    limit: int | None,
    located: bool = False,
    sample: bool = False,
    untrusted: bool = False,
    again: bool = False,
    report: Callable[[str], None] = silent,
    known: KnownConfigs | None = None,
    varied: frozenset[str] | None = None,
    full: bool = False,
) -> Traced:
    """Return what the launcher of `source` does in each case, at most `limit` configurations of each; seconds under
    "took".

    `sample`: of a longer list not its beginning alone; how many there are stands under "listed", by case.
    `located`: with the TTGIR as it was with locations, and with the TTIR, by kernel under "located" and "ttir".
    `again`: the first configuration alone, after calls for the small cases, in reverse order, twice: each case has two
    entries.
    `known`: the best configurations so far, where several launches are autotuned: those that are not varied have them.
    `varied`: kernels whose launches are; None: all.
    `full`: with finished kernels: what does not fit the device is passed over, as Triton does. Takes some ten times as
    long.
    `untrusted`: where no held-out case is asked for, none is in the box. `report` gets a message every few seconds.
    Raises Killed when the process was killed again and again, and EnvironmentFault when the disk is full.
    """
    names = {s: None if n is None else list(n) for s, n in cases.items()}
    request: dict[str, object] = {"device": device.key, "limit": limit, "cases": names, "located": located}
    request |= {"sample": sample, "again": again, "known": known or {}}
    request |= {"varied": None if varied is None else sorted(varied), "full": full}

    def read(out: Path, ran: Ran) -> Traced:
        return {**_read_trace(out, ran, located), "took": ran.seconds}

    hide = untrusted and "HELD_OUT" not in cases
    return ask_tracer(box, contents, target, source, request, TRACE_SECONDS, read, hide, report)


def ask_tracer(
    box: Box,
    contents: ContentStore,
    target: Target,
    source: str,
    request: Mapping[str, Any],
    seconds: float,
    read: Callable[[Path, Ran], T],
    hide: bool = False,
    report: Callable[[str], None] = silent,
) -> T:
    """Return what `read` makes of the folder that a tracer left and of how it ended. `request`: what it is asked of a
    target and a `source`. `hide`: without held-out cases in the box. Raises Killed when it was killed again and again.
    """
    for _ in range(ATTEMPTS):
        with contents.scratch() as name:
            folder = Path(name)
            contract, candidate = place(folder, target, source, hide)
            asked = {**request, "contract": contract, "candidate": candidate}
            (folder / "request.json").write_text(json.dumps(asked))
            with _counting(folder / "out", ".ttgir", "traced {} kernels so far", report):
                ran = _traced(box, folder, seconds, bool(request.get("full")))
            if not ran.killed:
                return read(folder / "out", ran)
    raise killed("tracing")


def _traced(box: Box, folder: Path, seconds: float, full: bool) -> Ran:
    """Run a tracer to its end: once more with cubins where it asks for them, and no longer than one may take."""
    ran = box.run(TRACER, folder, seconds, FULL if full else ())
    if full or ran.code != NEEDS_CUBINS:
        return ran
    again = box.run(TRACER, folder, max(0.0, seconds - ran.seconds), FULL)
    return replace(again, seconds=ran.seconds + again.seconds)


def _read_trace(out: Path, ran: Ran, located: bool) -> Traced:
    if ran.timed_out:
        return _error("timeout", f"the launcher ran for over {TRACE_SECONDS:.0f} s")
    try:
        traced = cast(Traced, validate.answer(out / "result.json"))
        if "error" in traced:
            e = traced["error"]
            return {"error": {"kind": str(e["kind"]), "message": str(e["message"]), "line": e["line"]}}
        names = [decode.sha(k) for k in traced["kernels"]]  # a path, otherwise
        traced["texts"] = _texts(out, names, "ttgir")
        if located:
            traced |= {"located": _texts(out, names, "located"), "ttir": _texts(out, names, "ttir")}
    except (BadBundle, ValueError, TypeError, KeyError, AttributeError):
        return _error("raised", f"the tracer left no answer\n{ran.output[-2000:]}")
    return traced


def _texts(out: Path, names: Sequence[str], suffix: str) -> dict[str, bytes]:
    return {k: validate.read(out / f"{k}.{suffix}", validate.ARTEFACT_LIMIT) for k in names}


def _error(kind: str, message: str) -> Traced:
    return {"error": {"kind": kind, "message": message, "line": None}}


def compile_missing(
    box: Box,
    contents: ContentStore,
    device: Device,
    texts: Mapping[str, bytes],
    options: Mapping[str, Options],
    jobs: int,
    report: Callable[[str], None] = silent,
) -> float:
    """Compile the TTGIR that the content store holds no build of, `jobs` at a time. Every key then has one, or an
    error. `report` gets a message every few seconds.

    Raises Killed when the process was killed again and again without getting on, EnvironmentFault for a full disk.
    """
    seconds, attempts = 0.0, ATTEMPTS
    missing = [k for k in texts if contents.build(k) is None]
    while missing and attempts:
        request = {"arch": device.arch, "jobs": jobs, "kernels": [{"key": k, "options": options[k]} for k in missing]}
        seconds += _compile(box, contents, request, {k: texts[k] for k in missing}, report)
        left = [k for k in missing if contents.build(k) is None]
        attempts = ATTEMPTS if len(left) < len(missing) else attempts - 1
        missing = left
    if missing:
        raise killed("compiling")
    return seconds


def _compile(
    box: Box,
    contents: ContentStore,
    request: Mapping[str, Any],
    texts: Mapping[str, bytes],
    report: Callable[[str], None],
) -> float:
    """Run one compiler process. Its builds and diagnostics go into the content store. Return its seconds."""
    with contents.scratch() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for key, text in texts.items():
            (folder / "in" / f"{key}.ttgir").write_bytes(text)
        (folder / "request.json").write_text(json.dumps(request))
        with _counting(folder / "out", ".json", f"compiled {{}} of {len(texts)} kernels", report):
            ran = box.run("pgo_agent.sandbox.compiler", folder, COMPILE_SECONDS)
        options = {k["key"]: k["options"] for k in request["kernels"]}
        errors = {
            k: e for k, text in texts.items() if (e := _collect(contents, folder / "out", k, text, options[k], ran))
        }
    if errors:
        room(contents.root)
    for key, error in errors.items():
        contents.put_build(key, {"error": error})
    return ran.seconds


@contextmanager
def _counting(out: Path, suffix: str, said: str, report: Callable[[str], None]) -> Iterator[None]:
    """Report every TELLING seconds how many kernels are done, by the names of files alone."""
    ended = threading.Event()

    def count() -> None:
        while not ended.wait(TELLING):
            done = sum(p.suffix == suffix for p in out.iterdir()) if out.is_dir() else 0
            report(said.format(done))

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield
    finally:
        ended.set()
        counter.join()


def _object(value: object) -> JsonObject:
    return dict(json_codec.from_json(JsonObject, value))


def _collect(contents: ContentStore, out: Path, key: str, ttgir: bytes, options: Mapping[str, Any], ran: Ran) -> str:
    """Put one kernel's build in the content store, or return its diagnostic. Neither when the process was killed
    first."""
    try:
        answer = validate.answer(out / f"{key}.json")
        if "error" in answer:
            return str(answer["error"])[:65536] or "error: the compiler gave no reason"
        suffixes = (*KEPT, *LISTED) if options.get("lines") else KEPT
        files = {s: contents.put(validate.read(out / f"{key}.{s}", validate.ARTEFACT_LIMIT), s) for s in suffixes}
        files["ttgir"] = contents.put(ttgir, "ttgir")
        code = elf.code_id(contents.get(files["cubin"], "cubin"))
        kernel = cast(KernelDocument, {**_object(answer["metadata"]), "files": files})
        static = cast(Static, _object(answer["static"]))
        contents.put_build(key, {"kernel": kernel, "static": static, "code_id": code, "options": dict(options)})
    except (BadBundle, ValueError, TypeError, KeyError, AttributeError):
        return "" if ran.killed else f"error: the compiler left no answer\n{ran.output[-2000:]}"
    return ""
