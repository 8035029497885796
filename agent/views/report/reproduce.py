"""Where a run was made and how to make it again: its machine, versions, settings, and commands for a shell."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Run
from pgo_agent.sandbox import devices

UNTOLD = "not recorded"
OPTIONS = {  # setting -> option of `optimize`, and its default
    "candidates": ("--candidates", 12),
    "width": ("--width", None),
    "minutes": ("--minutes", 20.0),
    "patience": ("--patience", 3),
    "insight": ("--profile", "all"),
    "seed": ("--seed", 0),
    "gpu_seconds": ("--gpu-seconds", None),
    "tokens": ("--tokens", None),
    "money": ("--money", None),
}


def environment(run: Run) -> Iterator[tuple[str, str]]:
    """A name and what is said under it."""
    measured = (run.summary or {}).get("environment") or (run.baseline and run.baseline.environment) or {}
    yield "GPU", _gpu(run, measured)
    if measured:
        cuda = f", CUDA {measured['cuda_driver']}" if measured.get("cuda_driver") else ""
        yield "driver", f"{measured.get('driver') or UNTOLD}{cuda}"
        yield "torch", str(measured.get("torch") or UNTOLD)
    yield "triton", _triton(run, measured)
    if measured.get("python"):
        yield "Python", str(measured["python"])
    yield "pgo-agent", _ours(run)
    yield "kernel file", f"{Path(run.target).name}, SHA-256 of its text and contract {run.digest}"
    yield "run", f"{run.id}, begun {run.created}; {run.seconds:.0f} s, of these {run.gpu_seconds:.0f} s of the GPU"
    yield "judge", _near(str(run.settings.get("judge", UNTOLD)))
    if models := run.settings.get("models"):
        yield "models", ", ".join(f"{role}: {_near(name)}" for role, name in models.items())


def _gpu(run: Run, measured: Mapping[str, Any]) -> str:
    if not measured:
        return f"none; compiled for {devices.find(run.device).name}"
    peaks = [f"{measured[k]:g} {unit}" for k, unit in (("tflops", "TFLOP/s"), ("gbps", "GB/s")) if measured.get(k)]
    reached = f"; this one was seen to reach {' and '.join(peaks)}" if peaks else ""
    return f"{measured.get('gpu', UNTOLD)}{reached}"


def _triton(run: Run, measured: Mapping[str, Any]) -> str:
    compiled, there = run.settings.get("triton"), measured.get("triton")
    if compiled and there and compiled != there:
        return f"{compiled} compiled; {there} on the GPU's machine"
    return str(compiled or there or UNTOLD)


def _ours(run: Run) -> str:
    ours = run.settings.get("pgo_agent") or {}
    return f"{ours['version']}, commit {ours['commit']}" if ours else f"{UNTOLD}: the run is of an older version"


def commands(run: Run, chosen: Candidate | None, steered: bool) -> Iterator[tuple[str, str]]:
    """What a command is for, and the command. `steered`: a person asked something of the run."""
    name, file = run.id, shlex.quote(Path(run.target).name)
    if run.settings.get("given"):
        yield "check the same file again", f"pgo-agent check {shlex.quote(given(run))} --target {file}{_cases(run)}"
    else:
        without = ", with the budgets that it had in the end and without what a person asked of it" if steered else ""
        yield f"make the run again{without}", f"pgo-agent optimize {file}{_options(run)}"
    if chosen is not None:
        short = chosen.id[:8]
        ending = "ttgir" if chosen.kind == "ttgir" else "py"
        yield (
            "judge the winner again, on a machine with the GPU",
            f"pgo-agent show {name} {short} --source > winner.{ending}\n"
            f"pgo-agent check winner.{ending} --target {file}{_cases(run)}",
        )
        yield "its evidence with all raw samples", f"pgo-agent show {name} {short} --json"
        yield "what it changes", f"pgo-agent diff shipped {short} --run {name} --ttgir"
    if chosen is not None and chosen.kind != "ttgir":
        yield "write it into the file", f"pgo-agent apply {name}"
    if run.summary is None and run.state != "failed":
        yield "go on with the run", f"pgo-agent resume {name}"


def _near(name: str) -> str:
    """A judge or a model, without the folders of the machine that the run was on."""
    kind, colon, place = name.partition(":")
    return f"{kind}:{Path(place).name}" if colon and place.startswith("/") else name


def given(run: Run) -> str:
    """The name of the file that a check was given."""
    return Path(str(run.settings["given"][0]["from"])).name


def _cases(run: Run) -> str:
    return "".join(f" --case {shlex.quote(c)}" for c in run.settings.get("cases") or ())


def _options(run: Run) -> str:
    told = [f" --device {shlex.quote(run.device)}"]
    for key, (option, default) in OPTIONS.items():
        value = run.settings.get(key)
        if value is not None and value != default:
            told.append(f" {option} {shlex.quote(format(value, 'g') if isinstance(value, float) else str(value))}")
    for role, model in (run.settings.get("models") or {}).items():
        if model != "embedded":
            told.append(f" --model {shlex.quote(f'{role}={_near(model)}')}")
    return "".join(told) + _cases(run)
