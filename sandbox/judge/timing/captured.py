"""A library call as a CUDA graph: how long the GPU takes, and not how late a busy host calls it.

A library, or what PyTorch compiled, launches several kernels and works on the host between them. On a host that builds
candidates on every core this was once timed as twelve times the time of the GPU. A call that cannot be captured, such
as one that waits for the GPU, is timed as it is called. Relies on torch alone; decides nothing.
"""

from collections.abc import Callable

import torch

WARMUP = 2  # calls before the capture: a library chooses its kernels and takes memory then


class Captured:
    """Launches the work of a call, which uses the same tensors each time. The first launch captures it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._launch: Callable[[], object] | None = None

    def __call__(self) -> None:
        """Enqueue the work. Raises what the call raises when it is only called."""
        if self._launch is None:
            self._launch = self._captured() or self._call
        self._launch()

    def _captured(self) -> Callable[[], object] | None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARMUP):
                self._call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._call()
        except Exception:  # torch, cuBLAS, Triton and the driver each have an error of their own for it
            torch.cuda.synchronize()
            return None
        replay: Callable[[], object] = graph.replay
        return replay
