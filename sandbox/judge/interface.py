"""What every judge is to those who ask: on this machine (`pool.py`; `gpu_judge.py` is one GPU), or elsewhere
(`sandbox/judge/spool/client.py`).

Relies on nothing that takes long to import. Commands and their answers are those of `commands.py` and
`commands.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.reason import quoted
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict, from_json
from pgo_agent.sandbox.target import Target

T = TypeVar("T")


def always() -> bool:
    return True


class Busy(Exception):
    """A piece of work waits for this machine, and others need not wait with it: `together` begins it again."""


class Verdicts(ABC):
    """What every judge makes of `ask`."""

    @abstractmethod
    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """As AnyJudge.ask."""

    def verdict(self, command: str, **fields: Any) -> Judgement:
        """As AnyJudge.verdict."""
        try:
            return from_json(self.ask(command, **fields))
        except Ended as e:
            return of_ended(command, e)

    def idle(self) -> AbstractContextManager[None]:
        """As AnyJudge.idle, where that changes nothing."""
        return nullcontext()


class Judge(Protocol):
    target: Target

    @property
    def environment(self) -> dict[str, Any]:
        """Of the machine and the GPU that judged last, for this thread; empty before."""

    @property
    def busy(self) -> float:
        """Seconds in which it held GPUs, of all together."""

    @property
    def seconds(self) -> float:
        """As `busy`, since the piece of work of `together` that asks was begun."""

    @property
    def waited(self) -> float:
        """Seconds in which nothing went on, for another process held the GPUs."""

    @property
    def elsewhere(self) -> bool:
        """Whether answers come from another machine."""

    @property
    def by_hand(self) -> bool:
        """Whether an answer may take days: then everything is better asked at once."""

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """The answer to a command. Raises Ended, TargetFault or EnvironmentFault; elsewhere Unanswered, too."""

    def verdict(self, command: str, **fields: Any) -> Judgement:
        """As `ask`, for commands that answer a verdict: a hang or a crash becomes one, too."""

    def queue(self, command: str, **fields: Any) -> None:
        """Says what will be asked soon: whoever is far away can begin with it."""

    def fresh(self) -> None:
        """The next command gets a process that answered nothing before."""

    def prepare(self, processes: int) -> None:
        """Has so many more processes ready."""

    def turn(self) -> AbstractContextManager["Judge"]:
        """Within, the commands of this thread go to the same GPU, and no others go there. Gives that GPU's judge."""

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        """What each piece of work comes to, by its name, in the order in which they end. Each is on one GPU at a time.

        `more`: asked before another piece is begun; what was begun is ended. `each`: pieces at once for each GPU, so
        that one is on it while others do what needs none.
        """

    def idle(self) -> AbstractContextManager[None]:
        """Within, this thread's piece of work waits for another one of them."""

    def close(self) -> None:
        """Ends what it started."""


class Ended(Exception):
    """The judge process ended or was ended while it worked on a command. `killed`: by somebody else's SIGKILL."""

    def __init__(self, stage: str, timed_out: bool, detail: str, killed: bool = False) -> None:
        super().__init__(detail)
        self.stage, self.timed_out, self.detail, self.killed = stage, timed_out, detail, killed


class NoStart(EnvironmentFault):
    """A judge process did not come as far as a known computation on its GPU."""


def of_ended(command: str, e: Ended) -> Judgement:
    """The verdict that a hang or a crash is."""
    stage = e.stage.split()[0] if e.stage else command
    held_out = next((word for word in e.stage.split() if word.startswith(HELD_OUT)), "")  # as steps are announced
    if e.timed_out:
        return Judgement(
            Verdict.TIMEOUT, stage, quoted(f"did not end: stopped in '{e.stage}' at its deadline", held_out)
        )
    return Judgement(Verdict.CRASHED, stage, quoted(e.detail[-1200:], held_out))
