"""The context of a run: store, builder, judges, models, budgets, and the one feed of events. Never checkpointed.

Threads share it: events come out one after another, and time is booked once.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pgo_agent.agent.llm.models.types import OPTIMIZER, Model
from pgo_agent.agent.run.events import Emit, made
from pgo_agent.agent.run.record.baseline import Baseline
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import Changes, RunSettings
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.target import Target


@dataclass
class Context:
    store: Store
    run: Run
    target: Target
    device: Device
    builder: Builder
    gpu: Judge | None  # None: nothing can be measured
    model: Model | None  # the optimizer's: proposes beside the embedded moves; None: nobody does
    cpu: GpuJudge  # Triton's interpreter
    emit_to: Emit
    others: dict[str, Model] = field(default_factory=dict)  # of the other roles; a missing role is embedded
    _mark: float = field(default_factory=time.monotonic)
    _held: float = 0.0  # seconds of the GPU that were booked
    _waited: float = 0.0  # seconds in which it waited for somebody else's GPU, that were left out
    _one: threading.RLock = field(default_factory=threading.RLock)

    @property
    def settings(self) -> RunSettings:
        return self.run.settings

    def change(self, changes: Changes) -> None:
        """Put other settings in place of some, from here on and in the record."""
        with self._one:
            self.run = replace(self.run, settings=self.run.settings.changed(changes))
            self.store.set_settings(self.run.id, self.run.settings, self.run.facts)

    def emit(self, kind: str, /, **fields: Any) -> None:
        """Emit one event: `--json`, the progress display and tests all read this feed."""
        with self._one:
            self.emit_to(made(kind, self.run.id, fields))

    def baseline(self) -> Baseline:
        """Return the baseline of the run, which is made before anything else. Raises RuntimeError without one."""
        baseline = self.store.run(self.run.id).baseline
        if baseline is None:
            raise RuntimeError("the baseline is asked for before it was built")
        return baseline

    def spend(self) -> float:
        """Book the time since the last call; return the seconds spent over all resumptions."""
        with self._one:
            now, held = time.monotonic(), self.gpu.busy if self.gpu is not None else 0.0
            waited = self.gpu.waited if self.gpu is not None else 0.0
            self.store.add_seconds(self.run.id, now - self._mark - (waited - self._waited), held - self._held)
            self._mark, self._held, self._waited = now, held, waited
            return self.store.run(self.run.id).seconds

    @contextmanager
    def unbooked(self) -> Iterator[None]:
        """Leave the time inside out of the run's minutes: somebody thinks."""
        self.spend()
        try:
            yield
        finally:
            self._mark = time.monotonic()

    def out_of_time(self) -> bool:
        """Whether the run's minutes or its GPU seconds are spent."""
        return self.spend() > 60 * self.settings.minutes or self.gpu_left() <= 0.0

    def gpu_seconds(self) -> float:
        """Return the seconds for which the run held the GPU, over all resumptions."""
        self.spend()
        return round(self.store.run(self.run.id).gpu_seconds, 3)

    def gpu_left(self) -> float:
        """Return the GPU seconds that the run may still take; infinite without a limit."""
        most = self.settings.gpu_seconds
        return math.inf if most is None or self.gpu is None else most - self.gpu_seconds()

    def model_of(self, role: str) -> Model | None:
        """Return the model of a role; None if the role is embedded."""
        return self.model if role == OPTIMIZER else self.others.get(role)

    def dismiss(self, role: str) -> None:
        """Make a role embedded from here on."""
        if role == OPTIMIZER:
            self.model = None
        self.others.pop(role, None)

    def close(self) -> None:
        self.cpu.close()
        if self.gpu is not None:
            self.gpu.close()
