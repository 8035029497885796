"""The interface of every judge: on this machine (`pool.py`, `gpu_judge.py`), or elsewhere (`spool/client.py`).

Relies on nothing that takes long to import. What may be asked stands in `questions.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.questions import Question
from pgo_agent.sandbox.target import Target

T = TypeVar("T")


def always() -> bool:
    return True


class Busy(Exception):
    """A piece of work waits for this machine: `together` goes on with others and begins it again."""


class Verdicts(ABC):
    """The methods that a judge gets from its `ask`."""

    @abstractmethod
    def ask(self, question: Question[T]) -> T:
        """As Judge.ask."""

    def verdict(self, question: Question[Judgement]) -> Judgement:
        """As Judge.verdict."""
        try:
            return self.ask(question)
        except Ended as e:
            return of_ended(question.do, e)

    def idle(self) -> AbstractContextManager[None]:
        """As Judge.idle, where that changes nothing."""
        return nullcontext()


class Judge(Protocol):
    target: Target

    @property
    def environment(self) -> Environment:
        """The machine and the GPU that judged last for this thread; NOWHERE before."""

    @property
    def busy(self) -> float:
        """Seconds in which it held GPUs, summed over all of them."""

    @property
    def seconds(self) -> float:
        """As `busy`, since the current piece of work of `together` began."""

    @property
    def waited(self) -> float:
        """Seconds in which nothing went on because another process held the GPUs."""

    @property
    def elsewhere(self) -> bool:
        """Whether answers come from another machine."""

    @property
    def here(self) -> bool:
        """Whether its GPUs are of this machine, where tools can look at them."""

    @property
    def by_hand(self) -> bool:
        """Whether an answer may take days, so that everything is better asked at once."""

    def ask(self, question: Question[T]) -> T:
        """Return the answer to a question. Raises Ended, TargetFault or EnvironmentFault; elsewhere also Unanswered."""

    def verdict(self, question: Question[Judgement]) -> Judgement:
        """Ask for a verdict. A hang or a crash becomes a verdict."""

    def queue(self, question: Question[object], fresh: int = 0) -> None:
        """Announce what will be asked soon: a judge elsewhere can begin with it. `fresh`: new processes until then."""

    def fresh(self) -> None:
        """Give the next command a new process."""

    def prepare(self, processes: int) -> None:
        """Start this many spare processes."""

    def turn(self) -> AbstractContextManager["Judge"]:
        """Reserve one GPU for the commands of this thread. Gives that GPU's judge."""

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        """Give (name, result) of each piece of work, in the order in which they end. Each uses one GPU at a time.

        `more`: asked before another piece is begun; begun pieces are finished. `each`: pieces at once for each GPU, so
        that one uses it while others work on the CPU.
        """

    def idle(self) -> AbstractContextManager[None]:
        """Mark this thread's piece of work as waiting for another piece."""

    def close(self) -> None:
        """End what it started."""


class Right(Protocol):
    """The right to use a GPU, as `gpu_lock.py` has it."""

    gpu: Gpu

    def taken(self) -> bool:
        """Take it if it is free, else join the queue; say which."""

    def left(self) -> None:
        """Leave the queue."""

    def free(self) -> None:
        """Give it back."""

    @property
    def holder(self) -> str:
        """Who has it, or had it last."""


class OneGpu(Judge, Protocol):
    """A judge of one GPU, of which a pool has several."""

    python: str
    gpu: str | None  # as a process is told which it is: a UUID; None: there is none

    @property
    def lock(self) -> Right | None:
        """The right to use its GPU; None: it is not known yet, or there is no GPU."""

    @property
    def started(self) -> bool:
        """Whether it has a process."""

    def open(self) -> Environment:
        """Start a process with the target open and return its environment. Raises as `ask`."""

    def occupied(self) -> AbstractContextManager[None]:
        """Count the time in which something besides its process works on the GPU."""


class Ended(Exception):
    """The judge process ended during a command. `killed`: by somebody else's SIGKILL."""

    def __init__(self, stage: str, timed_out: bool, detail: str, killed: bool = False) -> None:
        super().__init__(detail)
        self.stage, self.timed_out, self.detail, self.killed = stage, timed_out, detail, killed


class NoStart(EnvironmentFault):
    """A judge process did not finish a known computation on its GPU."""


def of_ended(command: str, e: Ended) -> Judgement:
    """Return the verdict on a hang or a crash."""
    stage = e.stage.split()[0] if e.stage else command
    held_out = next((word for word in e.stage.split() if word.startswith(HELD_OUT)), "")  # as steps are announced
    if e.timed_out:
        return Judgement(
            Verdict.TIMEOUT, stage, quoted(f"did not end: stopped in '{e.stage}' at its deadline", held_out)
        )
    return Judgement(Verdict.CRASHED, stage, quoted(e.detail[-1200:], held_out))
