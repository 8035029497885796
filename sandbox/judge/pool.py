"""Several GPUs of this machine as one judge: each thread asks the GPU that it holds.

A thread holds a GPU for one command, or for all commands in its `turn`. A lock keeps other runs and workers off
(`gpu_lock.py`). Waiting for them is counted while nothing of this run goes on.

After a hang a new process tests the GPU. If the GPU is healthy, the command is blamed; its candidate is not tried on
another GPU, because it may hang only sometimes. If the new process hangs too, the GPU is quarantined and the command
moves to another GPU. Relies on commands being the same in any new process.
"""

import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, TypeVar

from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.gpu_lock import POLL
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.interface import Ended, NoStart, OneGpu, Verdicts, always
from pgo_agent.sandbox.judge.machine import NOWHERE, Environment
from pgo_agent.sandbox.judge.questions import Question
from pgo_agent.sandbox.judge.wait_clock import Standstill
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.threads import as_they_end

HANGS = 2  # of a GPU in a row, after which it is quarantined
T = TypeVar("T")


class Sick(Exception):
    """A GPU hung or failed several times; the text says how."""


class _ThreadState(threading.local):
    """The state of one thread."""

    judge: OneGpu | None = None  # that it may ask now
    last: OneGpu | None = None
    seconds = 0.0  # of its GPUs since its piece of work began


