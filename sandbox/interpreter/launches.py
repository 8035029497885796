"""Which kernels a launcher really ran: those of a launch with at least one block.

Relies on Triton's GridExecutor numbering the blocks of a launch one by one (`set_grid_idx`). It changes no result.
"""

from typing import Any


class Launches:
    """Names of the kernels that ran since `forget`. `install` before a candidate is imported."""

    def __init__(self) -> None:
        self._ran: set[str] = set()
        self._now: list[str] = []

    def install(self) -> None:
        from triton.runtime import interpreter

        launch, block = interpreter.GridExecutor.__call__, interpreter.InterpreterBuilder.set_grid_idx

        def launched(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._now.append(executor.fn.__name__)
            try:
                return launch(executor, *args, **kwargs)
            finally:
                self._now.pop()

        def numbered(builder: Any, x: int, y: int, z: int) -> None:
            self._ran.add(self._now[-1])
            block(builder, x, y, z)

        interpreter.GridExecutor.__call__ = launched
        interpreter.InterpreterBuilder.set_grid_idx = numbered

    def forget(self) -> None:
        self._ran.clear()

    @property
    def names(self) -> list[str]:
        return sorted(self._ran)
