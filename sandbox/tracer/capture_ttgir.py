"""Stops Triton's compiler at TTGIR and remembers, for every kernel that a launcher loads, its text and options.

The tracer needs no cubin: the compiler process makes those from this TTGIR. Only a launcher that asks a compiled
kernel for its registers (to size a persistent grid) needs the rest; it raises NeedsCubin, and another process is begun
with `full=True`. With `located=True` it also keeps what a profile needs: the TTGIR with its locations, and the TTIR,
which another architecture's backend can start from. Relies on Triton's stage hook and on the names of CompiledKernel's
attributes (3.6 to 3.9).
"""

import dataclasses
import hashlib
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import triton
from pgo_agent.sandbox.compiler import nvidia_tools
from triton import knobs
from triton.compiler.compiler import CompiledKernel
from triton.runtime import cache

SHAPE = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # options that shape TTGIR, and are gone behind it
OPTIONS = ("enable_fp_fusion", "launch_pdl", "launch_cooperative_grid", "ptx_options")
# Options that act before there is TTGIR, so that it has them in it, or that say nothing of the code. What is in no list
# here acts behind TTGIR: a kernel that is compiled from that alone would be another than the one that is launched.
_EARLY = frozenset({
    "warp_size", "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "default_dot_input_precision",
    "allowed_dot_input_precisions", "max_num_imprecise_acc_default", "backend_name", "debug", "sanitize_overflow",
    "arch",
})  # fmt: skip
_OVERRIDES = (".ttir", ".ttgir")  # of `ir_override`: such a text is in place when TTGIR is remembered
_NAME = re.compile(r"tt\.func public @([A-Za-z_]\w*)")


class NeedsCubin(BaseException):
    """The launcher reads what only a finished cubin says. Not an Exception: a launcher must not swallow it."""


@dataclass
class Capture:
    """Kernels by the handle that a launch names."""

    full: bool
    located: bool = False
    refuse: Callable[[str], NoReturn] | None = None  # a launch whose kernel would be judged as another one
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)  # Triton's hash -> ttgir, options
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)  # Triton's hash -> ttir, shape
    handles: dict[int, str] = field(default_factory=dict)  # function handle -> Triton's hash

    def install(self) -> None:
        knobs.runtime.add_stages_inspection_hook = self._hook
        knobs.runtime.kernel_load_end_hook.add(self._loaded)
        cache.triton_key = lambda: triton.__version__  # it hashes all of Triton, and this cache ends with the process
        if not self.full:
            for name in ("n_regs", "n_spills", "n_max_threads"):
                setattr(CompiledKernel, name, _asks_for_cubin(name))

    def kernel(self, handle: int) -> dict[str, Any]:
        return self.texts[self.handles[handle]]

    def resources(self, cubin: bytes) -> tuple[int, int]:
        """Return the registers and spilled words of a cubin; unknown (0, 0) when the compiler was stopped at TTGIR."""
        return usage(cubin) if self.full else (0, 0)

    def _loaded(self, _module: int, function: int, _name: str, _files: Any, key: str) -> None:
        self.handles[function] = key

    def _hook(self, *args: Any) -> Any:
        if not args:
            return "pgo-agent", "pgo-agent"  # 3.9 asks for a cache key first
        backend, stages, options, _language, _capability = args
        if self.refuse is not None and (name := _uncarried(backend, options)):
            self.refuse(
                f"the launch option {name} acts behind TTGIR, from which kernels are compiled here: leave it out"
            )
        to_llir: Callable[[Any, dict[str, Any]], Any] = stages["llir"]

        def llir(module: Any, metadata: dict[str, Any]) -> Any:
            self._remember(module, metadata)
            if self.full:
                return to_llir(module, metadata)
            metadata.update(_placeholders(str(module)))
            return "stopped at TTGIR"

        if self.located:
            stages["ttgir"] = self._keeping(stages["ttgir"])
        stages["llir"] = llir
        if self.full:
            stages["cubin"] = nvidia_tools.guarded(stages["cubin"])
        else:
            stages["ptx"], stages["cubin"] = (lambda src, _m: src), (lambda _src, _m: b"stopped at TTGIR")
        return None

    def _keeping(self, to_ttgir: Callable[[Any, dict[str, Any]], Any]) -> Callable[[Any, dict[str, Any]], Any]:
        def ttgir(module: Any, metadata: dict[str, Any]) -> Any:
            shape = {o: metadata.get(o) for o in SHAPE}
            self.sources[metadata["hash"]] = {"ttir": str(module), "shape": shape}
            return to_ttgir(module, metadata)

        return ttgir

    def _remember(self, module: Any, metadata: dict[str, Any]) -> None:
        plain = module.str_nodebug()
        options = {o: metadata.get(o) for o in OPTIONS}
        self.texts[metadata["hash"]] = {
            "name": _placeholders(plain)["name"],
            "ttgir": plain,
            "options": options,
            "key": hashlib.sha256(f"{plain}\0{sorted(options.items())}".encode()).hexdigest(),
        }
        if self.located:
            self.texts[metadata["hash"]] |= {"located": str(module)} | self.sources[metadata["hash"]]


def _uncarried(backend: Any, options: Any) -> str:
    """Return the name of an option that is not as by default, and that what is compiled from TTGIR would lack."""
    usual = backend.parse_options({})
    for name in (f.name for f in dataclasses.fields(options)):
        given = getattr(options, name)
        early = name in _EARLY or name in SHAPE or name in OPTIONS
        if early or given == getattr(usual, name, None) or (name == "ir_override" and str(given).endswith(_OVERRIDES)):
            continue
        return name
    return ""


def _placeholders(ttgir: str) -> dict[str, Any]:
    match = _NAME.search(ttgir)
    name = match[1] if match else "unnamed"
    return {
        "name": name,
        "shared": 0,
        "tmem_size": 0,
        "global_scratch_size": 0,
        "global_scratch_align": 1,
        "profile_scratch_size": 0,
        "profile_scratch_align": 1,
    }


def _asks_for_cubin(name: str) -> property:
    def read(self: Any) -> int:
        if name == "n_max_threads":  # Triton's own check of the block size at load
            return int(self.__dict__["_n_max_threads"])
        raise NeedsCubin(name)

    def write(self: Any, value: int) -> None:
        self.__dict__[f"_{name}"] = value

    return property(read, write)


def usage(cubin: bytes) -> tuple[int, int]:
    """Return (registers, spilled 32-bit words) of a cubin, by cuobjdump."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "k.cubin"
        path.write_bytes(cubin)
        text = nvidia_tools.output([knobs.nvidia.cuobjdump.path, "-res-usage", str(path)])
    match = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return (int(match[1]), int(match[2]) // 4) if match else (0, 0)
