"""Launches that are compared with one another by checksums of their outputs: do they repeat, is a kernel idle?

Needs no reference; comparisons with it are in `checks.py`.
"""

from pgo_agent.sandbox.bundle.schema import Launch
from pgo_agent.sandbox.guard_zones import ZERO, Fill
from pgo_agent.sandbox.judge.launches.plan_executor import Replay, blocks, synchronize
from pgo_agent.sandbox.judge.results.checks import FILLS, Pick, TargetSession
from pgo_agent.sandbox.judge.timing import timer as timing


def outputs_of(bench: TargetSession, pick: Pick, case: str, launches: int) -> set[int]:
    """Launch several times on the same inputs, all other memory refilled; return the checksums of the outputs."""
    replay = bench.replay(pick, case, bench.seeds[case])
    try:
        seen = set()
        for n in range(launches):
            buffers, zones = FILLS[n % len(FILLS)]
            replay.poison(buffers(), zones())
            replay()
            synchronize(bench.device)
            seen.add(int(timing.checksum(replay.outputs)))
        return seen
    finally:
        replay.close()


def idle_launches(bench: TargetSession, pick: Pick, case: str) -> list[str]:
    """Return the names of the kernels without which the outputs stay the same, bit by bit.

    Buffers hold zeros first, and random bytes only for a kernel that seems idle: a random index could send a kernel
    astray. A kernel that only writes zeros is not idle, nor is a launch of no blocks.
    """
    replay = bench.replay(pick, case, bench.seeds[case])
    try:
        fills = (ZERO, Fill())
        seen = {f: _outputs_without(bench, replay, None, f) for f in fills}
        names = [(i, s.kernel) for i, s in enumerate(replay.plan.steps) if isinstance(s, Launch) and blocks(s)]
        kernels = pick[case][0].kernels
        return [
            kernels[k].name for i, k in names if all(_outputs_without(bench, replay, i, f) == seen[f] for f in fills)
        ]
    finally:
        replay.close()


def _outputs_without(bench: TargetSession, replay: Replay, step: int | None, buffers: Fill) -> int:
    replay.poison(buffers)
    replay(without=step)
    synchronize(bench.device)
    return int(timing.checksum(replay.outputs))
