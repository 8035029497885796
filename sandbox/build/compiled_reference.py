"""Asks in the box what PyTorch's compiler writes for a target's reference: texts for its kernel file.

The box answers with texts, which are as trusted as any other candidate's: they are built in the box and judged. They
are kept beside the builds, under the hash of all that they follow from: PyTorch's compiler takes seconds to import.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.trace_and_compile import TracedError
from pgo_agent.sandbox.build.versions import version
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.bundle.store import ContentStore, canonical
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation.box import Box, Ran
from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.target import Target

SECONDS = 120.0  # deadline
LIMIT = 6  # configurations of a kernel
WRITTEN = 1  # raised when `tracer/inductor/` writes other texts
_FAILED: dict[str, "Compiled"] = {}  # what another process may answer otherwise; who asks next takes it


@dataclass(frozen=True)
class Part(Record):
    """What a kernel file gets for inputs of one kind."""

    imports: tuple[str, ...]
    text: str  # functions
    launcher: str  # name of the one that takes what kernel() takes
    condition: str  # name of the one that says whether the launcher is for its arguments


@dataclass(frozen=True)
class Variant(Record):
    """The reference, traced in one way."""

    rows: bool  # rows are as long as those of the public cases
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Compiled(Record):
    """What PyTorch's compiler makes of a reference."""

    variants: tuple[Variant, ...]
    refused: tuple[str, ...]  # why there is nothing, or not for all cases


def write(
    box: Box,
    contents: ContentStore,
    target: Target,
    device: Device,
    name: str,
    cases: Sequence[str],
    in_place: Mapping[int, str],
    allowed: Collection[str] = (),
) -> Compiled:
    """Return the reference as Triton kernels. `name`: what their names begin with. `cases`: public ones. `in_place`:
    results, by their number, that an input gets. `allowed`: torch operators that may stay as they are. Raises Killed
    when the process was killed again and again."""
    request = {
        "device": device.key,
        "name": name,
        "cases": list(cases),
        "in_place": list(in_place.items()),
        "limit": LIMIT,
        "allowed": sorted(allowed),
    }
    packages = [version(box.python, name) for name in ("torch", "triton")]
    of = [WRITTEN, packages, target.contract, target.source, request]
    key = hashlib.sha256(canonical(of)).hexdigest()
    if (kept := contents.record("builds", key)) is not None:
        known: Compiled = json_codec.from_json(Compiled, kept)
        return known
    if (failed := _FAILED.pop(key, None)) is not None:
        return failed
    compiled, final = trace_and_compile.ask_tracer(box, contents, target, target.source, request, SECONDS, _read)
    if final:
        contents.put_record("builds", key, compiled.as_json())
    else:
        _FAILED[key] = compiled
    return compiled


def _read(out: Path, ran: Ran) -> tuple[Compiled, bool]:
    """Return the answer, and whether another process would give the same: not after a deadline, or where one died."""
    if ran.timed_out:
        return Compiled((), (f"PyTorch compiled for over {SECONDS:.0f} s",)), False
    try:
        answered = validate.answer(out / "result.json")
        if "error" in answered:
            error = cast(TracedError, answered["error"])
            return Compiled((), (str(error["message"])[:300],)), False
        compiled: Compiled = json_codec.from_json(Compiled, answered)
        return compiled, True
    except (BadBundle, ValueError, TypeError, KeyError, AttributeError):
        return Compiled((), (f"the compiler left no answer: {ran.output[-300:]}",)), False
