"""TTGIR text -> llir, ptx, cubin and launch metadata, by the stages of the installed Triton's own NVIDIA backend.

Relies on `CUDABackend.add_stages` (3.6 to 3.9). Timed builds carry no line info (TRITON_DISABLE_LINE_INFO is set by
`__main__`), so the same program gives the same code in any folder. Options that reach ptxas are plain switches,
and the flags that `ptxas.py` allows.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from pgo_agent.sandbox.compiler import nvidia_tools, proton, ptxas
from triton import knobs
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.compiler.compiler import make_backend

SWITCHES = ("enable_fp_fusion", "launch_pdl", "launch_cooperative_grid")
# For a sanitized build, whatever the candidate asks of ptxas: that of attention is assembled in 5.7 s instead of 12.8,
# one of a warp-specialized GEMM in 41 instead of 88. What the sanitizer looks at stands in the IR; at 0 code is 8 times
# as large, and takes longer.
QUICK = "--opt-level=1"
LAUNCH_FIELDS = (
    "name",
    "shared",
    "num_warps",
    "num_ctas",
    "global_scratch_size",
    "global_scratch_align",
    "profile_scratch_size",
    "profile_scratch_align",
    "launch_cooperative_grid",
    "launch_pdl",
    "tensordesc_meta",
)


@dataclass(frozen=True)
class Finished:
    cubin: bytes
    ptx: str
    metadata: dict[str, Any]  # LAUNCH_FIELDS, arch and triton
    scopes: list[list[Any]]  # [number, name] of each scope of a text with records


def read(ttgir: Path, arch: int) -> tuple[Any, Any]:
    """Return the module that MLIR's parser and verifier accept, and the backend. Raises RuntimeError; why goes to
    stderr."""
    backend = make_backend(GPUTarget("cuda", arch, 32))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = ir.parse_mlir_module(str(ttgir), context)
    module.context = context
    return module, backend


def facts(module: Any) -> dict[str, Any]:
    """Return what a launch must know of a module: warps of a block, blocks of a cluster, layouts of its host
    descriptors."""
    return {
        "num_warps": module.get_int_attr("ttg.num-warps"),
        "num_ctas": module.get_int_attr("ttg.num-ctas") or 1,
        "tensordesc_meta": module.get_tensordesc_metadata(),
    }


def finish(ttgir: Path, arch: int, options: dict[str, Any]) -> Finished:
    """Compile one kernel. Raises BadBundle, or whatever MLIR, LLVM or ptxas raise; a crash takes the process.

    With the option `sanitize` Triton's concurrency sanitizer is built in, with `reassemble` another ptxas assembles,
    with `records` clock reads are stored: none of these is ever timed. Raises BadBundle where that other ptxas is not
    installed.
    """
    if options.get("reassemble"):
        os.environ["TRITON_PTXAS_PATH"] = os.environ["TRITON_PTXAS_BLACKWELL_PATH"] = ptxas.second()
    if options.get("records"):
        proton.install(proton.options(options["records"]))
    module, backend = read(ttgir, arch)
    scopes = proton.scopes(module) if options.get("records") else []
    switches = {k: bool(options[k]) for k in SWITCHES if options.get(k) is not None}
    launch_facts = facts(module)
    flags = QUICK if options.get("sanitize") else " ".join(ptxas.flags(options.get("ptx_options")))
    warps = {f: launch_facts[f] for f in ("num_warps", "num_ctas")}
    mode = "consan" if options.get("sanitize") else ""
    knobs.compilation.instrumentation_mode = mode  # 3.6 reads the knob, later ones the option
    parsed = backend.parse_options({**warps, "ptx_options": flags, "instrumentation_mode": mode, **switches})
    metadata: dict[str, Any] = {f: getattr(parsed, f) for f in ("num_warps", "num_ctas", *SWITCHES[1:])}
    metadata["tensordesc_meta"] = launch_facts["tensordesc_meta"]
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, Language.TRITON)
    llir = stages["llir"](module, metadata)
    ptx = stages["ptx"](llir, metadata)
    cubin = nvidia_tools.guarded(stages["cubin"])(ptx, metadata)
    launch = {f: metadata[f] for f in LAUNCH_FIELDS}
    for scratch in ("global_scratch", "profile_scratch"):
        launch[f"{scratch}_size"] = launch[f"{scratch}_size"] or 0
        launch[f"{scratch}_align"] = launch[f"{scratch}_align"] or 1
    return Finished(cubin, ptx, launch | {"arch": arch, "triton": triton.__version__}, scopes)
