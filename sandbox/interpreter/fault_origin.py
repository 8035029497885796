"""Whose fault an exception is: the candidate's, or that of an interpreter that lacks something.

What was raised inside of Triton's interpreter, its language or ours is the interpreter's lack, whatever it says: the
compiler has taken the same kernel. Exempt is what those raise for a kernel's own mistakes. What is raised in the
candidate's own lines is the candidate's.
"""

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.interpreter.deadline import Overtime
from pgo_agent.sandbox.interpreter.unsupported import KernelFault

_INSIDE = ("/triton/runtime/", "/triton/language/", "/sandbox/interpreter/", "/numpy/")
_NOT_INSIDE = ("/sandbox/interpreter/cuda_as_cpu.py",)  # what torch raises comes through it
_OWN_MISTAKES = {  # functions whose AssertionError or TypeError says what a kernel did
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
    """What the answer holds of an exception: the error, the candidate's line, and whether it is the interpreter's."""
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
    """Whether it is the interpreter that lacks something, and not the kernel."""
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith("triton.runtime.interpreter"):
        return True  # something that a compiled kernel has
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
    """The exception and what caused it, as `raise ... from` says: Triton wraps one for each call."""
    while error is not None:
        yield error
        error = error.__cause__
