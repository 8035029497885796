"""The parent's end of a judge process: starts it, sends commands, kills it at a deadline, replaces it after a fault.

A hang costs the deadline of its step. The process group is then killed, and the next process tests the GPU with a
known computation first. A lock (`gpu_lock.py`) keeps others off the GPU while a command runs. This module handles one
GPU, `pool.py` several.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from pgo_agent.sandbox.errors import EnvironmentFault, Fault, Killed, TargetFault, UsageFault
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.reason import shown
from pgo_agent.sandbox.gate.verdict import Judgement
from pgo_agent.sandbox.isolation.box import ATTEMPTS, FORKED, choose, killed
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge import counting, gpus, own_steps, questions
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu, visible_gpu, visible_gpus
from pgo_agent.sandbox.judge.interface import Ended, NoStart, always, of_ended
from pgo_agent.sandbox.judge.machine import NOWHERE, Environment
from pgo_agent.sandbox.judge.own_steps import Alone
from pgo_agent.sandbox.judge.questions import Question
from pgo_agent.sandbox.judge.worker_process import Process
from pgo_agent.sandbox.target import Target

START_SECONDS = 120.0
IMPORTING = "import the target"  # the step of `open` that runs the user's code
T = TypeVar("T")
__all__ = ["Ended", "GpuJudge", "NoStart", "visible_gpu", "visible_gpus"]


@dataclass(eq=False)
class GpuJudge:
    """One judge process for one target; started when it is first needed."""

    target: Target
    python: str = sys.executable
    gpu: str | None = "0"  # CUDA_VISIBLE_DEVICES of the process; a UUID after its first use; None: the CPU judge
    sandbox: str = "auto"  # for the CPU judge's interpreter
    device: str = "h200"  # the device that the interpreter reports to launchers
    under: tuple[str, ...] = ()  # a command that runs the process
    spares: int = 1  # processes to keep ready: each candidate of a batch uses three
    lock: GpuLock | None = None  # of that GPU; None: made when it is first needed
    elsewhere: ClassVar[bool] = False
    here: ClassVar[bool] = True
    by_hand: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._process: Process | None = None
        self._spare: list[Process] = []
        self.environment = NOWHERE
        self.replaced = 0
        self.busy = self._began = 0.0  # seconds of GPU work: all, and before this piece
        self.waited = 0.0  # seconds in which another process held the GPU
        self.on_wait: Callable[[Gpu, str], None] = lambda _gpu, _holder: None  # called when it waits
        self.on_stage: Callable[[str], None] = lambda _stage: None  # of each step that its process announces
        self._closed = False
        self._own = own_steps.OwnSteps()
        self._one = threading.RLock()  # of the CPU judge: one command at a time

    # commands ---------------------------------------------------------------------------------------------------------

    def ask(self, question: Question[T]) -> T:
        """Return the answer to a question; ask a new process when somebody killed the first.

        Raises Ended, TargetFault or EnvironmentFault, and Killed when every process was killed.
        """
        return question.read(self.answer(question.do, question.as_json()))

    def answer(self, command: str, fields: JsonObject) -> JsonObject:
        """Do the same with a question and an answer in JSON."""
        if command == questions.Count.do:
            return counting.counted(self, self.target.contract_path, fields)
        kills, borne = 0, False
        with self.turn():
            while kills < ATTEMPTS:
                try:
                    return self._asked(command, fields)
                except Ended as e:
                    alone = Alone.KILLED if e.killed else self._alone(e, fields)
                    if alone is None or (borne and alone is Alone.BORNE):
                        raise
                    kills += alone is Alone.KILLED
                    borne |= alone is Alone.BORNE
                    self.replaced += 1
        raise killed("judge")

    def _asked(self, command: str, fields: JsonObject) -> JsonObject:
        with self.occupied():
            if self._process is None:
                self._start()
            return self._send({"do": command, **fields})

    def _alone(self, e: Ended, fields: JsonObject) -> Alone | None:
        """Return what becomes of the target's own step that ended a process, in a new one; None: it was none of these,
        or is known to be borne. Raises TargetFault when the reference ends that process, too."""
        step = own_steps.read(e.stage)
        if step is None or step in self._own.borne:
            return None
        try:
            self._asked(questions.Own.do, {**vars(step), "shipped": fields.get("shipped", {})})
        except Ended as again:
            if again.killed:
                return Alone.KILLED
            if not (last := own_steps.read(again.stage)):
                return None
            if not last.stress_input:
                raise _unfit(last, again) from None
            self._own.leave_out(last.stress_input)
            return Alone.UNFIT
        self._own.borne.add(step)
        return Alone.BORNE

    def verdict(self, question: Question[Judgement]) -> Judgement:
        """Ask for a verdict. A hang or a crash becomes a verdict, a kill never does."""
        try:
            return self.ask(question)
        except Ended as e:
            self.replaced += 1
            return of_ended(question.do, e)

    def open(self) -> Environment:
        """Start a process with the target open and return its environment. Raises as `ask`."""
        if not self.started:
            self.ask(questions.Hello())
        return self.environment

    @contextmanager
    def turn(self) -> Iterator["GpuJudge"]:
        """Hold the GPU for several commands. Waits while another process uses it, or another thread the CPU judge."""
        lock = self._lock()
        if lock is None:
            with self._one:
                yield self
            return
        with lock.turn(self.on_wait) as waited:
            self.waited += waited
            yield self

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Count the time in which something besides its process works on the GPU."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.busy += time.monotonic() - started

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        """Do one piece of work after another."""
        for name, do in work.items():
            if not more():
                return
            self._began = self.busy
            yield name, do()

    def idle(self) -> AbstractContextManager[None]:
        """Do nothing: one thread does not wait for itself."""
        return nullcontext()

    @property
    def seconds(self) -> float:
        return self.busy - self._began

    @property
    def started(self) -> bool:
        """Whether it has a process."""
        return self._process is not None

    def queue(self, question: Question[object], fresh: int = 0) -> None:
        """Do nothing: commands are asked in order."""

    def close(self) -> None:
        """End all its processes. A command that waits in another thread raises Ended or NoStart."""
        self._closed = True
        self._end()
        self._end_spares()

    def fresh(self) -> None:
        """End the process: the next command gets a new one."""
        self._end()

    def prepare(self, processes: int) -> None:
        """Start this many spare processes, so that the GPU need not wait for an import of torch."""
        while len(self._spare) < processes and not self._closed:
            self._spare.append(self._new())
        if self._closed:  # while one of them was started
            self._end_spares()

    # the process ------------------------------------------------------------------------------------------------------

    def _lock(self) -> GpuLock | None:
        if self.lock is None and self.gpu is not None:
            gpu = gpus.named(self.gpu)
            self.gpu, self.lock = gpu.uuid, GpuLock(gpu)
        return self.lock

    def _new(self) -> Process:
        lock = self._lock()
        return Process(self.python, self.gpu, self.under, [lock.fd] if lock else self._forks())

    def _forks(self) -> list[int]:
        """Begin, for the CPU judge, what its boxes are forked from: that imports torch while the judge does."""
        if self.gpu is not None or self.python != sys.executable:  # another one may never answer when a box is tried
            return []
        with suppress(Fault):  # which the judge itself will tell
            boxed = choose(self.sandbox, self.python)
            inherited = [boxed.prepare(module) for module in FORKED]
            return [fd for fd in inherited if fd is not None]  # all of them, or none where no box forks
        return []

    def _start(self) -> None:
        self._process = self._spare.pop(0) if self._spare else self._new()
        if self.gpu is not None and not self.under:
            self.prepare(self.spares)
        if self._closed:  # before, or while it was started
            self._end()
            raise NoStart("the judge was closed")
        try:
            question = questions.Open(
                path=str(self.target.path.resolve()),
                python=self.python,
                contract=str(self.target.contract_path.resolve()),
                sandbox=self.sandbox,
                device=self.device,
                forks=tuple(self._process.keeps()) if self.gpu is None else (),
                unfit=tuple(sorted(self._own.unfit)),
            )
            found = question.read(self._send({"do": question.do, **question.as_json()}))
            at = self.lock.gpu if self.lock else None
            self.environment = replace(found, uuid=at.uuid, index=at.index) if at else found
        except Fault:
            self._end()
            raise
        except Ended as e:
            if e.killed:
                raise
            if e.stage == IMPORTING and e.timed_out:
                raise TargetFault(f"{self.target.contract_path}: its import does not end", "fix it") from None
            raise NoStart(f"the judge process did not start: {e.detail[-600:]}", "see `pgo-agent doctor`") from None

    def _send(self, message: JsonObject) -> JsonObject:
        process = self._process
        if process is None:
            raise RuntimeError("the judge process is not running")
        stage, deadline = "", time.monotonic() + START_SECONDS
        try:
            process.say(message)
            while True:
                line = process.line(deadline)
                if line is None:
                    raise self._ended(stage, True, "no answer before the deadline")
                if not line.endswith(b"\n"):  # it ended, maybe while it wrote
                    raise self._ended(stage, False, process.printed() or "the process ended")
                reply = json.loads(line)
                if "stage" in reply:
                    stage, deadline = reply["stage"], time.monotonic() + reply["seconds"]
                    self.on_stage(stage)
                elif "answer" in reply:
                    return dict(reply["answer"])
                elif "fault" in reply:
                    raise _fault(reply["fault"])
                else:
                    raise self._ended(stage, False, f"{reply['crash'][:300]}\n{process.printed()[-800:]}".strip())
        except BrokenPipeError:
            raise self._ended(stage, False, process.printed() or "the process ended") from None

    def _ended(self, stage: str, timed_out: bool, detail: str) -> Ended:
        status = None if timed_out or self._process is None else self._process.status()
        self._end()
        return Ended(stage, timed_out, detail, status == -signal.SIGKILL)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _end_spares(self) -> None:
        while self._spare:
            self._spare.pop().end()


def _unfit(step: own_steps.OwnStep, e: Ended) -> TargetFault:
    """Return the fault of a reference that ends every process."""
    detail = "" if step.case.startswith(HELD_OUT) else f": {e.detail[-600:]}"
    what = "does not end" if e.timed_out else "ends the judge's process"
    return TargetFault(f"reference() {what} on {shown(step.case)}{detail}", "make it right for what inputs() gives")


def _fault(x: dict[str, str]) -> Exception:
    kinds = {"TargetFault": TargetFault, "UsageFault": UsageFault, "Killed": Killed}
    return kinds.get(x["type"], EnvironmentFault)(x["message"], x["hint"])
