"""Launches an instrumented build and fetches its profile scratch, for the timeline pass.

Its outputs are compared bit by bit with those of the plain build. Both are launched in turns for the ratio of their
times. The ratio only shows the cost of recording; it is no evidence of speed, so `timer.Timer` is not used. Records go
compressed into the content store; `sandbox/profile/timeline/decode.py` reads them.
"""

import zlib
from pathlib import Path
from typing import Any

import torch
from pgo_agent.sandbox.bundle.schema import Launch
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.guard_zones import NAN
from pgo_agent.sandbox.judge.launches.plan_executor import Replay, synchronize
from pgo_agent.sandbox.judge.questions import Problem, Recorded, Recording, Timeline
from pgo_agent.sandbox.judge.results.checks import STEP_SECONDS, Pick, TargetSession
from pgo_agent.sandbox.judge.timing import timer

HEADER = 40  # bytes at the start of a block's records: where and when it ran
WARM = 2  # launches before the first that counts
DISTURBED = 3  # rounds of the ratio of times


def record(bench: TargetSession, instrumented: Pick, plain: Pick, wanted: Timeline) -> Recorded | Problem:
    """Record repeated launches; return artefacts with all headers and some records, and the cost of recording.

    Records the first launch of the kernel. Each repeat takes other blocks, evenly spaced.
    """
    bench.announce(f"timeline {wanted.case}", STEP_SECONDS + 2.0 * wanted.repeats)
    seed = bench.seeds[wanted.case]
    ours, theirs = (bench.replay(p, wanted.case, seed) for p in (instrumented, plain))
    try:
        scratch = _scratch(ours, wanted.kernel)
        if scratch is None:
            return Problem(f"the bundle launches no instrumented kernel {wanted.kernel[:12]}")
        sums = [_outputs(bench, r) for r in (theirs, ours)]
        for _ in range(WARM):
            _launched(bench, ours)
        repeats = tuple(_fetch(bench, ours, scratch, wanted, n) for n in range(wanted.repeats))
        kernel, same = instrumented[wanted.case][0].kernels[wanted.kernel], sums[0] == sums[1]
        layout = kernel.profile_scratch_size, kernel.num_warps
        return Recorded(repeats, *layout, same or not bench.deterministic, *_disturbance(theirs, ours))
    finally:
        ours.close()
        theirs.close()


def _scratch(replay: Replay, kernel: str) -> Any:
    """Return the profile scratch of the kernel's first launch, or None."""
    steps = (i for i, s in enumerate(replay.plan.steps) if isinstance(s, Launch) and s.kernel == kernel)
    return replay.recorded.get(next(steps, -1))


def _launched(bench: TargetSession, replay: Replay) -> None:
    replay.poison(NAN)  # clears profile scratch, too, from which partitions go on counting
    replay()
    synchronize(bench.device)


def _outputs(bench: TargetSession, replay: Replay) -> int:
    _launched(bench, replay)
    return int(timer.checksum(replay.outputs))


def _fetch(bench: TargetSession, replay: Replay, scratch: Any, wanted: Timeline, repeat: int) -> Recording:
    _launched(bench, replay)
    size = replay.kernels[wanted.kernel].kernel.profile_scratch_size
    return keep(scratch, size, wanted.blocks, repeat, ContentStore(Path(wanted.shelf)))


def keep(scratch: Any, block_bytes: int, most: int, repeat: int, contents: ContentStore) -> Recording:
    """Store the headers of all blocks and the records of at most `most` blocks; return their names and counts.

    `scratch` is a tensor of bytes, `block_bytes` for each block of the launch.
    """
    table = scratch.view(-1, block_bytes)
    step = -(-len(table) // most)
    chosen = table[repeat % step :: step]
    headers, records = (_store(contents, t) for t in (table[:, :HEADER], chosen))
    return Recording(headers, records, len(table), len(chosen))


def _store(contents: ContentStore, tensor: Any) -> str:
    return contents.put(zlib.compress(tensor.contiguous().cpu().numpy().tobytes(), 1), RECORDS)


def _disturbance(plain: Replay, instrumented: Replay) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the times of both in ms, launched in turns, without flushing caches."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(DISTURBED):
        for ms, replay in zip(times, (plain, instrumented), strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            replay.restore()
            start.record()
            replay()
            end.record()
            torch.cuda.synchronize()
            ms.append(round(start.elapsed_time(end), 6))
    return tuple(times[0]), tuple(times[1])
