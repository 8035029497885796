"""Programmatic dependent launch in Triton's interpreter: `griddepcontrol` waits for nothing, as launches run in turn.

Whether a kernel waits where it has to is the business of the gate (`gate/synchronisation/dependent_launch.py`), which
reads the compiled text. Any other inline assembly is lacking.
"""

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import triton.language as tl
from pgo_agent.sandbox.interpreter.libdevice import also_in_copies
from pgo_agent.sandbox.interpreter.unsupported import Lacking
from triton.runtime import interpreter

HOMES = ("triton.language.extra.cuda", "triton.language.extra.cuda.gdc")
NAMES = ("gdc_wait", "gdc_launch_dependents")
_INSTRUCTION = re.compile(r"\s*griddepcontrol\.(wait|launch_dependents)\s*;?\s*(//[^\n]*)?\s*")


@dataclass(frozen=True)
class _Nothing:
    """What such an instruction gives: numbers that mean nothing."""

    def get_result(self, _i: int) -> Any:
        return interpreter.TensorHandle(np.zeros(1, np.int32), tl.int32)


def install() -> None:
    """Replace Triton's functions, and the instructions themselves. Call it before a candidate is imported."""
    from triton.language.extra import cuda  # Triton executes the package twice: this, and what sys.modules holds

    functions = dict.fromkeys(NAMES, _done)
    for module in (cuda, *map(import_module, HOMES)):
        vars(module).update(functions)
    also_in_copies(HOMES, functions)
    interpreter.InterpreterBuilder.create_inline_asm = _assembly


def _done(_semantic: Any = None) -> None:
    """Wait for the launches before, which have ended; or let the next one begin, which begins after this one."""


def _assembly(_builder: Any, text: str, *_rest: Any) -> _Nothing:
    if not _INSTRUCTION.fullmatch(text):
        raise Lacking("inline assembly")
    return _Nothing()
