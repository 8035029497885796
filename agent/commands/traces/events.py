"""The events of a tritonparse trace, one after another: compilations and launches, as typed records.

A trace is NDJSON, raw (of `TRITON_TRACE`) or parsed, plain or compressed, a file or a folder of files. It is read as a
stream: memory holds one line. What is cut short or unreadable is counted in `Reading`, and the rest is used. A trace is
data from elsewhere: nothing of it is run here, and no text of it but the kernels' source reaches a target unchecked.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgo_agent.agent.commands.traces import stream
from pgo_agent.sandbox.errors import UsageFault

TIMES = "pgo_agent_times"  # the event that `pgo-agent trace` adds
MOST_UNKNOWN = 1000  # lines of no known event at the begin of a file that is no trace
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_NO_NUMBERS = ("inf", "-inf", "nan")  # as tritonparse writes them, for JSON has none
_WARPS = re.compile(r'"ttg\.num-warps" = (\d+)')


@dataclass(frozen=True)
class TracedTensor:
    """A tensor argument. Figures of its values are None where the trace has none."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    pointer: str = ""
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class Plain:
    """A number, a string, or None."""

    value: bool | int | float | str | None


@dataclass(frozen=True)
class Other:
    """An argument of another kind, by its type and its text."""

    kind: str
    text: str


Argument = TracedTensor | Plain | Other


@dataclass(frozen=True)
class Launch:
    kernel: str
    compiled: str  # hash of its compilation; empty: not known
    grid: tuple[int, ...]
    arguments: Mapping[str, Argument]
    options: Mapping[str, int]
    trial: bool  # of an autotuner that tries configurations
    inductor: bool
    without: str = ""  # why the trace has no arguments
    caller: str = ""  # the file of the innermost function `call`: code that Inductor wrote has that name for it


@dataclass(frozen=True)
class Compiled:
    key: str  # hash
    kernel: str
    file: str
    code: str  # the function, or the whole file
    whole: bool  # `code` is the file
    start: int  # line of the function in the file
    ttgir: str
    triton: str
    arch: str
    backend: str


@dataclass(frozen=True)
class Times:
    """What `pgo-agent trace` measured: kernel -> milliseconds of all its launches."""

    ms: Mapping[str, float]
    why: str = ""  # there are none
    gpu: str = ""  # by its driver's name


@dataclass(frozen=True)
class Tuned:
    """The time of one launch, as the kernel's own autotuner measured it."""

    kernel: str
    ms: float


Known = Launch | Compiled | Times | Tuned


@dataclass
class Reading:
    """What was met while a trace was read."""

    events: int = 0
    unreadable: int = 0  # lines
    cut: list[str] = field(default_factory=list)  # files that end early

    def notes(self) -> Iterator[str]:
        if self.cut:
            yield f"cut short: {', '.join(self.cut)}; what is whole is used"
        if self.unreadable:
            yield f"{self.unreadable} lines could not be read, and are left out"


def read(path: Path, reading: Reading) -> Iterator[Known]:
    """Yield the events of a trace. Raises UsageFault for what is none."""
    files = stream.files(path)
    for file in files:
        yield from _events(file, reading)
    if not reading.events:
        raise UsageFault(f"{path} is no trace of tritonparse: it has no event of one", stream.HINT)


def _events(file: Path, reading: Reading) -> Iterator[Known]:
    unknown = 0
    for line in stream.lines(file, reading.cut):
        try:
            raw = json.loads(line)
            event = _known(raw) if isinstance(raw, dict) else None
            known = isinstance(raw, dict) and "event_type" in raw
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            reading.unreadable += 1
            event, known = None, False
        reading.events += known
        unknown += not known
        if unknown >= MOST_UNKNOWN and not reading.events:
            return
        if event is not None:
            yield event


# events ---------------------------------------------------------------------------------------------------------------


