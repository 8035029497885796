"""What a trace says of each kernel: how often it was launched, with what, and what share of the time is its own.

One pass over the events; memory grows with kernels and with what tells their launches apart, not with launches. Where
nothing was timed, a share is an estimate from the bytes that it reads and writes, by its TTGIR.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgo_agent.agent.commands.traces import events
from pgo_agent.agent.commands.traces.events import Compiled, Launch, Plain, Reading, Times, TracedTensor, Tuned
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.ttgir import argument_uses
from pgo_agent.sandbox.ttgir.argument_uses import Uses

MOST_SIGNATURES = 512  # of one kernel; launches with further ones are counted only
WORTH = 0.05  # share of the time from which a kernel is worth a run
_DOT = re.compile(r"\btt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma")
BITS = {"bool": 8, "complex64": 64, "complex128": 128}


@dataclass
class Signature:
    """Launches that were given the same shapes, types and whole numbers."""

    first: Launch
    launches: int = 0
    aliases: Mapping[str, str] = field(default_factory=dict)  # argument -> the one before it that is the same memory
    ranges: dict[str, TracedTensor] = field(default_factory=dict)  # with the lowest and highest values of all launches
    floats: dict[str, set[float]] = field(default_factory=dict)  # values of float arguments, two at most

    def add(self, launch: Launch) -> None:
        self.launches += 1
        for name, value in launch.arguments.items():
            if isinstance(value, TracedTensor):
                self.ranges[name] = _together(self.ranges.get(name), value)
            elif isinstance(value, Plain) and type(value.value) is float and len(self.floats.get(name, ())) < 2:
                self.floats.setdefault(name, set()).add(value.value)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, each once."""
        return self._bytes(self.first.arguments)

    def traffic(self, uses: Uses | None) -> int:
        """Bytes of what is read and of what is written, each once; without `uses` those of all tensors."""
        names = [n for n, v in self.first.arguments.items() if isinstance(v, TracedTensor)]
        if (
            uses is None
            or uses.stored is None
            or len(names) <= max(map(int, (*uses.stored, *uses.maybe_loaded)), default=0)
        ):
            return self.bytes
        return sum(self._bytes({names[int(i)] for i in used}) for used in (uses.maybe_loaded, uses.stored))

    def _bytes(self, names: Iterable[str]) -> int:
        tensors = (self.first.arguments[n] for n in {self.aliases.get(n, n) for n in names})
        return sum(nbytes(t) for t in tensors if isinstance(t, TracedTensor))


@dataclass
class Kernel:
    """One kernel of a trace."""

    name: str
    file: str
    launches: int = 0
    trials: int = 0  # launches by which an autotuner tried configurations
    without: Counter[str] = field(default_factory=Counter)  # launches without arguments, by the reason
    signatures: dict[object, Signature] = field(default_factory=dict)
    uncounted: int = 0  # launches beyond MOST_SIGNATURES
    callers: Counter[str] = field(default_factory=Counter)  # files whose function `call` launched it
    inductor: bool = False
    dots: bool = False  # it multiplies tiles
    uses: Uses | None = None  # what one of its compilations reads and writes: pointers by position
    compiled: set[str] = field(default_factory=set)  # hashes
    ms: float | None = None  # of all its launches, measured
    tuned: list[float] = field(default_factory=list)  # milliseconds of one launch, by its autotuner

    @property
    def moved(self) -> int:
        return sum(s.traffic(self.uses) * s.launches for s in self.signatures.values())

    @property
    def most(self) -> list[Signature]:
        """Its signatures, the most launched first; of equal ones the largest."""
        return sorted(self.signatures.values(), key=lambda s: (-s.launches, -s.bytes))


@dataclass
class Trace:
    path: Path
    kernels: list[Kernel]
    reading: Reading
    triton: set[str]
    archs: set[str]  # as tritonparse calls them: sm90, gfx942
    untimed: str = ""  # why nothing was timed, where that was tried
    gpu: str = ""  # that it was timed on

    @property
    def measured(self) -> bool:
        """Whether the trace has times of all launches."""
        return any(k.ms is not None for k in self.kernels)

    def shares(self) -> list[float]:
        """Return the share of the time of each kernel, or of the bytes where nothing was timed."""
        parts = [(k.ms or 0.0) if self.measured else float(k.moved) for k in self.kernels]
        return [p / total if (total := math.fsum(parts)) else 0.0 for p in parts]

    def named(self, name: str | None) -> Kernel:
        """Return a kernel. Raises UsageFault where it has none of that name, or several and none is named."""
        known = [k.name for k in self.kernels]
        if name is None and len(known) == 1:
            return self.kernels[0]
        found = [k for k in self.kernels if k.name == name]
        if not found:
            raise UsageFault(f"{self.path} has no launches of {name}", f"choose one of: {', '.join(known)}")
        return max(found, key=lambda k: k.launches)


