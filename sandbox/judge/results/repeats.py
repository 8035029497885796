"""Launches of one replay on the same inputs, and why their outputs differ.

A kernel may read outside of its tensors, read buffers before it writes them, or find what an earlier launch of its own
left there; else it is a race. Each pair is tried twice, for a race may look like any of these once.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.guard_zones import Fill
from pgo_agent.sandbox.judge.launches.plan_executor import Replay

LEFT = "its outputs change with what an earlier launch of its own left in its buffers or in shared memory"
Memory = tuple[Fill, Fill] | None  # what buffers and guard zones hold before; None: what the last launch left


@dataclass(frozen=True)
class Repeats:
    replay: Replay
    launched: Callable[[], int]  # launches to the end; returns the checksum of the outputs

    def outputs(self, memory: Memory) -> int:
        """Launch on memory, of which the results are overwritten in any case; return the outputs' checksum."""
        if memory is None:
            self.replay.blank()
        else:
            self.replay.poison(*memory)
        return self.launched()

    def left(self, memory: Memory) -> tuple[Verdict, str]:
        """Return why outputs on what a launch left differ from those on memory that was filled."""
        return (Verdict.WRONG, LEFT) if self._differ(memory, None) else _RACE

    def why(self, one: tuple[Fill, Fill], other: tuple[Fill, Fill]) -> tuple[Verdict, str]:
        """Return why outputs on two fillings of the memory differ."""
        (buffers, zones), (other_buffers, other_zones) = one, other
        if self._differ(one, (buffers, other_zones)):
            return Verdict.WRONG, "reads outside of its tensors: its outputs change with what lies there"
        if self._differ(one, (other_buffers, zones)):
            return Verdict.WRONG, "its outputs change with what its buffers held before it ran"
        return _RACE

    def _differ(self, one: Memory, other: Memory) -> bool:
        pairs = [(self.outputs(one), self.outputs(other)) for _ in range(2)]
        return pairs[0] == pairs[1] and pairs[0][0] != pairs[0][1]


_RACE = Verdict.RACE, "runs on the same inputs gave different outputs"
