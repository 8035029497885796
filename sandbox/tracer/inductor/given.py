"""What a tracer in the box answers about kernels that Inductor wrote for a user's model: plain Triton kernels.

Each is imported for the launch configurations that Inductor's heuristics give it, in a process that `fake_gpu.py`
installed a stand-in in. Where its module needs another release of torch than the one here, its configurations are read
off its text, and are said to be guessed.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, parsing
from pgo_agent.sandbox.tracer import fake_addresses, fake_cuda_api, fake_gpu
from pgo_agent.sandbox.tracer.capture_ttgir import Capture
from pgo_agent.sandbox.tracer.inductor import kernel_text, launcher_text
from pgo_agent.sandbox.tracer.inductor.kernel_text import Kernel
from pgo_agent.sandbox.tracer.inductor.reference_graph import NoText

SAID = 200  # characters of an error
_BLOCKS = {"XBLOCK": 1024, "YBLOCK": 32, "ZBLOCK": 8, "RBLOCK": 1024, "R0_BLOCK": 1024, "R1_BLOCK": 64}  # at most


@dataclass(frozen=True)
class _Config:
    """As triton.Config."""

    kwargs: Mapping[str, int]
    num_warps: int
    num_stages: int


def answer(folder: Path, request: Mapping[str, Any]) -> dict[str, object]:
    """Return `kernels`, texts by name, `refused`, reasons by name, `guessed`, why configurations are guesses, by name,
    and `launches`, the statements of those that were asked for."""
    nothing = fake_cuda_api.Refusals(), fake_addresses.Addresses()
    fake_gpu.install(devices.find(request["device"]), *nothing, lambda *_a: None, Capture(False, False).resources)
    kernels, refused, guessed = dict[str, Kernel](), dict[str, str](), dict[str, str]()
    for asked in request["kernels"]:
        name = str(asked["name"])
        try:
            kernel, why = _kernel(name, str(asked["text"]), list(asked["changed"]), folder / "out", request["limit"])
            kernels[name] = kernel
            guessed |= {name: why} if why else {}
        except (Exception, SystemExit) as e:  # whatever a text leads to
            refused[name] = _said(e)
    launches = list[str]()
    for asked in request["launches"]:
        name = str(asked["kernel"])
        try:
            launches.append(launcher_text.launch(kernels[name], asked["args"]) if name in kernels else "")
        except NoText as e:
            refused[name] = str(e)
            launches.append("")
    texts = {n: k.text for n, k in kernels.items()}
    return {"kernels": texts, "refused": refused, "guessed": guessed, "launches": launches}


def _kernel(name: str, text: str, changed: Sequence[str], folder: Path, most: int) -> tuple[Kernel, str]:
    """Return a kernel, and why its configurations are guesses; empty if they are Inductor's own."""
    function, call = _parts(name, text)
    try:
        tuned = kernel_text.loaded(name, text, folder)
        configs, grid = tuned.configs, str(tuned.inductor_meta.get("grid_type") or _grid(function))
        why = ""
    except (Exception, SystemExit) as e:
        configs, grid, why = [_stated(function, call)], _grid(function), _said(e)
    if grid not in (*kernel_text.GRIDS, "FixedGrid"):
        raise NoText(f"it is launched on a grid of a kind that no target has yet ({grid})")
    return kernel_text.written(name, text, function, configs, grid, changed, most), why


def _parts(name: str, text: str) -> tuple[ast.FunctionDef, ast.Call | None]:
    found = [n for n in parsing.module(text).body if isinstance(n, ast.FunctionDef) and n.name == name]
    if not found:
        raise NoText(f"{name} is not the function that it says")
    call = next((d for d in found[0].decorator_list if isinstance(d, ast.Call)), None)
    found[0].decorator_list = []
    return found[0], call


def _grid(function: ast.FunctionDef) -> str:
    """Return the kind of grid that the sizes of a kernel's text call for."""
    names = {a.arg for a in function.args.args}
    axes = sum(f"{axis}BLOCK" in names | _set(function) for axis in "XYZ")
    return ("FixedGrid", "Grid1D", "Grid2D", "Grid3D")[axes]


def _set(function: ast.FunctionDef) -> set[str]:
    return set(kernel_text.constants(function))


def _stated(function: ast.FunctionDef, call: ast.Call | None) -> _Config:
    """Return one configuration, of what a kernel's decorator says and of usual blocks."""
    said = {k.arg: k.value.value for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)} if call else {}
    hints = dict(_hints(call)) if call else {}
    blocks = {}
    for arg in function.args.args:
        if arg.annotation is not None and arg.arg in _BLOCKS:
            hint = hints.get(arg.arg.lower().removesuffix("block"), _BLOCKS[arg.arg])
            blocks[arg.arg] = max(1, min(_BLOCKS[arg.arg], hint))
    if any(n.startswith("R") for n in blocks):
        blocks["XBLOCK"] = min(blocks.get("XBLOCK", 1), 8)
    return _Config(blocks, _int(said.get("num_warps"), 4), _int(said.get("num_stages"), 1))


def _int(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _hints(call: ast.Call) -> Iterator[tuple[str, int]]:
    """Yield the lengths that Inductor took the indices to have: `x`, `r0_`."""
    for keyword in (k for k in call.keywords if k.arg == "size_hints"):
        match keyword.value:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                        yield str(key.value), _int(value.value, 1024)


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:SAID] if not isinstance(error, NoText) else str(error)
