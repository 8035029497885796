"""Launches an instrumented twin and fetches its profile scratch: how the timeline pass uses a GPU.

Its outputs are compared with those of the plain build, to the bit. Both are launched in turns for a ratio of their
times: that says how much the records disturb, and nothing else; it is no evidence of speed, so it is not taken by
`timing.Timer`. What is fetched goes onto the content store as it is, compressed; `sandbox/profile/timeline/decode.py`
reads it.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import torch
from pgo_agent.sandbox.bundle.schema import Launch
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.guard_zones import NAN
from pgo_agent.sandbox.judge.launches.plan_executor import Replay, synchronize
from pgo_agent.sandbox.judge.results.checks import STEP_SECONDS, Pick, TargetSession
from pgo_agent.sandbox.judge.timing import timer

HEADER = 40  # bytes of a block that say where and when it ran
WARM = 2  # launches before the first that counts
DISTURBED = 3  # rounds of the ratio of times


@dataclass(frozen=True)
class Wanted:
    case: str
    kernel: str  # key of the instrumented build
    repeats: int
    blocks: int  # most blocks of a launch whose records are fetched; of the others only the headers
    contents: ContentStore


def record(bench: TargetSession, instrumented: Pick, plain: Pick, wanted: Wanted) -> dict[str, Any]:
    """Artefacts with the headers of all blocks and the records of some, for each repeat; and how much they disturb.

    Of several launches of the kernel the first is looked at. Other blocks are chosen in every repeat, evenly spaced.
    """
    bench.announce(f"timeline {wanted.case}", STEP_SECONDS + 2.0 * wanted.repeats)
    seed = bench.seeds[wanted.case]
    ours, theirs = (bench.replay(p, wanted.case, seed) for p in (instrumented, plain))
    try:
        scratch = _scratch(ours, wanted.kernel)
        if scratch is None:
            return {"problem": f"the bundle launches no instrumented kernel {wanted.kernel[:12]}"}
        sums = [_outputs(bench, r) for r in (theirs, ours)]
        for _ in range(WARM):
            _launched(bench, ours)
        kept = [_fetch(bench, ours, scratch, wanted, n) for n in range(wanted.repeats)]
        kernel = instrumented[wanted.case][0].kernels[wanted.kernel]
        return {
            "repeats": kept,
            "block_bytes": kernel.profile_scratch_size,
            "warps": kernel.num_warps,
            "same_outputs": sums[0] == sums[1] or not bench.deterministic,
            **_disturbance(theirs, ours),
        }
    finally:
        ours.close()
        theirs.close()


def _scratch(replay: Replay, kernel: str) -> Any:
    """The profile scratch of the kernel's first launch; None where it has none."""
    steps = (i for i, s in enumerate(replay.plan.steps) if isinstance(s, Launch) and s.kernel == kernel)
    return replay.recorded.get(next(steps, -1))


def _launched(bench: TargetSession, replay: Replay) -> None:
    replay.poison(NAN)  # clears profile scratch, too: partitions go on counting from what stands there
    replay()
    synchronize(bench.device)


def _outputs(bench: TargetSession, replay: Replay) -> int:
    _launched(bench, replay)
    return int(timer.checksum(replay.outputs))


def _fetch(bench: TargetSession, replay: Replay, scratch: Any, wanted: Wanted, repeat: int) -> dict[str, Any]:
    _launched(bench, replay)
    size = replay.kernels[wanted.kernel].kernel.profile_scratch_size
    return keep(scratch, size, wanted.blocks, repeat, wanted.contents)


def keep(scratch: Any, block_bytes: int, most: int, repeat: int, contents: ContentStore) -> dict[str, Any]:
    """Puts the headers of all blocks and the whole of at most `most` blocks in the content store; gives their names and
    counts.

    `scratch` is a tensor of bytes, `block_bytes` for each block of the launch.
    """
    table = scratch.view(-1, block_bytes)
    step = -(-len(table) // most)
    chosen = table[repeat % step :: step]
    headers, records = (_kept(contents, t) for t in (table[:, :HEADER], chosen))
    return {"headers": headers, "records": records, "blocks": len(table), "fetched": len(chosen)}


def _kept(contents: ContentStore, tensor: Any) -> str:
    return contents.put(zlib.compress(tensor.contiguous().cpu().numpy().tobytes(), 1), RECORDS)


def _disturbance(plain: Replay, instrumented: Replay) -> dict[str, list[float]]:
    """Milliseconds of launches of both, in turns, caches as the other left them."""
    times: dict[str, list[float]] = {"plain_ms": [], "instrumented_ms": []}
    for _ in range(DISTURBED):
        for name, replay in zip(times, (plain, instrumented), strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(round(start.elapsed_time(end), 6))
    return times
