"""`python -m pgo_agent.sandbox.tracer.with_tritonparse FOLDER KIND ARGS`: runs a program under tritonparse's hooks.

The program runs as it is, on this machine's GPU, and not in the box: the person at the machine asked for it. FOLDER
gets tritonparse's trace, and an event with the GPU's time of every kernel, by torch.profiler. Values of tensors are
looked at for a few launches of each compilation: that takes kernels of its own, which are no Triton kernels. Relies on
tritonparse 0.6 and on CUPTI through torch.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.tracer import user_program

TIMES = "pgo_agent_times"  # the event with measured times
VALUES = 3  # launches of each compilation whose tensors are looked at
WINDOW = 20_000  # launches that the profiler holds at once


class Profiler:
    """The GPU's time of kernels by name, over windows, so that memory stays flat."""

    def __init__(self) -> None:
        self.ms = dict[str, float]()
        self.why = ""  # why there are no times
        self.gpu = ""
        self._launches = 0
        self._open: Any = None

    def begin(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        self._launches = 0
        try:
            if not torch.cuda.is_available():
                raise RuntimeError("no GPU")
            self.gpu = torch.cuda.get_device_name()
            self._open = profile(activities=[ProfilerActivity.CUDA])
            self._open.__enter__()
        except Exception as e:  # whatever CUPTI refuses
            self._open, self.why = None, f"{type(e).__name__}: {e}"[:300]

    def end(self) -> None:
        """Add up what was seen since it began."""
        if self._open is None:
            return
        import torch

        torch.cuda.synchronize()
        self._open.__exit__(None, None, None)
        for event in self._open.events():
            if str(event.device_type).endswith("CUDA"):
                self.ms[str(event.name)] = (
                    self.ms.get(str(event.name), 0.0) + float(event.self_device_time_total) / 1000
                )
        self._open = None

    def launched(self) -> None:
        self._launches += 1
        if self._launches >= WINDOW and self._open is not None:
            self.end()
            self.begin()


def main(folder: Path, kind: str, args: list[str]) -> None:
    from tritonparse import structured_logging

    structured_logging.init(str(folder), enable_trace_launch=True, enable_full_python_source=True)
    profiler = Profiler()
    structured_logging.add_launch_metadata = _watched(structured_logging, profiler)
    profiler.begin()
    try:
        user_program.run(kind, args, set())
    finally:
        profiler.end()
        _write(folder, profiler)


def _watched(logging: Any, profiler: Profiler) -> Callable[..., Any]:
    """Return tritonparse's look at a launch, with values of tensors for the first launches of a compilation alone."""
    look, seen = logging.add_launch_metadata, Counter[str]()

    def watched(grid: Any, metadata: Any, *given: Any, **options: Any) -> Any:
        import torch

        key = str(getattr(metadata, "hash", ""))
        seen[key] += 1
        logging.TRITONPARSE_MORE_TENSOR_INFORMATION = seen[key] <= VALUES
        found = look(grid, metadata, *given, **options)
        if not torch.cuda.is_current_stream_capturing():
            profiler.launched()
        return found

    return watched


def _write(folder: Path, profiler: Profiler) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    event = {"event_type": TIMES, "ms": profiler.ms, "why": profiler.why, "gpu": profiler.gpu}
    (folder / "times.ndjson").write_text(json.dumps(event) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
