"""Watches the blocks of interpreted kernels: which kernels ran any, and whether one waits for memory or does not end.

The interpreter runs blocks one after another. A block that waits for what another one writes would wait for ever, and
is right on a GPU that runs both at once: it is told as what the interpreter lacks. A block that reads one element again
and again, with the same result and without a write in between, is taken for such a one after REPEATS. Where a run is
ended for its time, what the block did last tells a slow kernel from one that computes for ever.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

REPEATS = 4096  # of one read: a fifth of a second
SILENT = 5.0  # seconds in which a block that gets on touches memory, or ends
LACKING = "not supported in interpreter mode"  # Triton's own words for inline assembly
WAITING = f"a block waits for memory that another block writes, which is {LACKING}: it runs one block after another"


class Overtime(Exception):
    """A run was ended for its time. `endless`: not for being slow."""

    def __init__(self, said: str, endless: bool) -> None:
        super().__init__(said)
        self.endless = endless


class Watch:
    """Of this process. `install` once, then `run` around each call of a launcher."""

    def __init__(self) -> None:
        self.launched: dict[str, None] = {}  # kernels that ran a block, in order
        self.waits = False
        self._kernel, self._blocks, self._at = "", 0, time.monotonic()
        self._last: tuple[int, bytes] | None = None
        self._repeats = 0

    def install(self) -> None:
        """Before a candidate is imported."""
        from triton.runtime import interpreter

        builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
        call, begin = executor.__call__, builder.set_grid_idx

        def launch(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._kernel, self._blocks = this.fn.__name__, 0
            try:
                return call(this, *args, **kwargs)
            finally:
                self._kernel = ""

        def block(this: Any, *place: int) -> None:
            self.launched[self._kernel] = None
            self._blocks += 1
            self._wrote()
            begin(this, *place)

        executor.__call__, builder.set_grid_idx = launch, block
        for name in ("create_masked_load", "create_atomic_cas"):
            setattr(builder, name, self._reading(getattr(builder, name), 0))
        builder.create_atomic_rmw = self._reading(builder.create_atomic_rmw, 1)
        builder.create_masked_store = self._writing(builder.create_masked_store)

    @contextlib.contextmanager
    def run(self, seconds: float | None) -> Iterator[None]:
        """Raises Overtime in it after so many seconds, and NotImplementedError where a block waits."""
        self.launched, self.waits = {}, False
        began = time.monotonic()

        def over(*_: object) -> None:
            raise self._overtime(time.monotonic() - began)

        before = signal.signal(signal.SIGALRM, over) if seconds is not None else None
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
        try:
            yield
        finally:
            if before is not None:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, before)

    def _overtime(self, seconds: float) -> Overtime:
        if not self._kernel:
            return Overtime(f"kernel() itself did not end in {seconds:.0f} s", endless=True)
        endless = time.monotonic() - self._at > SILENT
        where = f"block {self._blocks} of {self._kernel}"
        said = f"{where} computes for over {SILENT:.0f} s without an end" if endless else f"it had come to {where}"
        return Overtime(f"did not end in {seconds:.0f} s: {said}", endless)

    def _reading(self, method: Callable[..., Any], pointer: int) -> Callable[..., Any]:
        def read(this: Any, *args: Any, **named: Any) -> Any:
            found = method(this, *args, **named)
            self._read([*args, *named.values()][pointer].data, found.data)
            return found

        return read

    def _writing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def write(this: Any, *args: Any, **named: Any) -> Any:
            self._wrote()
            return method(this, *args, **named)

        return write

    def _wrote(self) -> None:
        self._last, self._repeats, self._at = None, 0, time.monotonic()

    def _read(self, pointers: Any, values: Any) -> None:
        self._at = time.monotonic()
        one = (int(pointers.flat[0]), values.tobytes()) if pointers.size == 1 else None
        self._repeats = self._repeats + 1 if one is not None and one == self._last else 0
        self._last = one
        if self._repeats > REPEATS:
            self.waits = True
            raise NotImplementedError(f"{self._kernel}: {WAITING}")
