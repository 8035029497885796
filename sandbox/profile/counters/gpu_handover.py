"""How a launcher that has imported all it needs gets its GPU: a named pipe in the folder of its request.

Relies on Linux, where a pipe may be opened for reading and writing: who waits reads its end as soon as the process that
would have written is gone. It knows neither ncu nor what is launched.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

PIPE, READY = "gpu", "ready"


class Handover:
    """The side that has the GPU to give. Within, a launcher can wait."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        os.mkfifo(folder / PIPE, 0o600)
        self._pipe = os.open(folder / PIPE, os.O_RDWR | os.O_CLOEXEC)

    def ready(self) -> bool:
        """Return whether somebody waits."""
        return (self._folder / READY).exists()

    def give(self, gpu: str) -> None:
        """Write the GPU into the pipe, as CUDA_VISIBLE_DEVICES names it."""
        os.write(self._pipe, f"{gpu}\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)


def awaited(folder: Path, gone: Callable[[], None]) -> str:
    """Return the GPU that is given; empty when the giving process is gone. A thread calls `gone` as soon as that
    process ends later: the GPU is no longer ours then."""
    pipe = (folder / PIPE).open()
    (folder / READY).touch()
    gpu = pipe.readline().strip()

    def watch() -> None:
        pipe.read()
        gone()

    threading.Thread(target=watch, daemon=True).start()
    return gpu
