"""What a tracer in the box answers about a target's reference: its kernel parts by Inductor, or why there are none.

Public cases that differ in types, or in what is no number, are traced by themselves. Each reference is traced twice:
with all sizes open, and with rows (the last dimension of a tensor that has several) of the length that they have, which
lets Inductor hold a row at once. Runs in a process that `fake_gpu.py` installed a stand-in in.
"""

import inspect
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.tracer import fake_addresses, fake_cuda_api, fake_gpu
from pgo_agent.sandbox.tracer.capture_ttgir import Capture
from pgo_agent.sandbox.tracer.inductor import launcher_text, reference_graph
from pgo_agent.sandbox.tracer.inductor.launcher_text import KernelPart
from pgo_agent.sandbox.tracer.inductor.reference_graph import NoText

MOST_KINDS = 3  # of cases
SAID = 300  # characters of what torch says


def answer(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return `variants`, the parts of a kernel file for each way to trace the reference, and `refused`, reasons."""
    capture = Capture(False, False)
    nothing = fake_cuda_api.Refusals(), fake_addresses.Addresses()
    fake_gpu.install(devices.find(request["device"]), *nothing, lambda *_a: None, capture.resources)
    torch.compile = fake_cuda_api.compiled(lambda function: function)
    with fake_gpu.FakeMode(allow_non_fake_inputs=True):
        contract = target.load(folder / request["contract"], "pgo_target")
        kernel = target.load(folder / request["candidate"], "pgo_candidate").kernel
        given = [contract.inputs(contract.CASES[n], fake_gpu.Generator()) for n in request["cases"]]
    allowed = frozenset(map(str, request["allowed"]))
    kinds = list(_kinds(given))[:MOST_KINDS]
    variants, refused = list[dict[str, Any]](), list[str]()
    for rows in (False, True):
        parts = list[KernelPart]()
        for i, inputs in enumerate(kinds):
            name = request["name"] + (f"_{i + 1}" if i else "")
            try:
                written = reference_graph.write(contract.reference, inputs, _in_place(request), rows, allowed)
                at = list(inspect.signature(kernel).parameters)
                parts.append(launcher_text.kernel_part(written, name, at, folder / "out", request["limit"], allowed))
            except Exception as e:  # whatever torch raises
                if isinstance(e, MemoryError) or (isinstance(e, OSError) and e.errno is not None):
                    raise  # of this machine, and not of this reference
                refused.append(_said(e))
        variants += [{"rows": rows, "parts": [vars(p) for p in parts]}] if parts else []
    return {"variants": variants, "refused": list(dict.fromkeys(refused))}


def _kinds(given: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the largest inputs of each kind: those that one text cannot serve are of different kinds."""
    seen = set[str]()
    for inputs in sorted(given, key=reference_graph.elements, reverse=True):
        kind = repr({n: _kind(v) for n, v in inputs.items()})
        if kind not in seen:
            seen.add(kind)
            yield inputs


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.dim()
    return type(value).__name__ if type(value) in (int, float) else value


def _in_place(request: Mapping[str, Any]) -> dict[int, str]:
    return {int(i): str(name) for i, name in request["in_place"]}


def _said(error: Exception) -> str:
    if isinstance(error, NoText):
        return str(error)
    lines = traceback.format_exception_only(error)
    return " ".join("".join(lines).split())[:SAID]
