"""What all runs together may take that one server begins: a run's own budget alone would let an agent begin another.

Relies on the record for what runs took. A run that is at work counts with what is recorded of it so far.
"""

from dataclasses import dataclass, field, replace

from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault

HINT = "no further run is begun: whoever started the server may start it anew with more; runs that are open go on"


@dataclass
class Allowance:
    """Limits over all runs of a server; None: no limit."""

    minutes: float | None = None
    gpu_seconds: float | None = None
    runs: set[str] = field(default_factory=set)  # that this server began

    def of_next(self, store: Store, asked: RunSettings) -> RunSettings:
        """Return the settings of one more run, with no more than what is left. Raises UsageFault where nothing is."""
        begun = [r for r in store.runs() if r.id in self.runs]
        minutes = _left(self.minutes, sum(r.seconds for r in begun) / 60, "minutes")
        gpu = _left(self.gpu_seconds, sum(r.gpu_seconds for r in begun), "seconds of the GPU")
        return replace(
            asked,
            minutes=asked.minutes if minutes is None else min(minutes, asked.minutes),
            gpu_seconds=_least(gpu, asked.gpu_seconds),
        )


def _left(limit: float | None, spent: float, unit: str) -> float | None:
    if limit is not None and spent >= limit:
        raise UsageFault(f"the runs of this server have taken {spent:.1f} {unit}, of {limit:g} that they may", HINT)
    return None if limit is None else limit - spent


def _least(a: float | None, b: float | None) -> float | None:
    given = [x for x in (a, b) if x is not None]
    return min(given) if given else None
