"""Decides whether an exception is the candidate's fault, or the interpreter lacks something.

An exception inside of Triton's interpreter, its language or this package means that the interpreter lacks something,
because the compiler accepted the kernel; except where those report a kernel's own mistakes. An exception in the
candidate's own lines is the candidate's fault.
"""

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.interpreter.deadline import Overtime
from pgo_agent.sandbox.interpreter.unsupported import KernelFault

_INSIDE = ("/triton/runtime/", "/triton/language/", "/sandbox/interpreter/", "/numpy/")
_NOT_INSIDE = ("/sandbox/interpreter/cuda_as_cpu.py",)  # what torch raises comes through it
_KERNELS = ("triton.runtime.interpreter", "pgo_agent.sandbox.interpreter.functions")  # modules of interpreted kernels
_OWN_MISTAKES = {  # functions whose AssertionError or TypeError reports a kernel's mistake
    "_new_static_assert",
    "create_assert",
    "create_assume",
    "validate",
    "materialize_pointers",
    "getcallargs",
    "_missing_arguments",
    "_too_many",
    "_grid",
}
_CPU = "not implemented for '"  # torch's words for a type that an operation lacks on the CPU


def entry(error: BaseException, candidate: Path) -> dict[str, Any]:
    """Return the answer for an exception: the error, the candidate's line, and whether it is unsupported."""
    chain = list(_chain(error))
    root = next((e for e in chain if isinstance(e, KernelFault)), chain[-1])
    lines = [f.lineno for e in reversed(chain) for f in _frames(e) if f.filename == str(candidate)]
    inner = [f.lineno for f in _frames(root) if f.filename == str(candidate)] or lines
    fields = {"error": str(root)[:2000], "line": inner[-1] if inner else None, "unsupported": False}
    if late := next((e for e in chain if isinstance(e, Overtime)), None):
        return fields | {"error": str(late), "unsupported": not late.endless, "endless": late.endless}
    if isinstance(root, KernelFault):
        return fields | {"verdict": root.verdict}
    if isinstance(root, NotImplementedError) and "interpreter mode" in str(root):
        return fields | {"unsupported": True}
    return fields | {"error": f"{type(root).__name__}: {root}"[:2000], "unsupported": unsupported(root)}


def unsupported(error: BaseException) -> bool:
    """Whether the interpreter lacks something, so that the kernel is not to blame."""
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith(_KERNELS):
        return True  # an attribute that only a compiled kernel has
    if isinstance(error, NotImplementedError | RuntimeError) and _CPU in str(error):
        return True
    frames = _frames(error)
    if not frames or frames[-1].name in _OWN_MISTAKES:
        return False
    place = frames[-1].filename
    return any(p in place for p in _INSIDE) and not any(p in place for p in _NOT_INSIDE)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Give the exception and its causes (`raise ... from`): Triton wraps one for each call."""
    while error is not None:
        yield error
        error = error.__cause__
