"""A run as recorded: its settings, its baseline and its summary."""

import json
from dataclasses import dataclass, field
from functools import lru_cache

from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record import run_summary
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.run_summary import FailedRun, MeasuredRun, RunSummary
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.machine import Environment


@dataclass(frozen=True)
class Run:
    id: str
    target: str
    digest: str
    source: str
    device: str
    settings: RunSettings
    baseline_json: str | None  # None until it stands
    state: str
    seconds: float
    summary_json: str | None  # None until it ends
    created: str
    contract: str | None = None  # digest of what its target asks of a kernel; None: not recorded
    knows: int | None = None  # the last verdict in the workspace when it began; None: it reads no other run
    gpu_seconds: float = 0.0  # spent, over all resumptions
    facts: RunFacts = field(default_factory=RunFacts)
    damaged: tuple[str, ...] = ()  # settings and facts that cannot be read: the run cannot be resumed
    unknown: tuple[str, ...] = ()  # settings of another version, which are ignored

    @property
    def baseline(self) -> Baseline | None:
        """Return its baseline; None until it is made. Raises EnvironmentFault for a damaged one."""
        try:
            return None if self.baseline_json is None else _baseline(self.baseline_json)
        except ValueError as e:
            raise self._damaged("baseline", e) from None

    @property
    def summary(self) -> RunSummary | None:
        """Return its summary; None until it ends. Raises EnvironmentFault for a damaged one."""
        try:
            return None if self.summary_json is None else run_summary.read(self.summary_json)
        except ValueError as e:
            raise self._damaged("summary", e) from None

    @property
    def environment(self) -> Environment | None:
        """Return the environment of the GPU that measured last; None: nothing was measured. Raises EnvironmentFault."""
        if isinstance(self.summary, MeasuredRun):
            return self.summary.environment
        return self.baseline.environment if self.baseline else None

    @property
    def error(self) -> str:
        """Return why it failed; empty if it did not. Raises EnvironmentFault for a damaged summary."""
        return self.summary.error if isinstance(self.summary, FailedRun) else ""

    def _damaged(self, what: str, e: ValueError) -> EnvironmentFault:
        problem = f"the {what} of run {self.id} is damaged, or of another version of pgo-agent: {e}"
        return EnvironmentFault(problem, "start again with `pgo-agent optimize`")


@lru_cache(maxsize=4)  # every step looks at it
def _baseline(text: str) -> Baseline:
    return Baseline.from_json(json.loads(text))
