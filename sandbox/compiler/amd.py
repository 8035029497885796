"""TTIR text -> AMDGCN assembly with line numbers, by the stages of the installed Triton's own AMD backend.

Relies on `HIPBackend.add_stages` (3.6 to 3.9). The TTIR may come from a trace for another vendor's device: what that
device's libraries or inline assembly stand in does not compile here, and the backend says so. Nothing is ever run.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton import knobs
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.compiler.compiler import make_backend

LANES = 64  # of a wave, on CDNA


@dataclass(frozen=True)
class Assembled:
    ttgir: str  # without locations: its lines are those that `amdgcn` names
    located: str
    amdgcn: str
    facts: dict[str, Any]  # name, shared


def assemble(ttir: Path, plain: Path, arch: str, options: dict[str, Any]) -> Assembled:
    """Compile one kernel for `arch` (gfx950), writing the TTGIR to `plain`. Raises what MLIR and LLVM raise."""
    knobs.compilation.disable_line_info = False
    backend = make_backend(GPUTarget("hip", arch, LANES))
    parsed = backend.parse_options({**options, "arch": arch})
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, Language.TRITON)
    metadata: dict[str, Any] = dict(vars(parsed))  # as Triton's own driver of the stages does
    module = stages["ttgir"](stages["ttir"](_read(backend, ttir), metadata), metadata)
    plain.write_text(module.str_nodebug())
    amdgcn = stages["amdgcn"](stages["llir"](_read(backend, plain), metadata), metadata)
    stages["hsaco"](amdgcn, metadata)  # whether it assembles
    facts = {f: metadata[f] for f in ("name", "shared")}
    return Assembled(plain.read_text(), str(module), amdgcn, facts)


def _read(backend: Any, path: Path) -> Any:
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = ir.parse_mlir_module(str(path), context)
    module.context = context
    return module
