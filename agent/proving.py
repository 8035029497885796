"""In which order the candidates of a generation are judged on GPUs, and which of them are proved.

All are measured first, side by side. What would be accepted is then proved, which takes longer: raced, and confirmed by
a process that knows nothing of the first; the fastest first, one at a time, until one is accepted. The rest was slower,
so nothing would start from it; it stays undecided, with its ratio. So the number of GPUs does not decide. What waits
for its proof is in the record: a run that is killed, or out of time, measures nothing again.

Candidates that were given to be checked, and all where an answer may take days, are judged whole, each by itself.
What a candidate is put through says `judging.py`; verdicts are settled by whoever asks for outcomes.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pgo_agent.agent import check, judging, measured_record
from pgo_agent.agent.context import Context
from pgo_agent.agent.measured_record import Waiting
from pgo_agent.agent.store import Candidate
from pgo_agent.sandbox.gate.verdict import Judged, Verdict
from pgo_agent.sandbox.judge.base import AnyJudge

AT_ONCE, GIVEN_AT_ONCE = 2, 4  # candidates for each GPU
Outcome = tuple[Judged, float | None, float]  # a verdict, the speedup, and the seconds of the GPU that both took
Found = Outcome | Waiting | None  # None: somebody vetoed it before it was begun


@dataclass
class _Batch:
    """Candidates that are judged together; threads share it."""

    ctx: Context
    gpu: AnyJudge
    compiling: judging.Compiling
    begun: set[str]  # what is being judged: a veto comes too late
    fastest: float = 0.0  # that was measured
    lock: threading.Lock = field(default_factory=threading.Lock)

    def leads(self, speedup: float) -> bool:
        """Whether none that was measured so far is as fast."""
        with self.lock:
            leads = speedup > self.fastest
            self.fastest = max(speedup, self.fastest)
        return leads

    def candidate(self, name: str) -> Candidate:
        return self.ctx.store.candidate(self.ctx.run.id, name)


def outcomes(
    ctx: Context, gpu: AnyJudge, waiting: Sequence[Candidate], more: Callable[[], bool], begun: set[str]
) -> Iterator[tuple[str, Outcome]]:
    """Verdicts by candidate, as they come: each is to be recorded before the next is asked for.

    `more`: asked before a candidate is begun. `begun`: filled with what is being judged. Raises what judges raise.
    """
    given = any(c.author == check.AUTHOR for c in waiting)
    with ThreadPoolExecutor(max(1, ctx.builder.cores // 2)) as compilers:
        batch = _Batch(ctx, gpu, judging.Compiling(compilers), begun)
        if given or gpu.by_hand:
            yield from _whole(batch, waiting, more, GIVEN_AT_ONCE if given else AT_ONCE)
            return
        yield from _measured(batch, waiting, more)
        yield from _proved(batch, waiting, more)


def _whole(
    batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool], each: int
) -> Iterator[tuple[str, Outcome]]:
    """While one is on a GPU, others of the same are built whole, or their twins compile. What was given is nothing but
    judged, so that more of it is begun."""
    work = {c.id: partial(_judge, batch, c.id) for c in waiting}
    for name, found in batch.gpu.together(work, more, each):
        if found is not None:
            yield name, found


def _judge(batch: _Batch, name: str) -> Outcome | None:
    """The whole gate on one candidate; None for one that was vetoed."""
    found = _measure(batch, name)
    if not isinstance(found, Waiting):
        return found
    judging.prepare(batch.ctx, batch.candidate(name), found.judged, batch.compiling)
    return _prove(batch, found)


# the fastest first ----------------------------------------------------------------------------------------------------


def _measured(batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool]) -> Iterator[tuple[str, Outcome]]:
    """The verdicts that stand when a candidate is measured; what does not is put into the record."""
    known = measured_record.speedups(batch.ctx.store, batch.ctx.run.id)
    work = {c.id: partial(_leading, batch, c.id) for c in waiting if c.id not in known}
    for name, found in batch.gpu.together(work, more, AT_ONCE):
        if isinstance(found, Waiting):
            measured_record.add(batch.ctx.store, batch.ctx.run.id, found)
        elif found is not None:
            yield name, found
        batch.begun.discard(name)  # it may be vetoed until its proof is begun


def _leading(batch: _Batch, name: str) -> Found:
    """Measures a candidate; of the fastest so far the proof is made ready."""
    found = _measure(batch, name)
    if isinstance(found, Waiting) and batch.leads(found.speedup):
        judging.prepare(batch.ctx, batch.candidate(name), found.judged, batch.compiling)
    return found


def _proved(batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool]) -> Iterator[tuple[str, Outcome]]:
    """The first proof is begun whether or not there is time for one."""
    left, begun = _in_order(batch, waiting), 0
    winner, beaten = _winner(batch, waiting)
    for n, one in enumerate(left):
        faster = f"{winner[:8]} was faster" if one.speedup <= beaten else ""
        why = faster or ("" if more() or not begun else "the time was over")
        if batch.candidate(one.candidate).verdict is not None:  # it was vetoed
            continue
        if why:
            yield one.candidate, (judging.passed_over(one.judged, why), one.speedup, one.seconds)
            continue
        begun += 1
        _tell(batch, one, len(left) - n)
        yield from batch.gpu.together({one.candidate: partial(_proof, batch, one)})
        if batch.candidate(one.candidate).verdict == Verdict.ACCEPTED:
            winner, beaten = one.candidate, math.inf


def _in_order(batch: _Batch, waiting: Sequence[Candidate]) -> list[Waiting]:
    found, place = measured_record.of(batch.ctx.store, batch.ctx.run.id), {c.id: c.position for c in waiting}
    return sorted((found[name] for name in place if name in found), key=lambda w: (-w.speedup, place[w.candidate]))


def _winner(batch: _Batch, waiting: Sequence[Candidate]) -> tuple[str, float]:
    """What was accepted of the generation before this process was begun, and its speedup."""
    own = batch.ctx.store.candidates(batch.ctx.run.id, waiting[0].generation) if waiting else []
    won = [(c.speedup or 0.0, c.id) for c in own if c.verdict == Verdict.ACCEPTED]
    speedup, name = max(won, default=(0.0, ""))
    return name, speedup


def _tell(batch: _Batch, one: Waiting, left: int) -> None:
    among = f", the fastest of {left}" if left > 1 else ""
    doing = f"racing and confirming {one.candidate[:8]}, measured at {one.speedup:.3f}x{among}"
    batch.ctx.emit("phase", phase="judge", doing=doing)


# one candidate --------------------------------------------------------------------------------------------------------


def _measure(batch: _Batch, name: str) -> Found:
    batch.begun.add(name)  # before it is looked at: from here on a veto comes too late
    if batch.candidate(name).verdict is not None:
        return None
    first = judging.first(batch.ctx, batch.candidate(name))
    speedup = judging.speedup(first.judged)
    if first.stands:
        return first.judged, speedup, batch.gpu.seconds
    return Waiting(name, first.judged, speedup or 0.0, batch.gpu.seconds)


def _prove(batch: _Batch, one: Waiting) -> Outcome:
    judged, speedup = judging.proved(batch.ctx, batch.candidate(one.candidate), one.judged, batch.compiling)
    return judged, speedup, batch.gpu.seconds


def _proof(batch: _Batch, one: Waiting) -> Outcome:
    """As `_prove`, where the seconds of the measurement are those of another piece of work."""
    batch.begun.add(one.candidate)
    judged, speedup, seconds = _prove(batch, one)
    return judged, speedup, one.seconds + seconds