def summarize(path: Path) -> Trace:
    """Read a trace. Raises UsageFault for what is none, or has no launches."""
    reading, kernels = Reading(), dict[tuple[str, str], Kernel]()
    files, triton, archs = dict[str, str](), set[str](), set[str]()
    times, tuned, untimed, gpu = dict[str, float](), dict[str, list[float]](), "", ""
    dots, uses = set[str](), dict[str, Uses | None]()
    for event in events.read(path, reading):
        match event:
            case Launch():
                file = files.get(event.compiled, "")
                _add(kernels.setdefault((event.kernel, file), Kernel(event.kernel, file)), event)
            case Compiled():
                files[event.key] = event.file
                triton.add(event.triton)
                archs.add(event.arch)
                dots |= {event.key} if _DOT.search(event.ttgir) else set()
                uses[event.key] = argument_uses.by_position(event.ttgir) if event.ttgir else None
            case Times():
                times, untimed = times | dict(event.ms), event.why
                gpu = event.gpu or gpu
            case Tuned():
                tuned.setdefault(event.kernel, []).append(event.ms)
    if not kernels and reading.unreadable:
        problem = f"{path} has no launch that can be read, and {reading.unreadable} lines that cannot"
        raise UsageFault(problem, "record it anew, with tritonparse 0.6 or newer")
    if not kernels:
        hint = "record launches too: TRITON_TRACE_LAUNCH=1, or `pgo-agent trace -- PROGRAM`"
        raise UsageFault(f"{path} has no launches, only compilations", hint)
    for kernel in kernels.values():
        kernel.uses = next((u for key in sorted(kernel.compiled) if (u := uses.get(key))), None)
    found = sorted(kernels.values(), key=lambda k: -k.moved)
    for kernel in found:
        kernel.ms, kernel.tuned = times.get(kernel.name), tuned.get(kernel.name, [])
        kernel.dots = bool(kernel.compiled & dots)
    trace = Trace(path, found, reading, triton - {""}, archs - {""}, untimed, gpu)
    order = sorted(zip(trace.shares(), range(len(found)), strict=True), key=lambda p: (-p[0], p[1]))
    return replace(trace, kernels=[found[i] for _, i in order])


def _add(kernel: Kernel, launch: Launch) -> None:
    kernel.compiled.add(launch.compiled)
    kernel.inductor |= launch.inductor
    kernel.callers.update([launch.caller] if launch.caller else [])
    if launch.trial:
        kernel.trials += 1
        return
    kernel.launches += 1
    if launch.without:
        kernel.without[launch.without] += 1
        return
    aliases = _aliases(launch)
    key = _key(launch, aliases)
    if key not in kernel.signatures and len(kernel.signatures) >= MOST_SIGNATURES:
        kernel.uncounted += 1
        return
    kernel.signatures.setdefault(key, Signature(launch, aliases=aliases)).add(launch)


def _key(launch: Launch, aliases: Mapping[str, str]) -> object:
    def told(value: events.Argument) -> object:
        if isinstance(value, TracedTensor):
            return value.shape, value.stride, value.dtype
        if isinstance(value, Plain):
            return "float" if type(value.value) is float else (type(value.value).__name__, value.value)
        return value.text

    given = tuple((n, told(v)) for n, v in launch.arguments.items())
    return given, launch.grid, tuple(launch.options.items()), tuple(aliases.items())


def _aliases(launch: Launch) -> dict[str, str]:
    """Return arguments that are the same memory as one before them."""
    seen, found = dict[tuple[str, tuple[int, ...]], str](), dict[str, str]()
    for name, value in launch.arguments.items():
        if isinstance(value, TracedTensor) and value.pointer.strip("0x") and 0 not in value.shape:
            first = seen.setdefault((value.pointer, value.shape), name)
            found |= {name: first} if first != name else {}
    return found


def _together(before: TracedTensor | None, value: TracedTensor) -> TracedTensor:
    if before is None or before.low is None or before.high is None:
        return value
    if value.low is None or value.high is None:
        return before
    return replace(before, low=min(before.low, value.low), high=max(before.high, value.high))


def nbytes(tensor: TracedTensor) -> int:
    """Return the bytes of a tensor's elements; of an expanded one those that it has."""
    own = (n for n, s in zip(tensor.shape, tensor.stride, strict=True) if s != 0)
    return math.prod(own) * itemsize(tensor.dtype)


def itemsize(dtype: str) -> int:
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return max(BITS.get(dtype, int(digits or 8)) // 8, 1)


def compilations(path: Path, keys: set[str], name: str) -> Iterator[Compiled]:
    """Yield the compilations of a kernel, by hash; by name where its launches name none."""
    for event in events.read(path, Reading()):
        if isinstance(event, Compiled) and (event.key in keys or (event.kernel == name and "" in keys)):
            yield event
