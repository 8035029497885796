"""The file of a plan's results: JSON lines, each written when its run has ended, behind one that says which run began.

The first line names the plan: results of another one are refused. A last line that was cut off counts as none. What
an evaluation demands of a result is its `problem`: a line that has one is neither written nor read. Several processes
may write one file: each claims the run that it makes.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.runner.byte_lock import held
from pgo_agent.evals.runner.waiting import Waits
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

BEGUN, ENDED, PLAN = "begun", "run", "plan"
HEAD = f'{{"what": "{PLAN}"'  # how a file of results begins
OTHER_FILE = "name another file with -o"
LINES = 0  # the part of the file that who reads or writes lines holds; those after it belong to the plan's runs


class PlannedRun(Protocol):
    """One run of a plan."""

    @property
    def target(self) -> str: ...

    @property
    def named(self) -> Mapping[str, object]:
        """What makes it unique among the plan's runs, as every line of it has it."""


W = TypeVar("W", bound=PlannedRun)


class EvaluationPlan(Protocol[W]):
    @property
    def digest(self) -> str: ...

    @property
    def values(self) -> Mapping[str, object]:
        """All that it says, as its file does."""

    @property
    def runs(self) -> Sequence[W]:
        """In the order in which they are made."""

    def settings_of(self, planned: W, settings: RunSettings) -> RunSettings:
        """Return the settings of the command line, with what the plan says of a run."""


def _fine(_: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True)
class Results(Generic[W]):
    """The file of results of one plan."""

    file: Path
    plan: EvaluationPlan[W]
    kind: str  # of evaluation, for messages: an ablation, a nightly
    head: Mapping[str, Any] = field(default_factory=dict)  # what else the first line says
    problem: Callable[[Mapping[str, Any]], str] = _fine  # why a line is no result; empty: it is one
    waiting: list[Waits] = field(default_factory=list, compare=False)  # what runs were suspended for by this process

    @cached_property
    def lines(self) -> list[JsonObject]:
        """What was written before. Raises UsageFault for another plan's, and for a line that is none of them, and
        EnvironmentFault where the file is not for this user to write.
        """
        if not self.file.exists():
            return []
        with self._held(LINES):
            return self._all()

    def _all(self) -> list[JsonObject]:
        lines = list(self._read())
        if lines and lines[0].get("digest") != self.plan.digest:
            raise UsageFault(
                f"{self.file} holds results of another plan",
                f"{OTHER_FILE}: a plan is fixed before its runs",
            )
        return lines

    @contextmanager
    def claimed(self, planned: W, wait: bool) -> Iterator[bool]:
        """Claim a run while the block runs; yield whether no other process has it. `wait`: wait until none has.

        What others wrote meanwhile is read. Raises EnvironmentFault where the file cannot be written.
        """
        with self._held(LINES + 1 + self.plan.runs.index(planned), wait) as ours:
            self.read_again()
            yield ours

    def read_again(self) -> None:
        """Read the file again at the next use: other processes may have written to it."""
        self.__dict__.pop("lines", None)

    def begun(self, planned: W) -> str | None:
        """Return the name of the run that was begun last for a planned run; None without one."""
        runs = [str(line["run"]) for line in self.lines if line["what"] == BEGUN and _is(line, planned)]
        return runs[-1] if runs else None

    @property
    def missing(self) -> list[W]:
        """Runs of the plan that have no result yet. Raises as `lines` does."""
        return [w for w in self.plan.runs if self.ended(w) is None]

    def settings_of(self, planned: W, settings: RunSettings) -> RunSettings:
        """Return the settings of a run, as the plan and the results of other runs have them."""
        return self.plan.settings_of(planned, settings)

    def lacks(self, planned: W) -> list[W]:
        """Return the runs that must end before this one begins."""
        return []

    def ended(self, planned: W) -> JsonObject | None:
        return next((line for line in self.lines if line["what"] == ENDED and _is(line, planned)), None)

    def add(self, what: str, **fields: Any) -> JsonObject:
        """Write a line, and the plan before the first one. Raises EnvironmentFault where it cannot be written, and
        UsageFault for a line that is no result.
        """
        new = {"what": what} | fields
        if why := self.problem(new):
            raise UsageFault(f"{self.kind} cannot write a result: {why}", "`pgo-agent show` says what the run came to")
        try:
            with self._held(LINES), self.file.open("a", encoding="utf-8") as out:
                written = self._all()
                self._cut_off()
                lines = [new] if written else [self._first(), new]
                out.write("".join(json.dumps(line) + "\n" for line in lines))
                out.flush()
                os.fsync(out.fileno())
        except OSError as e:
            raise self._unwritable(e) from None
        self.__dict__["lines"] = written + lines
        return new

    @contextmanager
    def _held(self, part: int, wait: bool = True) -> Iterator[bool]:
        """Lock a part of the file while the block runs. Raises EnvironmentFault where the file cannot be opened."""
        with ExitStack() as stack:
            try:
                ours = stack.enter_context(held(self.file, part, wait))
            except OSError as e:
                raise self._unwritable(e) from None
            yield ours

    def _unwritable(self, e: OSError) -> EnvironmentFault:
        return EnvironmentFault(f"cannot write {self.file}: {e.strerror}", OTHER_FILE)

    def _first(self) -> JsonObject:
        return {"what": PLAN, "digest": self.plan.digest, **self.head, "plan": self.plan.values}

    def _cut_off(self) -> None:
        """Remove a last line that is not whole. All lines before it must be known to be ours."""
        data = self.file.read_bytes()
        os.truncate(self.file, data.rfind(b"\n") + 1)

    def _read(self) -> Iterator[JsonObject]:
        text = self.file.read_text(encoding="utf-8", errors="replace") if self.file.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        if not complete and not (text.startswith(HEAD) or HEAD.startswith(text)):
            raise UsageFault(f"{self.file}, line 1: it is no result of {self.kind}", OTHER_FILE)
        ended: set[W] = set()
        for n, line in enumerate(complete.splitlines(), 1):
            parsed_line = parsed(line)
            why = (
                f"it is no result of {self.kind}"
                if parsed_line is None
                else self.problem(parsed_line) or self._again(parsed_line, ended)
            )
            if parsed_line is None or why:
                raise UsageFault(f"{self.file}, line {n}: {why}", OTHER_FILE)
            yield parsed_line

    def _again(self, line: Mapping[str, Any], ended: set[W]) -> str:
        """Return why a line is a second result of its run; else note that this run has ended."""
        planned = next((w for w in self.plan.runs if line["what"] == ENDED and _is(line, w)), None)
        if planned in ended:
            return "it is the second result of one run"
        if planned is not None:
            ended.add(planned)
        return ""


def parsed(line: str) -> JsonObject | None:
    """Return a line's JSON object with its key `what`; None for any other line."""
    with suppress(ValueError, RecursionError):
        value = json.loads(line)
        if isinstance(value, dict) and isinstance(value.get("what"), str):
            return value
    return None


def _is(line: Mapping[str, Any], planned: PlannedRun) -> bool:
    return all(line.get(name) == value for name, value in planned.named.items())