class GpuPool(Verdicts):
    """A Judge on the GPUs of `judges`."""

    elsewhere: ClassVar[bool] = False
    here: ClassVar[bool] = True
    by_hand: ClassVar[bool] = False

    def __init__(self, judges: Sequence[OneGpu]) -> None:
        self.all = tuple(judges)
        self._left = list(judges)  # that are not quarantined
        self._taken: set[OneGpu] = set()
        self._changed = threading.Condition()
        self._thread = _ThreadState()
        self._latest = NOWHERE
        self._closed, self._why = False, ""  # why the last one was quarantined
        self._still = Standstill()
        self._tell: Callable[..., None] = lambda _kind, **_: None
        self._keep: Callable[[Gpu, str], None] = lambda _gpu, _why: None

    def begin(self, tell: Callable[..., None], keep: Callable[[Gpu, str], None], quarantined: Container[str]) -> None:
        """Begin one run. `keep` is called for each GPU that is quarantined. GPUs whose UUID is in `quarantined` are
        left out while there are others."""
        self._tell, self._keep = tell, keep
        fit = [j for j in self._left if j.lock is None or j.lock.gpu.uuid not in quarantined]
        self._left = fit or self._left

    # commands ---------------------------------------------------------------------------------------------------------

    def ask(self, question: Question[T]) -> T:
        """As Judge.ask, on the GPU that this thread holds, or else any. Raises EnvironmentFault when none is left."""
        with self.turn():
            while True:
                judge = self._current()
                try:
                    return self._answer(judge, question)
                except Sick as e:
                    self._quarantine(judge, str(e))
                    self._thread.judge = None
                    self._thread.judge = self._take()
                    self._thread.judge.fresh()  # the command may need a new process
                except Exception:
                    self._must_be_open()  # a closed run explains any error
                    raise

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Count the time in which something besides the judge process works on this turn's GPU."""
        judge = self._current()
        began = judge.busy
        try:
            with judge.occupied():
                yield
        finally:
            self._thread.seconds += judge.busy - began

    def queue(self, question: Question[object], fresh: int = 0) -> None:
        """Do nothing: commands are asked in order."""

    def fresh(self) -> None:
        """Give the next command of this turn a new process."""
        if self._thread.judge:
            self._thread.judge.fresh()

    def prepare(self, processes: int) -> None:
        """Start spare processes on the GPU that this thread held last, or on all GPUs."""
        for judge in [self._thread.last] if self._thread.last else self._left:
            judge.prepare(processes)

    def close(self) -> None:
        self._closed = True
        with self._changed:
            self._changed.notify_all()
        for judge in self.all:
            judge.close()

    def _answer(self, judge: OneGpu, question: Question[T]) -> T:
        """Ask one GPU. Raises Sick when the GPU is to blame, Ended when the command is."""
        hangs, began = 0, judge.busy
        try:
            while True:
                try:
                    judge.open()
                    return judge.ask(question)
                except NoStart as e:
                    hangs += 1
                    if hangs == HANGS:
                        raise Sick(e.message) from None
                except Ended as e:
                    if e.timed_out:
                        self._prove(judge, e)
                    raise
        finally:
            self._thread.seconds += judge.busy - began
            self._latest = judge.environment or self._latest

    def _prove(self, judge: OneGpu, hang: Ended) -> None:
        """Test the GPU in a new process after a hang. Raises Sick when that hangs too."""
        try:
            judge.open()
        except NoStart as e:
            raise Sick(f"stopped in '{hang.stage}' at its deadline; then {e.message}") from None

    def _quarantine(self, judge: OneGpu, why: str) -> None:
        with self._changed:
            self._must_be_open()  # a judge that is being closed is not sick
            self._left.remove(judge)
            self._why = why
            self._give(judge)
            left = len(self._left)
        if gpu := judge.lock.gpu if judge.lock else None:
            self._keep(gpu, why)
            self._tell("gpu.quarantined", index=gpu.index, uuid=gpu.uuid, why=why, left=left)
        judge.close()

    # GPUs -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[OneGpu]:
        """Raises EnvironmentFault when no GPU is left."""
        if self._thread.judge:
            yield self._thread.judge
            return
        self._thread.judge = self._take()
        try:
            yield self._current()
        finally:
            judge, self._thread.judge = self._thread.judge, None
            if judge:
                with self._changed:
                    self._give(judge)

    def _current(self) -> OneGpu:
        if self._thread.judge is None:
            raise RuntimeError("this thread has no GPU")
        return self._thread.judge

    def _take(self) -> OneGpu:
        """Take a free GPU with its lock; if possible the last one of this thread, or one with a running process."""
        announced = False
        try:
            with self._changed:
                self._still.waiting += 1
            while True:
                with self._changed:
                    free = self._free()
                    if judge := self._first(free):
                        return judge
                    self._still.note(bool(self._taken))
                    if announced or not free:
                        self._changed.wait(POLL if free else None)
                        continue
                    self._leave_lines()  # the listener may be slow, or ask here how long was waited
                self._tell_of(free)
                announced = True
        finally:
            with self._changed:
                self._still.waiting -= 1
                if not self._still.waiting:
                    self._leave_lines()
                self._still.note(bool(self._taken))

    def _first(self, free: Sequence[OneGpu]) -> OneGpu | None:
        """Take the first whose lock is free; join the queues of those before it."""
        for judge in free:
            if judge.lock is None or judge.lock.taken():
                self._taken.add(judge)
                self._thread.last = judge
                return judge
        return None

    def _leave_lines(self) -> None:
        """Leave the queues of the GPUs that no thread here holds."""
        for lock in [j.lock for j in self._left if j not in self._taken and j.lock]:
            lock.left()

    def _must_be_open(self) -> None:
        if self._closed:
            raise EnvironmentFault("the run was ended while a GPU was asked", "`pgo-agent resume` goes on")

    def _free(self) -> list[OneGpu]:
        """Return the GPUs that no thread holds, best first. Raises EnvironmentFault when none is left."""
        self._must_be_open()
        if not self._left:
            raise EnvironmentFault(
                f"no GPU is left: {len(self.all)} quarantined in this run, each after {HANGS} hangs or failed starts"
                f"; the last: {self._why}",
                "see nvidia-smi and `pgo-agent show`; reset them or choose others with --gpus, then `pgo-agent resume`",
            )
        free = [j for j in self._left if j not in self._taken]
        return sorted(free, key=lambda j: (j is not self._thread.last, not j.started))

    def _tell_of(self, held: Sequence[OneGpu]) -> None:
        for lock in [j.lock for j in held if j.lock]:
            self._tell("gpu.waiting", index=lock.gpu.index, uuid=lock.gpu.uuid, holder=lock.holder)

    def _give(self, judge: OneGpu) -> None:
        if judge in self._taken:
            self._taken.remove(judge)
            if judge.lock:
                judge.lock.free()
        self._still.note(bool(self._taken))
        self._changed.notify_all()

    # work -------------------------------------------------------------------------------------------------------------

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        """As Judge.together, each piece in a thread. Raises the first error of a piece, once all others have ended."""
        with self._changed:
            self._free()  # raises when none is left
        pieces = {name: partial(self._piece, do) for name, do in work.items()}
        yield from as_they_end(pieces, more, lambda: each * len(self._left))

    def _piece(self, do: Callable[[], T]) -> T:
        self._thread.seconds = 0.0
        self._count(1)
        try:
            return do()
        finally:
            self._count(-1)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Leave this piece out of those that could go on while others wait for a GPU."""
        self._count(-1)
        try:
            yield
        finally:
            self._count(1)

    def _count(self, pieces: int) -> None:
        with self._changed:
            self._still.pieces += pieces
            self._still.note(bool(self._taken))

    # what it is -------------------------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        return self.all[0].target

    @target.setter
    def target(self, target: Target) -> None:
        for judge in self.all:
            judge.target = target

    @property
    def python(self) -> str:
        return self.all[0].python

    @property
    def environment(self) -> Environment:
        return (self._thread.last.environment if self._thread.last else NOWHERE) or self._latest

    @property
    def busy(self) -> float:
        return sum(j.busy for j in self.all)

    @property
    def seconds(self) -> float:
        return self._thread.seconds

    @property
    def waited(self) -> float:
        with self._changed:
            return self._still.seconds
