"""The judges of several GPUs of this machine, as one to a run: each thread asks the GPU that it has at the time.

A thread has a GPU for one command, or for all within its `turn`; other runs and workers keep off meanwhile
(`gpu_lock.py`). Waiting for them is counted where nothing of this run goes on.

A hang is blamed on what was asked, if a fresh process then proves the GPU healthy; such a candidate is not tried on
another one, for it may hang only now and then. Where that process does not come up either the GPU hung twice: it is
quarantined, and what it was asked moves to the others. Relies on commands being the same in any fresh process.
"""

import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.gpu_lock import POLL
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.interface import Ended, NoStart, Verdicts, always
from pgo_agent.sandbox.judge.wait_clock import Standstill
from pgo_agent.sandbox.target import Target

HANGS = 2  # of a GPU in a row, after which it is quarantined
T = TypeVar("T")


class Sick(Exception):
    """A GPU hung or failed again and again; the text says how."""


class _Mine(threading.local):
    """What a thread has and had."""

    judge: GpuJudge | None = None  # that it may ask now
    last: GpuJudge | None = None
    seconds = 0.0  # of its GPUs since its piece of work began


class GpuPool(Verdicts):
    """AnyJudge on the GPUs of `judges`."""

    elsewhere: ClassVar[bool] = False
    by_hand: ClassVar[bool] = False

    def __init__(self, judges: Sequence[GpuJudge]) -> None:
        self.all = tuple(judges)
        self._left = list(judges)  # that are not quarantined
        self._taken: set[GpuJudge] = set()
        self._changed = threading.Condition()
        self._mine = _Mine()
        self._latest: dict[str, Any] = {}
        self._closed, self._why = False, ""  # why the last one was quarantined
        self._still = Standstill()
        self._tell: Callable[..., None] = lambda _kind, **_: None
        self._keep: Callable[[Gpu, str], None] = lambda _gpu, _why: None

    def begin(self, tell: Callable[..., None], keep: Callable[[Gpu, str], None], quarantined: Container[str]) -> None:
        """For one run. `keep` is told of each GPU that is quarantined; those that were (by UUID) are left out, as long
        as there are others."""
        self._tell, self._keep = tell, keep
        fit = [j for j in self._left if j.lock is None or j.lock.gpu.uuid not in quarantined]
        self._left = fit or self._left

    # commands ---------------------------------------------------------------------------------------------------------

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """As AnyJudge.ask, on the GPU that this thread has, or else any. Raises EnvironmentFault when none is left."""
        with self.turn():
            while True:
                judge = self._own()
                try:
                    return self._answer(judge, command, fields)
                except Sick as e:
                    self._quarantine(judge, str(e))
                    self._mine.judge = None
                    self._mine.judge = self._take()
                    self._mine.judge.fresh()  # it may have been asked in a process of its own
                except Exception:
                    self._must_be_open()  # whatever a process that is being ended looks like
                    raise

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Counts the time in which something beside the process of this turn's GPU works on it."""
        judge = self._own()
        began = judge.busy
        try:
            with judge.occupied():
                yield
        finally:
            self._mine.seconds += judge.busy - began

    def queue(self, command: str, **fields: Any) -> None:
        """It is asked soon enough."""

    def fresh(self) -> None:
        """The next command of this turn gets a new process."""
        if self._mine.judge:
            self._mine.judge.fresh()

    def prepare(self, processes: int) -> None:
        """On the GPU that this thread had last, which it is given again if it is free; on all before it had one."""
        for judge in [self._mine.last] if self._mine.last else self._left:
            judge.prepare(processes)

    def close(self) -> None:
        self._closed = True
        with self._changed:
            self._changed.notify_all()
        for judge in self.all:
            judge.close()

    def _answer(self, judge: GpuJudge, command: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Raises Sick when it is the GPU that does not answer; Ended when it is what was asked."""
        hangs, began = 0, judge.busy
        try:
            while True:
                try:
                    judge.open()
                    return judge.ask(command, **fields)
                except NoStart as e:
                    hangs += 1
                    if hangs == HANGS:
                        raise Sick(e.message) from None
                except Ended as e:
                    if e.timed_out:
                        self._prove(judge, e)
                    raise
        finally:
            self._mine.seconds += judge.busy - began
            self._latest = judge.environment or self._latest

    def _prove(self, judge: GpuJudge, hang: Ended) -> None:
        """A known computation in a fresh process, after a hang. Raises Sick when that does not come to an end, too."""
        try:
            judge.open()
        except NoStart as e:
            raise Sick(f"stopped in '{hang.stage}' at its deadline; then {e.message}") from None

    def _quarantine(self, judge: GpuJudge, why: str) -> None:
        with self._changed:
            self._must_be_open()  # a judge that is being closed answers nobody
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
    def turn(self) -> Iterator[GpuJudge]:
        """Raises EnvironmentFault when no GPU is left."""
        if self._mine.judge:
            yield self._mine.judge
            return
        self._mine.judge = self._take()
        try:
            yield self._own()
        finally:
            judge, self._mine.judge = self._mine.judge, None
            if judge:
                with self._changed:
                    self._give(judge)

    def _own(self) -> GpuJudge:
        if self._mine.judge is None:
            raise RuntimeError("this thread has no GPU")
        return self._mine.judge

    def _take(self) -> GpuJudge:
        """A GPU that nobody has, with its lock; the one that this thread had last, or one whose process is warm, if
        there is a choice."""
        told = False
        try:
            with self._changed:
                self._still.waiting += 1
            while True:
                with self._changed:
                    free = self._free()
                    if judge := self._first(free):
                        return judge
                    self._still.note(bool(self._taken))
                    if told or not free:
                        self._changed.wait(POLL if free else None)
                        continue
                    self._leave_lines()  # who hears of it may take his time, or ask here how long was waited
                self._tell_of(free)
                told = True
        finally:
            with self._changed:
                self._still.waiting -= 1
                if not self._still.waiting:
                    self._leave_lines()
                self._still.note(bool(self._taken))

    def _first(self, free: Sequence[GpuJudge]) -> GpuJudge | None:
        """The first whose lock is to be had. In the line of each other one this process stands from now on."""
        for judge in free:
            if judge.lock is None or judge.lock.taken():
                self._taken.add(judge)
                self._mine.last = judge
                return judge
        return None

    def _leave_lines(self) -> None:
        """Those of GPUs that nobody here has."""
        for lock in [j.lock for j in self._left if j not in self._taken and j.lock]:
            lock.left()

    def _must_be_open(self) -> None:
        if self._closed:
            raise EnvironmentFault("the run was ended while a GPU was asked", "`pgo-agent resume` goes on")

    def _free(self) -> list[GpuJudge]:
        """Raises EnvironmentFault when there is none that could become free."""
        self._must_be_open()
        if not self._left:
            raise EnvironmentFault(
                f"no GPU is left: {len(self.all)} quarantined in this run, each after {HANGS} hangs or failed starts"
                f"; the last: {self._why}",
                "see nvidia-smi and `pgo-agent show`; reset them or choose others with --gpus, then `pgo-agent resume`",
            )
        free = [j for j in self._left if j not in self._taken]
        return sorted(free, key=lambda j: (j is not self._mine.last, not j.started))

    def _tell_of(self, held: Sequence[GpuJudge]) -> None:
        for lock in [j.lock for j in held if j.lock]:
            self._tell("gpu.waiting", index=lock.gpu.index, uuid=lock.gpu.uuid, holder=lock.holder)

    def _give(self, judge: GpuJudge) -> None:
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
        """As AnyJudge.together, each piece in a thread. Raises what the first failing piece raised, after the others
        that were begun."""
        with self._changed:
            self._free()  # nobody would say that none is left
        waiting, running = list(work.items()), dict[Future[T], str]()
        failed: BaseException | None = None
        threads = ThreadPoolExecutor(max(1, each * len(self._left)))
        try:
            while True:
                while waiting and not failed and len(running) < each * len(self._left) and more():
                    name, do = waiting.pop(0)
                    running[threads.submit(self._piece, do)] = name
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in [f for f in running if f in done]:
                    name, error = running.pop(future), future.exception()
                    failed = failed or error
                    if error is None:
                        yield name, future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # Ctrl-C waits for nobody
        if failed:
            raise failed

    def _piece(self, do: Callable[[], T]) -> T:
        self._mine.seconds = 0.0
        self._count(1)
        try:
            return do()
        finally:
            self._count(-1)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """It is none of those that could go on while others wait for a GPU."""
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
    def environment(self) -> dict[str, Any]:
        return (self._mine.last.environment if self._mine.last else {}) or self._latest

    @property
    def busy(self) -> float:
        return sum(j.busy for j in self.all)

    @property
    def seconds(self) -> float:
        return self._mine.seconds

    @property
    def waited(self) -> float:
        with self._changed:
            return self._still.seconds