def _known(raw: Any) -> Known | None:
    match raw.get("event_type"):
        case "launch":
            return _launch(raw)
        case "compilation":
            return _compiled(raw)
        case "autotune":
            timings = [t for v in raw["configs_timings"].values() if (t := _milliseconds(v)) is not None]
            return Tuned(str(raw["kernel_name"]), min(timings)) if timings else None
        case name if name == TIMES:
            return Times(
                {str(n): float(ms) for n, ms in raw["ms"].items()}, str(raw.get("why", "")), str(raw.get("gpu", ""))
            )
    return None


def _milliseconds(value: object) -> float | None:
    """Return the first of an autotuner's figures, the median."""
    first = value[0] if isinstance(value, list) and value else value
    return float(first) if isinstance(first, int | float) and 0 < first < float("inf") else None


def _launch(raw: Any) -> Launch:
    meta, given = raw.get("compilation_metadata") or {}, raw.get("extracted_args") or {}
    inductor = raw.get("extracted_inductor_args") or {}
    chosen = {n: v for n, v in inductor.items() if n not in given and n not in _OPTIONS}  # constants, by Inductor
    without = str(given["_note"]) if "_note" in given else "" if given else "the trace holds no arguments of it"
    return Launch(
        str(raw.get("name") or meta.get("name") or ""),
        str(meta.get("hash") or ""),
        tuple(int(g) for g in raw.get("grid") or ()),
        {} if without else {str(n): argument(v) for n, v in (given | chosen).items()},
        {n: int(meta[n]) for n in _OPTIONS if isinstance(meta.get(n), int)},
        any(_tries(frame) for frame in raw.get("stack") or ()),
        bool(inductor),
        without,
        next((_path(f.get("filename")) for f in reversed(raw.get("stack") or ()) if f.get("name") == "call"), ""),
    )


def _tries(frame: Any) -> bool:
    file = str(frame.get("filename", ""))
    return "triton/runtime/autotuner.py" in file and frame.get("name") == "_bench"


def argument(raw: Any) -> Argument:
    """Return an argument as tritonparse describes it."""
    kind = str(raw.get("type"))
    if kind == "tensor":
        figures = {
            n: _figure(raw.get(f)) for n, f in (("low", "min"), ("high", "max"), ("mean", "mean"), ("std", "std"))
        }
        shape, stride = (tuple(int(n) for n in raw[k]) for k in ("shape", "stride"))
        if not re.fullmatch(r"torch\.\w+", str(raw["dtype"])):
            raise ValueError(raw["dtype"])
        return TracedTensor(shape, stride, str(raw["dtype"])[6:], str(raw.get("data_ptr") or ""), **figures)
    if kind == "NoneType":
        return Plain(None)
    value = raw.get("value")
    if kind == "float" and isinstance(value, str):  # inf and nan, which JSON has not
        return Plain(float(value))
    if kind in ("int", "float", "bool", "str") and isinstance(value, bool | int | float | str):
        return Plain(value)
    return Other(kind, str(raw.get("repr", value)))


def _figure(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) or value in _NO_NUMBERS else None


def _compiled(raw: Any) -> Compiled:
    payload = raw["payload"]
    meta, source = payload.get("metadata") or {}, payload.get("python_source") or {}
    contents = payload.get("file_content") or {}
    texts = (t for n, t in contents.items() if n.endswith(".ttgir") and isinstance(t, str) and "tt.func" in t)
    return Compiled(
        str(meta.get("hash") or ""),
        str(meta.get("name") or ""),
        _path(source.get("file_path")),
        str(source.get("code") or ""),
        "function_start_line" in source,
        int(source.get("function_start_line") or source.get("start_line") or 0),
        next(texts, ""),
        str(meta.get("triton_version") or ""),
        str(meta.get("arch") or ""),
        str(meta.get("backend_name") or (meta.get("target") or {}).get("backend") or ""),
    )


def _path(value: object) -> str:
    """Return a path that is one; it is written into a target's text."""
    text = str(value or "")
    return text if re.fullmatch(r"[\w./\-+@ ]{1,512}", text) else "a_file_of_another_name.py"


def warps(compiled: Compiled) -> int | None:
    """Return the warps that were asked for: warp specialization adds to those of the launch."""
    found = _WARPS.search(compiled.ttgir)
    return int(found[1]) if found else None
