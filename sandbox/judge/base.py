"""What every judge is to those who ask: on this machine (`pool.py`), or elsewhere (`spool/client.py`).

Relies on nothing that takes long to import. Commands and their answers are those of `looks.py` and `worker.py`.
"""

from typing import Any, Protocol

from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.target import Target


class AnyJudge(Protocol):
    target: Target
    environment: dict[str, Any]  # of the machine that judged last; empty before
    busy: float  # seconds in which it held its machine

    @property
    def elsewhere(self) -> bool:
        """Whether answers come from another machine."""

    @property
    def by_hand(self) -> bool:
        """Whether an answer may take days: then everything is better asked at once."""

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """The answer to a command. Raises Ended, TargetFault or EnvironmentFault; elsewhere Unanswered, too."""

    def verdict(self, command: str, **fields: Any) -> Judged:
        """As `ask`, for commands that answer a verdict: a hang or a crash becomes one, too."""

    def queue(self, command: str, **fields: Any) -> None:
        """Says what will be asked soon: whoever is far away can begin with it."""

    def fresh(self) -> None:
        """The next command gets a process that answered nothing before."""

    def prepare(self, processes: int) -> None:
        """Has so many more processes ready."""

    def close(self) -> None:
        """Ends what it started."""


class Ended(Exception):
    """The judge process ended or was ended while it worked on a command. `killed`: by somebody else's SIGKILL."""

    def __init__(self, stage: str, timed_out: bool, detail: str, killed: bool = False) -> None:
        super().__init__(detail)
        self.stage, self.timed_out, self.detail, self.killed = stage, timed_out, detail, killed


def of_ended(command: str, e: Ended) -> Judged:
    """The verdict that a hang or a crash is."""
    stage = e.stage.split()[0] if e.stage else command
    if e.timed_out:
        return Judged(Verdict.TIMEOUT, stage, f"did not end: stopped in '{e.stage}' at its deadline")
    return Judged(Verdict.CRASHED, stage, e.detail[-1200:])
