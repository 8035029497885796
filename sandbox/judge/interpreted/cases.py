"""What Triton's interpreter runs: small cases and small held-out cases, with their inputs.

Imports the contract, which finds the CPU where it names 'cuda'. Gives the reason where a case is too large for the
interpreter. Launches nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pgo_agent.sandbox import target
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.reason import Reason, of_case
from pgo_agent.sandbox.imports import uncompiled
from pgo_agent.sandbox.in_place import tensors as tensors_of
from pgo_agent.sandbox.interpreter.as_shipped import HELD_OUT_BYTES, HELD_OUT_FLOPS
from pgo_agent.sandbox.interpreter.cuda_as_cpu import DevicesOnCpu, answering
from pgo_agent.sandbox.judge.results.stress_inputs import StressInput
from torch.utils._python_dispatch import TorchDispatchMode

STORED = 64 << 20  # bytes of a tensor of such a case


@dataclass(frozen=True)
class Trial:
    """A case with its secret inputs."""

    case: str  # with its section where it is held out: HELD_OUT/odd
    seed: int
    inputs: dict[str, object]
    stress_input: StressInput | None = None
    in_place: tuple[str, ...] = ()  # inputs that kernel() changes

    @property
    def label(self) -> str:
        return f"{self.case} with {self.stress_input.name}" if self.stress_input else self.case

    @property
    def why(self) -> Reason:
        """Return the label as a part of a reason."""
        return of_case(self.case, text=None if self.held_out else self.label)

    @property
    def held_out(self) -> bool:
        return self.case.startswith(HELD_OUT)


def contract_on_cpu(path: Path, device: Device) -> ModuleType:
    """Import the contract at `path`; its inputs and reference run on the CPU. Raises what the file raises.

    `device`: the GPU that packages believe to be there while it is imported.
    """
    with answering(device), DevicesOnCpu():
        module = target.load(path, "pgo_target")
    for name in ("inputs", "reference"):
        setattr(module, name, _on_cpu(getattr(module, name)))
    return module


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        with DevicesOnCpu():
            return function(*args, **options)

    return call


def params(module: ModuleType, case: str) -> dict[str, object]:
    """Return the parameters of a small or a held-out case."""
    case_params = module.HELD_OUT[case[len(HELD_OUT) :]] if case.startswith(HELD_OUT) else module.SMALL[case]
    return dict(case_params)


def large(module: ModuleType, params: dict[str, object]) -> str:
    """Return why a held-out case is too large for the interpreter; empty when it is small."""
    try:
        flops, moved = float(module.flops(params)), float(module.bytes_moved(params))
    except Exception as e:
        return f"its size is not known: {type(e).__name__}: {e}"[:300]
    if flops > HELD_OUT_FLOPS or moved > HELD_OUT_BYTES:
        return f"too large for the interpreter: {flops:.3g} flops, {moved:.3g} bytes"
    try:
        with _Bounded():
            module.inputs(params, torch.Generator())
    except _TooLarge as e:
        return f"too large for the interpreter: a tensor of {e}"
    except Exception as e:
        return f"inputs() raised {type(e).__name__}: {e}"[:300]
    return ""


class _TooLarge(Exception):
    """A tensor takes more memory than an interpreted case may."""


class _Bounded(TorchDispatchMode):  # type: ignore[misc]
    """Raises _TooLarge before a tensor of more than STORED bytes is made, even if few of them are moved."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch to leave the method below as it is."""
        return False

    @uncompiled
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        sizes = args[0] if args else None
        if isinstance(sizes, list | tuple) and all(type(n) is int for n in sizes):
            itemsize = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            if (nbytes := math.prod(sizes) * itemsize) > STORED:
                raise _TooLarge(f"{nbytes:.3g} bytes")
        return func(*args, **kwargs)


def floats(inputs: dict[str, object]) -> list[Any]:
    return [t for t in tensors_of(inputs) if t.is_floating_point()]
