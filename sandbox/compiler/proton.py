"""Triton's Proton passes in the compiler: `proton.record start|end "name"` in a TTGIR text becomes a clock read.

Each read is stored with the scope's number in a buffer of its warp, in the block's part of the profile scratch. Relies
on the passes that the Triton wheel brings (3.6: attributes of the backend's class; 3.9: `triton._instrumentation`), and
on none of Proton's sessions. They settle for the whole process, so only a child that compiles one kernel may call
`install`. The format: `sandbox/profile/timeline/`.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pgo_agent.sandbox.errors import BadBundle

ALIGN = 128  # bytes: what Proton's own host side gives a block's part of the scratch


@dataclass(frozen=True)
class Options:
    """Room for records, all in global memory."""

    size: int  # bytes for a block
    shared: int  # bytes of shared memory that a block may have on the device


def options(value: Any) -> Options:
    """Return what a kernel's option `records` says. Raises BadBundle."""
    try:
        result = Options(int(value["size"]), int(value["shared"]))
    except (KeyError, TypeError, ValueError) as e:
        raise BadBundle(f"records: {type(e).__name__}") from None
    if not 0 < result.size < 1 << 22 or not 0 < result.shared < 1 << 20:
        raise BadBundle(f"records: {result}")
    return result


def load() -> None:
    """Make this process's NVIDIA backend know the dialect, so that texts with records can be read."""
    from triton._C.libtriton import proton

    _register(proton.load_dialects)


def install(settings: Options) -> None:
    """Make this process's NVIDIA backend know the dialect and run the passes."""
    from triton._C.libtriton import passes, proton

    def lower(pm: Any) -> None:
        proton.add_convert_proton_to_protongpu(
            pm,
            proton.METRIC_TYPE.CYCLE,
            proton.SAMPLING_STRATEGY.NONE,
            "",
            proton.GRANULARITY.WARP,
            proton.BUFFER_STRATEGY.CIRCULAR,
            proton.BUFFER_TYPE.GLOBAL,
            settings.size,
            settings.shared,
            1,  # bytes of scratch for all blocks: at least
            ALIGN,
            False,  # 32 bits of the clock: half of the reads; a scope of 2^32 cycles takes two seconds
        )
        passes.common.add_cse(pm)
        proton.add_allocate_proton_shared_memory(pm)

    def finish(pm: Any) -> None:
        if hasattr(proton, "add_allocate_proton_global_scratch_buffer"):  # until 3.8; then it is a part of the next
            proton.add_allocate_proton_global_scratch_buffer(pm)
        proton.add_convert_proton_nvidia_gpu_to_llvm(pm)

    _register(proton.load_dialects, {"ttgpuir-to-llvmir": lower, "llvmir-to-llvm": finish})


def _register(load: Any, passes: Mapping[str, Any] = MappingProxyType({})) -> None:
    if importlib.util.find_spec("triton._instrumentation"):
        from triton._instrumentation import register_instrumentation

        for point, callback in {"load-dialects": load, **passes}.items():
            register_instrumentation(point=point, backend="nvidia", callback=callback)
        return
    from triton.backends.nvidia.compiler import CUDABackend

    CUDABackend.instrumentation = _Until38(load, {p.replace("-", "_"): c for p, c in passes.items()})


class _Until38:
    """What `CUDABackend.instrumentation` must be able to do."""

    def __init__(self, load: Any, passes: dict[str, Any]) -> None:
        self.load_dialects, self._passes = load, passes

    def patch(self, point: str, pm: Any, context: Any) -> None:
        self.load_dialects(context)
        if point in self._passes:
            self._passes[point](pm)


def scopes(module: Any) -> list[list[Any]]:
    """Return [number, name] of each scope, as the records will name them."""
    from triton._C.libtriton import proton

    return [[int(number), str(name)] for number, name in proton.get_scope_id_names(module)]
