"""Runs the blocks of a launch one after another; blocks that wait for later ones take turns.

Triton's interpreter runs a block to its end before the next begins, so a block that waits for a later one waits
forever. Here a block that repeats the same question to memory is parked in its thread, and others go on. One thread
runs at a time; it is switched at such questions. When all remaining blocks only ask and nothing changes, that is a
deadlock. All blocks count as resident, however many a GPU would hold, and memory as seen by all at once: neither is
modelled.
"""

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pgo_agent.sandbox.interpreter.unsupported import KernelFault, Lacking
from triton.runtime import interpreter

ASKED = 20  # repeated questions after which a block is parked
FOR_EVER = 2000  # repeated questions of one block, with no change by any block, that are an endless wait
MOST = 256  # most blocks that may wait at once: each has a thread
SECONDS = 20.0  # of processor time for a launch with waiting blocks
STACK = 2 << 20  # bytes for each such thread
FEW = 16  # most elements of an answer that is compared
WAITED = "blocks that wait for others: all were taken to run at once"


class Blocks:
    """Runs launches; `names` lists the kernels that ran at least one block since `begin`."""

    def __init__(self) -> None:
        self.touched = time.monotonic()  # when a block began, ended, or last asked memory
        self.begin()

    def begin(self) -> None:
        """Reset the state before a launcher is called."""
        self.ran: set[str] = set()
        self.waited = False  # whether a block waited for another
        self._launch: _Launch | None = None

    @property
    def place(self) -> str:
        """The running block in words; empty: none."""
        launch = self._launch
        return f"block {launch.begun} of {launch.fn.__name__}" if launch else ""

    @property
    def assumed(self) -> list[str]:
        return [WAITED] if self.waited else []

    @property
    def names(self) -> list[str]:
        return sorted(self.ran)

    def install(self, know: Callable[[Any, str], None]) -> None:
        """Replace Triton's loop over the grid. `know` is called with each storage that a kernel gets."""
        blocks = self
        threading.stack_size(STACK)

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            fn = executor.fn
            accepted = inspect.getfullargspec(fn)
            kwargs = {k: v for k, v in kwargs.items() if k in accepted.args or k in accepted.kwonlyargs}
            for hook in executor.pre_run_hooks:
                hook(*args, **kwargs)
            arguments = inspect.getcallargs(fn, *args, **kwargs)
            grid = _grid(executor.grid(arguments) if callable(executor.grid) else executor.grid)
            if 0 in grid:
                return
            for name, value in arguments.items():
                _tell(know, name, value)
            scope = interpreter._patch_lang(fn)
            try:
                plain = {
                    n: v if n in executor.constexprs else interpreter._implicit_cvt(v) for n, v in arguments.items()
                }
                blocks.ran.add(fn.__name__)
                blocks._launch = _Launch(blocks, fn, plain, grid)
                with torch._C.DisableTorchFunction():  # a kernel's operations are not the launcher's
                    blocks._launch.run()
            finally:
                blocks._launch = None
                scope.restore()

        interpreter.GridExecutor.__call__ = call
        launch = interpreter.InterpretedFunction.run

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            launch(kernel, *args, **kwargs)
            return _Compiled(kernel)

        interpreter.InterpretedFunction.run = run

    def read(self, how: str, pointers: Any, values: Any) -> None:
        """Note that a block read memory and changed nothing."""
        self.touched = time.monotonic()
        if self._launch is None or not values.size:
            return
        large = values.size > FEW
        self._launch.asked((how, pointers.flat[0], pointers.flat[-1], b"" if large else values.tobytes()))

    def changed(self) -> None:
        """Note that a block wrote memory."""
        self.touched = time.monotonic()
        if self._launch is not None:
            self._launch.changed()


def _grid(grid: Any) -> tuple[int, int, int]:
    """Return a grid of three sizes, from any sequence of up to three, as Triton's launcher takes it."""
    sizes = [int(g) for g in (grid if isinstance(grid, list | tuple) else (grid,))]
    assert len(sizes) <= 3, "grid must have at most 3 dimensions"
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _tell(know: Callable[[Any, str], None], name: str, value: Any) -> None:
    if isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            _tell(know, f"{name}[{i}]", inner)
    elif hasattr(value, "block_shape") and hasattr(value, "base"):
        _tell(know, name, value.base)
    elif hasattr(value, "data_ptr"):
        know(interpreter._unwrap_tensor(value).untyped_storage(), name)


