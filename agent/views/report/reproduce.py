"""How to reproduce a run: its machine, versions and settings, and commands for a shell."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pgo_agent.agent.llm.models import EMBEDDED
from pgo_agent.agent.run import settings
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.settings import SEARCH
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.judge.machine import NOWHERE, Environment

UNTOLD = "not recorded"


def environment(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a run's environment."""
    measured = run.environment or NOWHERE
    yield "GPU", _gpu(run, measured)
    if measured:
        cuda = f", CUDA {measured.cuda_driver}" if measured.cuda_driver else ""
        yield "driver", f"{measured.driver or UNTOLD}{cuda}"
        yield "torch", measured.torch or UNTOLD
    yield "triton", _triton(run, measured)
    if measured.python:
        yield "Python", measured.python
    yield "pgo-agent", _ours(run)
    yield "kernel file", f"{Path(run.target).name}, SHA-256 of its text and contract {run.digest}"
    yield "run", f"{run.id}, begun {run.created}; {run.seconds:.0f} s, of these {run.gpu_seconds:.0f} s of the GPU"
    yield "judge", _near(run.settings.judge)
    if models := run.facts.models:
        yield "models", ", ".join(f"{role}: {_near(name)}" for role, name in models.items())


def _gpu(run: Run, measured: Environment) -> str:
    if not measured:
        return f"none; compiled for {devices.find(run.device).name}"
    peaks = [f"{peak:g} {unit}" for unit, peak in measured.peaks.items() if peak]
    reached = f"; this one was seen to reach {' and '.join(peaks)}" if peaks else ""
    return f"{measured.gpu or UNTOLD}{reached}"


def _triton(run: Run, measured: Environment) -> str:
    compiled, there = run.facts.triton, measured.triton
    if compiled and there and compiled != there:
        return f"{compiled} compiled; {there} on the GPU's machine"
    return str(compiled or there or UNTOLD)


def _ours(run: Run) -> str:
    ours = run.facts.pgo_agent
    return f"{ours.version}, commit {ours.commit}" if ours else f"{UNTOLD}: the run is of an older version"


def commands(run: Run, chosen: Candidate | None, steered: bool) -> Iterator[tuple[str, str]]:
    """Yield the purpose of each command, and the command. `steered`: a person made requests while it ran."""
    name, file = run.id, shlex.quote(Path(run.target).name)
    if run.facts.given:
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
    if run.summary_json is None and run.state != "failed":
        yield "go on with the run", f"pgo-agent resume {name}"


def _near(name: str) -> str:
    """Return a judge or a model without the folders of the run's machine."""
    kind, colon, place = name.partition(":")
    return f"{kind}:{Path(place).name}" if colon and place.startswith("/") else name


def given(run: Run) -> str:
    """Return the name of the file that a check was given."""
    return Path(run.facts.given[0].name).name


def _cases(run: Run) -> str:
    return "".join(_option(run, "cases"))


def _options(run: Run) -> str:
    """Return the run's options, without defaults and without those that depend on its machine."""
    asked = (name for name, o in settings.OPTIONS.items() if o.commands >= SEARCH and not o.of_machine)
    return "".join(part for name in asked for part in _option(run, name))


def _option(run: Run, name: str) -> Iterator[str]:
    """Yield a setting as the command line takes it, once for each value; nothing for a default."""
    value, flag = getattr(run.settings, name), settings.flag(name)
    if value is True and value != settings.DEFAULTS[name]:
        yield f" {flag}"
    elif value != settings.DEFAULTS[name]:
        yield from (f" {flag} {shlex.quote(text)}" for text in _texts(name, value))


def _texts(name: str, value: object) -> Iterator[str]:
    if name == "models":
        roles = (text.split("=", 1) for text in cast(tuple[str, ...], value))
        yield from (f"{role}={_near(model)}" for role, model in roles if model != EMBEDDED)
    elif isinstance(value, tuple):
        yield from value
    else:
        yield format(value, "g") if isinstance(value, float) else str(value)
