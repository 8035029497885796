"""`python -m pgo_agent.sandbox.compiler.gluon FOLDER ARCH`: writes Gluon's functions as lines into
FOLDER/out/result.json.

Relies on Triton's package alone. Names that an installed version lacks are missing from the answer, and one without
Gluon leaves no lines.
"""

import importlib
import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = "triton.experimental.gluon"
HIDDEN = {"self", "_semantic", "_generator", "_builder", "cga_layout"}
LONGEST = 118  # characters of a line
LANGUAGE = (  # of the language's many names those that a tuned kernel is made of; the others are Triton's own
    *("NVMMADistributedLayout", "NVMMASharedLayout", "BlockedLayout", "SliceLayout", "DotOperandLayout"),
    *("SwizzledSharedLayout", "allocate_shared_memory", "warp_specialize", "convert_layout", "arange", "full", "zeros"),
    *("load", "store", "expand_dims", "max", "sum", "maximum", "minimum", "where", "exp2", "log2", "cdiv"),
    *("program_id", "num_programs", "thread_barrier", "static_range"),
)
UNLISTED = ("warpgroup_mma_init",)  # in a module, but not in its own list
MEMORY = ("index", "slice", "permute", "reshape", "load", "store")  # of a piece of shared memory


def listed(arch: int) -> list[str]:
    """Return a line for each function: how it is called, and its first sentence. Empty where there is no Gluon."""
    try:
        gl = importlib.import_module(f"{ROOT}.language")
    except ImportError:
        return []
    lines = [*_module("gl", gl, LANGUAGE)]
    lines += [_line(f"smem.{n}", getattr(gl.shared_memory_descriptor, n)) for n in _available(gl, MEMORY)]
    family = {9: "hopper", 10: "blackwell"}.get(arch // 10, "ampere")
    for name in (family, f"{family}.tma", f"{family}.mbarrier"):
        lines += _module(name.rpartition(".")[2] if "." in name else "", _imported(f"{ROOT}.language.nvidia.{name}"))
    host = getattr(_imported(f"{ROOT}.nvidia.{family}"), "TensorDescriptor", None)
    return [*lines, *([_line("TensorDescriptor.from_tensor", host.from_tensor)] if host else [])]


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _available(gl: Any, names: Iterable[str]) -> list[str]:
    memory = getattr(gl, "shared_memory_descriptor", None)
    return [n for n in names if hasattr(memory, n)]


def _module(prefix: str, module: Any, names: Iterable[str] | None = None) -> Iterator[str]:
    """Yield the functions and classes of a module, in the order of `names` or else of its own list."""
    chosen = (*getattr(module, "__all__", ()), *UNLISTED) if names is None else names
    for name in (n for n in chosen if callable(getattr(module, n, None))):
        yield _line(f"{prefix}.{name}" if prefix else name, getattr(module, name))


def _line(name: str, thing: Any) -> str:
    called = f"{name}{_signature(thing)}"
    first_line = (inspect.getdoc(thing) or "").strip().split("\n")[0]
    summary = first_line if first_line and not first_line.startswith(f"{name.rpartition('.')[2]}(") else ""
    called = called if len(called) <= LONGEST else f"{called[: LONGEST - 5].rpartition(', ')[0]}, ...)"
    return f"{called} # {summary}" if summary and len(called) + len(summary) + 3 <= LONGEST else called


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(getattr(thing, "fn", thing))
    except (TypeError, ValueError):
        return "(...)"
    parameters = (
        p for n, p in signature.parameters.items() if n not in HIDDEN and not repr(p.default).startswith("<PROP")
    )
    shown = [p.replace(annotation=p.empty) for p in parameters]
    return str(signature.replace(parameters=shown, return_annotation=signature.empty))


if __name__ == "__main__":
    (Path(sys.argv[1]) / "out" / "result.json").write_text(json.dumps({"lines": listed(int(sys.argv[2]))}))