class _Compiled:
    """The result of a launch: can be launched again, and raises Lacking for what only the compiler knows."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        return self._kernel[grid]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else Lacking(f"what a compiled kernel tells ({name})")


class _Stopped(Exception):
    """Another block failed."""


class _Block:
    """A begun block."""

    def __init__(self, at: tuple[int, int, int]) -> None:
        self.at, self.turn = at, threading.Event()
        self.known: set[Any] = set()  # its questions since memory was last written
        self.asked = 0  # repeated questions since then
        self.written = 0  # how often memory had been written then


class _Launch:
    """One launch. One thread runs at a time; the others wait for their turn."""

    def __init__(
        self, blocks: Blocks, fn: Callable[..., Any], args: dict[str, object], grid: tuple[int, int, int]
    ) -> None:
        self.blocks = blocks
        self.fn, self.args, self.grid = fn, args, grid
        self.left = _indices(grid)
        self.written = 0  # how often memory was written, and blocks ended
        self.parked: deque[_Block] = deque()
        self.now: _Block | None = None
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.begun_waiting = 0.0
        self.begun = 0  # blocks

    def run(self) -> None:
        """Run all blocks. Raises the first error of a block."""
        interpreter.interpreter_builder.set_grid_dim(*self.grid)
        self._work(next(self.left))
        self.ended.wait()
        if self.error is not None:
            raise self.error

    def _work(self, at: tuple[int, int, int] | None) -> None:
        """Run block after block until none is left or one is parked, then let a parked one go on."""
        try:
            while at is not None and self.error is None:
                self.begun += 1
                self.blocks.touched = time.monotonic()
                self._take(_Block(at))
                self.fn(**self.args)
                self.changed()
                at = None if self.parked else next(self.left, None)
        except Exception as e:
            self.error = self.error or e
        self._pass_on()

    def _take(self, block: _Block) -> None:
        self.now = block
        interpreter.interpreter_builder.set_grid_idx(*block.at)

    def _pass_on(self) -> None:
        if self.parked:
            self.parked.popleft().turn.set()
        else:
            self.ended.set()

    def changed(self) -> None:
        """Note a change that may end a wait."""
        self.written += 1

    def asked(self, question: Any) -> None:
        """Note a question of the running block; park it after many repeated ones."""
        block = self.now
        if block is None:
            return
        if block.written != self.written:
            block.known.clear()
            block.written, block.asked = self.written, 0
        if question not in block.known:
            block.known.add(question)
            block.asked = 0
            return
        block.asked += 1
        if block.asked % ASKED == 0:
            self._park(block)

    def _park(self, block: _Block) -> None:
        following = next(self.left, None)
        if following is None and all(self._for_ever(b) for b in (block, *self.parked)):
            raise KernelFault(
                "deadlock", f"waits for ever: {self._waiting()} only ask memory that nobody changes any more"
            )
        self._limit()
        if following is None and not self.parked:
            return
        self.blocks.waited = True
        block.turn.clear()
        self.parked.append(block)
        if following is None:
            self.parked.popleft().turn.set()
        else:
            threading.Thread(target=self._work, args=(following,), daemon=True).start()
        block.turn.wait()
        self._take(block)
        if self.error is not None:
            raise _Stopped

    def _for_ever(self, block: _Block) -> bool:
        return block.asked >= FOR_EVER and block.written == self.written

    def _waiting(self) -> str:
        count = 1 + len(self.parked)
        return "the last block that is left can" if count == 1 else f"the {count} blocks that are left"

    def _limit(self) -> None:
        self.begun_waiting = self.begun_waiting or time.process_time()
        if len(self.parked) >= MOST:
            raise Lacking(f"a launch with more than {MOST} blocks that wait for others at once")
        if time.process_time() - self.begun_waiting > SECONDS:
            raise Lacking(f"a launch with blocks that wait for others for over {SECONDS:.0f} s")


def _indices(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    return ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))
