"""What a run works with: store, builder, judges, budget, and the one feed of events. Never checkpointed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.agent.models.base import Model
from pgo_agent.agent.store import Run, Store
from pgo_agent.sandbox.build import Builder
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.judge.base import AnyJudge
from pgo_agent.sandbox.judge.pool import Judge
from pgo_agent.sandbox.target import Target

Emit = Callable[[dict[str, Any]], None]


@dataclass
class Context:
    store: Store
    run: Run
    target: Target
    device: Device
    builder: Builder
    gpu: AnyJudge | None  # None: nothing can be measured
    model: Model | None  # proposes beside the embedded moves; None: nobody does
    cpu: Judge  # Triton's interpreter
    emit_to: Emit
    _mark: float = field(default_factory=time.monotonic)

    @property
    def settings(self) -> dict[str, Any]:
        return self.run.settings

    def emit(self, kind: str, /, **fields: Any) -> None:
        """One event: `--json`, the progress display and tests all read this feed."""
        self.emit_to({"type": kind, "run": self.run.id, **fields})

    def baseline(self) -> dict[str, Any]:
        """The baseline of the run. It stands before anything else happens."""
        found = self.store.run(self.run.id).baseline
        if found is None:
            raise RuntimeError("the baseline is asked for before it was built")
        return found

    def spend(self) -> float:
        """Books the time since the last call to the run; gives the seconds spent over all resumptions."""
        now = time.monotonic()
        self.store.add_seconds(self.run.id, now - self._mark)
        self._mark = now
        return self.store.run(self.run.id).seconds

    @contextmanager
    def unbooked(self) -> Iterator[None]:
        """What passes in here is not the run's time: somebody thinks."""
        self.spend()
        try:
            yield
        finally:
            self._mark = time.monotonic()

    def out_of_time(self) -> bool:
        return self.spend() > 60 * float(self.settings["minutes"])

    def gpu_seconds(self) -> float:
        """How long the GPU was held by this process's part of the run."""
        return round(self.gpu.busy, 3) if self.gpu is not None else 0.0

    def close(self) -> None:
        self.cpu.close()
        if self.gpu is not None:
            self.gpu.close()
