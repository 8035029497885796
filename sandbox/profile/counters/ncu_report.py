"""An Nsight Compute report as plain figures, by NVIDIA's package `ncu_report`, in a process of its own.

Relies on that package (PyPI ncu-report, or the one that comes with ncu), which reads reports of older versions, too. It
is native code on a file that another program wrote: what makes it crash must not end us. It says what stands in the
report, by ncu's own names and in ncu's units; `metrics.py` says what that means.
"""

import importlib
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.json_codec import Malformed, Record, as_json
from pgo_agent.sandbox.judge.worker_process import environment
from pgo_agent.sandbox.profile.counters.ncu import Absent, last_line

SECONDS = 60.0
INSTALL = "the package ncu-report is not installed: pip install 'pgo-agent[counters]'"
SAMPLES = "smsp__pcsamp_warps_issue_stalled_"  # and a reason: samples of warps at an instruction
NOT_ISSUED = "_not_issued"  # the same samples again, of cycles in which no warp was issued
UNKNOWN = "???"  # the text of an instruction that the reader cannot disassemble


@dataclass(frozen=True)
class Metric(Record):
    value: float
    unit: str


@dataclass(frozen=True)
class Seen(Record):
    """What was counted at one instruction."""

    offset: int  # bytes from the kernel's start
    text: str  # as the reader disassembles it; empty where it cannot
    executed: int
    stalls: dict[str, int]  # reason -> samples


@dataclass(frozen=True)
class Facts(Record):
    """A report of one launch."""

    kernel: str  # as the cubin calls it
    metrics: dict[str, Metric]  # those that are one finite number
    instructions: tuple[Seen, ...]  # in the order of their addresses


def readable(reader: Path | None) -> None:
    """Raise Absent where neither the package is installed nor a `reader` known, a folder that holds the module."""
    if reader is None and importlib.util.find_spec("ncu_report") is None:
        raise Absent(INSTALL)


def facts(report: Path, reader: Path | None, seconds: float = SECONDS) -> Facts:
    """Return what stands in a report. Raises Absent where it cannot be read."""
    answer = report.with_suffix(".json")
    command = [sys.executable, "-B", "-m", __name__, str(report), str(answer), *([str(reader)] if reader else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment(None))
    except subprocess.TimeoutExpired:
        raise Absent(f"the report was not read in {seconds:.0f} s") from None
    if done.returncode or not answer.is_file():
        raise Absent(f"the report cannot be read: {last_line(done.stderr) or f'exit status {done.returncode}'}")
    try:
        return Facts.from_json(json.loads(answer.read_text()))
    except (ValueError, Malformed) as e:
        raise Absent(f"the report cannot be read: {e}") from None


# the process that reads -----------------------------------------------------------------------------------------------


def main(report: str, answer: str, reader: str = "") -> None:
    package = _package(reader)
    actions = list(_actions(package.load_report(report)))
    if not actions:
        sys.exit("no launch in it that this ncu-report knows: where ncu is newer, upgrade ncu-report")
    Path(answer).write_text(json.dumps(as_json(_facts(actions[0]))))


def _package(reader: str) -> Any:
    """Return the installed package; where there is none, the module in the folder `reader`."""
    try:
        return importlib.import_module("ncu_report")
    except ImportError:
        if not reader:
            sys.exit(INSTALL)
        sys.path.append(reader)
        return importlib.import_module("ncu_report")


def _actions(report: Any) -> Iterator[Any]:
    for i in range(report.num_ranges()):
        launches = report.range_by_idx(i)
        yield from (launches.action_by_idx(n) for n in range(launches.num_actions()))


def _facts(action: Any) -> Facts:
    names = list(action.metric_names())
    metrics = {n: m for n in names if (m := _metric(action.metric_by_name(n)))}
    return Facts(action.name(action.NameBase_MANGLED), metrics, _instructions(action, names))


def _metric(m: Any) -> Metric | None:
    numbers = (m.ValueKind_DOUBLE, m.ValueKind_FLOAT, m.ValueKind_UINT32, m.ValueKind_UINT64)
    if not m.has_value() or m.kind() not in numbers:
        return None
    value = float(m.as_double())
    return Metric(value, str(m.unit())) if math.isfinite(value) else None


def _instructions(action: Any, names: list[str]) -> tuple[Seen, ...]:
    """By address. The first of `launch__function_pcs` is where the kernel begins, the others are its callees."""
    if "launch__function_pcs" not in names or "inst_executed" not in names:
        return ()
    start = int(action.metric_by_name("launch__function_pcs").as_uint64(0))
    executed = _by_address(action.metric_by_name("inst_executed"))
    reasons = {n.removeprefix(SAMPLES): n for n in names if n.startswith(SAMPLES) and not n.endswith(NOT_ISSUED)}
    sampled = {r: _by_address(action.metric_by_name(n)) for r, n in reasons.items()}
    addresses = sorted(executed.keys() | {pc for s in sampled.values() for pc in s})
    return tuple(
        Seen(pc - start, _text(action, pc), executed.get(pc, 0), {r: n for r, s in sampled.items() if (n := s.get(pc))})
        for pc in addresses
    )


def _by_address(m: Any) -> dict[int, int]:
    at = m.correlation_ids()
    return {int(at.as_uint64(i)): int(m.as_uint64(i)) for i in range(m.num_instances())}


def _text(action: Any, pc: int) -> str:
    text = str(action.sass_by_pc(pc)).strip()
    return "" if text == UNKNOWN else text


if __name__ == "__main__":
    main(*sys.argv[1:])
