"""Reads a definition of flashinfer-bench 0.1.2, its workloads, and a solution: JSON, as its schema has it.

What the schema asks for is checked here, so that package is not needed. Nothing of the texts inside is run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.schema import ITEMSIZE
from pgo_agent.sandbox.errors import UsageFault

ENTRY = "run"  # of a definition's reference
HINT = "see https://bench.flashinfer.ai/docs for the schema of flashinfer-bench 0.1.2"
LANGUAGES = ("triton", "python")
Number = int | float | bool


@dataclass(frozen=True)
class Spec:
    """An input or a result."""

    shape: tuple[str, ...] | None  # axes; None: a number
    dtype: str


@dataclass(frozen=True)
class Definition:
    name: str
    axes: Mapping[str, int | None]  # None: a workload gives it
    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    reference: str  # Python with run()
    constraints: tuple[str, ...]

    @property
    def open(self) -> list[str]:
        """The axes that workloads give."""
        return [n for n, v in self.axes.items() if v is None]


@dataclass(frozen=True)
class Workload:
    uuid: str
    axes: Mapping[str, int]
    numbers: Mapping[str, Number]  # inputs that are given as they are
    files: frozenset[str]  # inputs that are kept in a file


@dataclass(frozen=True)
class Solution:
    name: str
    text: str
    function: str
    into_results: bool  # it takes its results as its last arguments


def recognised(text: str) -> bool:
    """Whether a text is a definition."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and {"axes", "inputs", "outputs", "reference"} <= found.keys()


def definition(path: Path) -> Definition:
    """Read a definition. Raises UsageFault for what is none."""
    d = _json(target.text(path), path)
    try:
        axes = {str(n): int(a["value"]) if a.get("type") == "const" else None for n, a in d["axes"].items()}
        inputs, outputs = ({str(n): _spec(s) for n, s in d[part].items()} for part in ("inputs", "outputs"))
        constraints = tuple(map(str, d.get("constraints") or ()))
        found = Definition(str(d["name"]), axes, inputs, outputs, str(d["reference"]), constraints)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UsageFault(f"{path} is no definition: {type(e).__name__}: {e}", HINT) from None
    unknown = sorted(
        {a for s in (*found.inputs.values(), *found.outputs.values()) for a in s.shape or ()} - axes.keys()
    )
    wrong = [n for n in (*axes, *found.inputs, *found.outputs) if not n.isidentifier()]
    types = [s.dtype for s in (*found.inputs.values(), *found.outputs.values()) if s.dtype not in ITEMSIZE]
    for what, listed in (
        ("an axis that it does not define", unknown),
        ("no name", wrong),
        ("a type unknown here", types),
    ):
        if listed:
            raise UsageFault(f"{path} is no definition that can be judged: {listed[0]} is {what}", HINT)
    return found


def workloads(path: Path, of: Definition) -> list[Workload]:
    """Read the workloads of a definition, a line of JSON each. Raises UsageFault."""
    found = list[Workload]()
    for n, line in enumerate(target.text(path).splitlines(), 1):
        if not line.strip():
            continue
        d = _json(line, path, n)
        try:
            if "workload" in d and d.get("definition", of.name) != of.name:
                continue
            w = d.get("workload", d)
            given = {str(k): v for k, v in w["inputs"].items()}
            numbers = {k: _number(v["value"]) for k, v in given.items() if v["type"] == "scalar"}
            files = frozenset(k for k, v in given.items() if v["type"] == "safetensors")
            axes = {str(k): int(v) for k, v in w["axes"].items()}
            found.append(Workload(str(w["uuid"]), axes, numbers, files))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise UsageFault(f"{path}, line {n}: no workload: {type(e).__name__}: {e}", HINT) from None
        if lacking := [a for a in of.open if a not in found[-1].axes]:
            raise UsageFault(f"{path}, line {n}: the workload gives no {lacking[0]}", HINT)
    if not found:
        raise UsageFault(f"{path} holds no workload of {of.name}", HINT)
    return found


def solution(path: Path, of: Definition) -> Solution:
    """Read a solution of a definition. Raises UsageFault for one in another language, or of several files."""
    d = _json(target.text(path), path)
    try:
        spec, sources = d["spec"], {str(s["path"]): str(s["content"]) for s in d["sources"]}
        file, _, function = str(spec["entry_point"]).partition("::")
        found = Solution(str(d["name"]), sources[file], function, bool(spec.get("destination_passing_style", True)))
        named, language = str(d["definition"]), str(spec["language"])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UsageFault(f"{path} is no solution: {type(e).__name__}: {e}", HINT) from None
    if named != of.name:
        raise UsageFault(f"{path} is a solution of {named}, not of {of.name}", "name one of this definition")
    if language not in LANGUAGES:
        raise UsageFault(f"{path} is written in {language}", "a solution in Triton becomes a target")
    if len(sources) > 1:
        raise UsageFault(
            f"{path} has {len(sources)} files: {', '.join(sources)}", "put them into one, which a target is"
        )
    return found


def _json(text: str, path: Path, line: int = 0) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise UsageFault(f"{path}{f', line {line}' if line else ''}: no JSON: {e}", HINT) from None
    if not isinstance(found, dict):
        raise UsageFault(f"{path}{f', line {line}' if line else ''}: no JSON object", HINT)
    return found


def _spec(value: Mapping[str, Any]) -> Spec:
    shape: Sequence[Any] | None = value["shape"]
    return Spec(None if shape is None else tuple(map(str, shape)), str(value["dtype"]))


def _number(value: object) -> Number:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return value
