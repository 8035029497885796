"""The order in which the candidates of a generation are judged on GPUs, and which of them are measured and proved.

All get a first look, side by side. Those that may be faster are then measured one after another, the most promising
first, as long as the next one promises more than the fastest measured so far. Candidates that would be accepted are
proved: raced, and confirmed in a fresh process; the fastest first, until one is accepted. The rest stays undecided,
with its ratio, as nothing would start from it. So the result does not depend on the number of GPUs. Waiting candidates
are in the record: a run that is killed, or out of time, measures nothing again.

Given candidates, and all candidates if an answer may take days, are judged completely, each by itself. `measure.py`
runs the stages of one candidate; the caller settles the verdicts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pgo_agent.agent.evaluation import build as building
from pgo_agent.agent.evaluation import measure
from pgo_agent.agent.run import provenance
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import pending
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.pending import Waiting
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.interface import Judge

AT_ONCE, GIVEN_AT_ONCE = 2, 4  # candidates for each GPU
# Cores with which the sanitized build of a candidate is begun while it is measured: 40 s of attention's backward pass,
# one core for each kernel, and most of that its proof would wait for. With fewer it would delay the next one's build.
SPARE = 8
Outcome = tuple[Judgement, float | None, float]  # a verdict, the speedup, and the seconds of the GPU that both took
Result = Outcome | Waiting | None  # None: it was vetoed before it was begun


@dataclass
class _Batch:
    """Candidates that are judged together; threads share it."""

    ctx: Context
    gpu: Judge
    compilers: Executor
    begun: set[str]  # what is being judged: a veto comes too late
    compiling: measure.Compiling = field(init=False)
    whole: dict[str, Future[Any]] = field(default_factory=dict)  # builds of held-out cases
    late: set[str] = field(default_factory=set)  # what promises more than was measured, when the time was over

    def __post_init__(self) -> None:
        self.compiling = measure.Compiling(self.compilers)

    def candidate(self, name: str) -> Candidate:
        return self.ctx.store.candidate(self.ctx.run.id, name)

    def build(self, name: str) -> Future[Any]:
        """Start the whole build of a candidate before a GPU is asked. Only the thread that reads verdicts calls it."""
        if name not in self.whole:
            self.whole[name] = self.compilers.submit(building.complete, self.ctx, self.candidate(name))
        return self.whole[name]

    def build_no_more(self) -> None:
        """Cancel builds that were not begun: the instrumented build of the candidate to prove comes first."""
        self.whole = {name: build for name, build in self.whole.items() if not build.cancel()}


def outcomes(
    ctx: Context, gpu: Judge, waiting: Sequence[Candidate], more: Callable[[], bool], begun: set[str]
) -> Iterator[tuple[str, Outcome]]:
    """Yield (candidate, outcome) as they come. The caller records each before it asks for the next.

    `more`: asked before a candidate is begun. `begun`: filled with what is being judged. Raises what judges raise.
    """
    # who gave a candidate waits for its own verdict, and not for that of the best
    any_given = any(c.author == provenance.GIVEN for c in waiting) or bool(ctx.run.facts.open_to)
    compilers, ended = ThreadPoolExecutor(max(1, ctx.builder.cores // 2)), False
    batch = _Batch(ctx, gpu, compilers, begun)
    try:
        if any_given or gpu.by_hand:
            yield from _whole(batch, waiting, more, GIVEN_AT_ONCE if any_given else AT_ONCE)
        else:
            yield from _looked(batch, waiting, more)
            yield from _by_promise(batch, waiting, more)
        ended = True
    finally:
        # Ctrl-C waits for nobody, and nobody for the sanitized build of a candidate that lost.
        wait(batch.whole.values() if ended else ())
        compilers.shutdown(wait=False, cancel_futures=True)


def _whole(
    batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool], each: int
) -> Iterator[tuple[str, Outcome]]:
    """Judge each candidate completely. While one is on a GPU, others are built. Given candidates are only judged, so
    more of them are begun."""
    work = {c.id: partial(_judge, batch, c.id) for c in waiting}
    for name, result in batch.gpu.together(work, more, each):
        if result is not None:
            yield name, result


def _judge(batch: _Batch, name: str) -> Outcome | None:
    """Run the whole gate on one candidate; None if it was vetoed."""
    if not _wanted(batch, name):
        return None
    result = _waiting(batch, name, measure.first(batch.ctx, batch.candidate(name)))
    if not isinstance(result, Waiting):
        return result
    measure.prepare(batch.ctx, batch.candidate(name), result.judged, batch.compiling)
    return _prove(batch, result)


# the most promising first ---------------------------------------------------------------------------------------------


def _looked(batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool]) -> Iterator[tuple[str, Outcome]]:
    """Yield the verdicts that stand after a first look; record the speedup that each other candidate promises."""
    if _winner(batch, waiting):  # of a process before this one: nothing is measured any more
        return
    waiting_by_name, most = pending.of(batch.ctx.store, batch.ctx.run.id), 0.0
    work = {c.id: partial(_look, batch, c.id) for c in waiting if c.id not in waiting_by_name and not c.build.whole}
    for name, result in batch.gpu.together(work, more, AT_ONCE):
        yield from _settled(batch, name, result)
        if isinstance(result, Waiting) and result.speedup > most:
            most = result.speedup
            batch.build(name)


def _by_promise(batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool]) -> Iterator[tuple[str, Outcome]]:
    """Measure and prove by turns until one is accepted. The first proof is begun even if no time is left."""
    winner, proofs = _winner(batch, waiting), _proved(batch, waiting)
    while not winner:
        yield from _measured(batch, waiting, more)
        left = _in_order(batch, waiting)
        if not left or (proofs and not more()):
            break
        proofs += 1
        batch.build_no_more()
        _report(batch, left[0], len(left))
        yield from _one(batch, left[0].candidate, partial(_proof, batch, left[0]))
        winner = _winner(batch, waiting)
    for one in _in_order(batch, waiting, measured=None):
        beaten = winner and one.candidate not in batch.late
        why = f"{winner[:8]} was faster" if beaten else "the time was over"
        yield one.candidate, (measure.passed_over(one.judged, why), one.speedup, one.seconds)


def _measured(batch: _Batch, waiting: Sequence[Candidate], more: Callable[[], bool]) -> Iterator[tuple[str, Outcome]]:
    """Measure those that promise more than the fastest one waiting for its proof; meanwhile the next is built."""
    promises = _promises(batch, waiting)
    for n, name in enumerate(promises):
        fastest = next((w.speedup for w in _in_order(batch, waiting)), -math.inf)
        if promises[name] <= fastest:
            return
        if not more():
            batch.late = {x for x, promised in promises.items() if promised > fastest}
            return
        for soon in list(promises)[n : n + 2]:
            if promises[soon] > fastest:
                batch.build(soon)
        yield from _one(batch, name, partial(_measure, batch, name))


def _promises(batch: _Batch, waiting: Sequence[Candidate]) -> dict[str, float]:
    """Candidate -> speedup at the first look, of those not measured yet, the highest first; infinite without a look."""
    looked = {w.candidate: w.speedup for w in _in_order(batch, waiting, measured=False)}
    progress = pending.progress(batch.ctx.store, batch.ctx.run.id)
    unseen = (c.id for c in waiting if c.build.whole and c.id not in progress and _open(batch, c.id))
    return dict.fromkeys(unseen, math.inf) | looked


def _in_order(batch: _Batch, waiting: Sequence[Candidate], measured: bool | None = True) -> list[Waiting]:
    """Candidates that wait for their proof, or with `measured` False that were only looked at; None: both. The fastest
    first."""
    by_name, place = pending.of(batch.ctx.store, batch.ctx.run.id), {c.id: c.position for c in waiting}
    fit = (w for n, w in by_name.items() if n in place and measured in (None, w.measured) and _open(batch, n))
    return sorted(fit, key=lambda w: (-w.speedup, place[w.candidate]))


def _open(batch: _Batch, name: str) -> bool:
    return batch.candidate(name).verdict is None


def _winner(batch: _Batch, waiting: Sequence[Candidate]) -> str:
    """The accepted candidate of the generation, by this process or one before it; empty: none."""
    candidates = batch.ctx.store.candidates(batch.ctx.run.id, waiting[0].generation) if waiting else []
    return max(((c.speedup or 0.0, c.id) for c in candidates if c.verdict == Verdict.ACCEPTED), default=(0.0, ""))[1]


def _proved(batch: _Batch, waiting: Sequence[Candidate]) -> int:
    """How many proofs of the generation failed in a process before this one."""
    candidates = batch.ctx.store.candidates(batch.ctx.run.id, waiting[0].generation) if waiting else []
    return sum(c.stage in measure.PROOF for c in candidates)


def _report(batch: _Batch, one: Waiting, left: int) -> None:
    among = f", the fastest of {left}" if left > 1 else ""
    doing = f"racing and confirming {one.candidate[:8]}, measured at {one.speedup:.3f}x{among}"
    batch.ctx.emit("phase", phase="judge", doing=doing)


def _one(batch: _Batch, name: str, do: Callable[[], Result]) -> Iterator[tuple[str, Outcome]]:
    for _, result in batch.gpu.together({name: do}):
        yield from _settled(batch, name, result)


def _settled(batch: _Batch, name: str, result: Result) -> Iterator[tuple[str, Outcome]]:
    """Yield a verdict that stands; record a candidate that waits, which may be vetoed until more of it is begun."""
    if isinstance(result, Waiting):
        pending.add(batch.ctx.store, batch.ctx.run.id, result)
    elif result is not None:
        yield name, result
    batch.begun.discard(name)


# one candidate --------------------------------------------------------------------------------------------------------


def _wanted(batch: _Batch, name: str) -> bool:
    """Whether it is not vetoed; from here on a veto comes too late."""
    batch.begun.add(name)
    return _open(batch, name)


def _look(batch: _Batch, name: str) -> Result:
    looked = measure.look(batch.ctx, batch.candidate(name)) if _wanted(batch, name) else None
    return _waiting(batch, name, measure.First(looked, looked.verdict != Verdict.CHECKED)) if looked else None


def _measure(batch: _Batch, name: str) -> Result:
    if not _wanted(batch, name):
        return None
    _, refused = batch.whole[name].result()  # before a GPU is held
    looked = pending.of(batch.ctx.store, batch.ctx.run.id).get(name)
    if looked and not refused and batch.ctx.builder.cores >= SPARE:
        measure.build_sanitized(batch.ctx, batch.candidate(name), looked.judged, batch.compiling)
    first = measure.measured(batch.ctx, batch.candidate(name))
    if not first.stands:
        measure.prepare(batch.ctx, batch.candidate(name), first.judged, batch.compiling)
    return _waiting(batch, name, first, looked.seconds if looked else 0.0)


def _waiting(batch: _Batch, name: str, first: measure.First, before: float = 0.0) -> Outcome | Waiting:
    """An outcome, or a candidate that waits. `before`: GPU seconds before this piece of work."""
    speedup, seconds = first.judged.speedup, before + batch.gpu.seconds
    if first.stands:
        return first.judged, speedup, seconds
    return Waiting(name, first.judged, speedup or 0.0, seconds)


def _prove(batch: _Batch, one: Waiting) -> Outcome:
    judged, speedup = measure.proved(batch.ctx, batch.candidate(one.candidate), one.judged, batch.compiling)
    return judged, speedup, batch.gpu.seconds


def _proof(batch: _Batch, one: Waiting) -> Outcome | None:
    """As `_prove`, plus the GPU seconds of its measurement, which was another piece of work."""
    if not _wanted(batch, one.candidate):
        return None
    judged, speedup, seconds = _prove(batch, one)
    return judged, speedup, one.seconds + seconds
