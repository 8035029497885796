"""The timeline pass as a whole: builds a kernel with records, has a judge launch that, and sums up what it recorded.

Needs a GPU for the middle part only. Every build holds few scopes, so the times of two scopes are of two builds unless
they are in one set; each build says by how much it disturbs, and one that disturbs much is taken as two in its place.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge import questions
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.questions import Problem, Recorded, Recording
from pgo_agent.sandbox.judge.references import plan_ref
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.timeline import instrumented_build, summary
from pgo_agent.sandbox.profile.timeline.decode import Decoded, decode, headers, recorded
from pgo_agent.sandbox.profile.timeline.instrumented_build import InstrumentationPlan, InstrumentedBuild, KernelRef
from pgo_agent.sandbox.profile.timeline.scope_sets import Unsupported, Why
from pgo_agent.sandbox.profile.timeline.sm_waves import waves
from pgo_agent.sandbox.profile.timeline.types import Pass, Timeline, Waves

MOST = 1 << 30  # bytes of what one launch recorded
DISTURBED = 1.08  # times as long as the plain build: KPerfIR reports 8.2 % (arXiv 2505.21661); above, a set is divided
DIVISIONS = 2  # at most: a set of eight scopes may end as four of two
ROUNDS = DIVISIONS + 1  # of builds in place of others: each division, and one with more room
FEWEST = 4  # blocks whose records are worth having; those of a long block are many


@dataclass(frozen=True)
class Answers:
    """What a judge answered for the instrumented builds of a kernel, and what could not be recorded."""

    answers: tuple[tuple[InstrumentedBuild, Recorded], ...]
    refused: tuple[Unsupported, ...]


def take(judge: Judge, builder: Builder, place: KernelRef, per_pass: int, repeats: int, blocks: int) -> Timeline:
    """Time every scope of a kernel in `repeats` launches of each build, by the records of up to `blocks` blocks each.

    Of a pass whose `timed.lost` counts overwritten entries no build has room for all of them. One GPU is held for all
    of it, and nothing is decoded before it is given back: a judge elsewhere has this begun again with each answer.

    Raises Killed and EnvironmentFault as the judge and the compiler's box do, and `pool.Ended` when a launch hangs or
    crashes.
    """
    with judge.turn():
        heard = _answers(judge, builder, place, per_pass, repeats, blocks)
    return _timeline(builder.contents, heard.answers, heard.refused)


def _answers(judge: Judge, builder: Builder, place: KernelRef, per_pass: int, repeats: int, blocks: int) -> Answers:
    """Return what the judge answers of each build, those included that are made in place of others. Raises as
    `take`."""
    builds, refused = instrumented_build.build(builder, place, per_pass)
    answers: list[tuple[InstrumentedBuild, Recorded]] = []
    for last in (False,) * ROUNDS + (True,):
        asked = [_question(builder.contents, place, build, repeats, blocks) for build in builds]
        for question in asked:
            judge.queue(question)
        instead: list[InstrumentationPlan] = []
        for build, question in zip(builds, asked, strict=True):
            answer = judge.ask(question)
            if isinstance(answer, Problem):
                refused.append(Unsupported(Why.LAUNCH, answer.problem))
            elif not last and (better := _better(builder.contents, build, answer, per_pass >> DIVISIONS)):
                instead += better
            else:
                answers.append((build, answer))
        if not instead:
            break
        builds, more = instrumented_build.build(builder, place, plans=instead)
        refused += more
    return Answers(tuple(answers), tuple(refused))


def _better(
    contents: ContentStore, build: InstrumentedBuild, answer: Recorded, fewest: int
) -> list[InstrumentationPlan]:
    """Return what to build in its place: sets of half as many scopes, `fewest` at least, where it disturbs, and in any
    case with room for all that it recorded. [] where it is fine, or nothing is better. The calibrating one is not
    divided.
    """
    room = _room(contents, build, answer)
    divides = _overhead(answer) > DISTURBED and not build.plan.scopes.calibrates and build.plan.scopes.inner > fewest
    if divides and (parts := instrumented_build.halves(build.plan)):
        return [replace(part, entries=room) for part in parts]
    return [replace(build.plan, entries=room)] if room > build.plan.entries else []


def _room(contents: ContentStore, build: InstrumentedBuild, answer: Recorded) -> int:
    """Entries that each warp needs, as a power of two: no fewer than were planned, and no more where those had no room.

    By the last launch; the others recorded as much.
    """
    planned = build.plan.entries
    if build.block_bytes < build.warps * planned * instrumented_build.ENTRY:
        return planned
    most = recorded(fetched(contents, answer.repeats[-1].records), build.block_bytes, build.warps)
    return max(planned, min(instrumented_build.MOST, 1 << max(0, most - 1).bit_length()))


def _timeline(
    contents: ContentStore,
    answers: Iterable[tuple[InstrumentedBuild, Recorded]],
    refused: Iterable[Unsupported],
) -> Timeline:
    collected = _Collected([], {}, None, [])
    for build, answer in sorted(answers, key=lambda h: not h[0].plan.scopes.calibrates):
        collected.add(contents, build, answer)
    return Timeline(
        tuple(collected.passes), collected.costs, collected.waves, tuple(refused), tuple(collected.plain), {}
    )


@dataclass
class _Collected:
    """What the builds have recorded so far."""

    passes: list[Pass]
    costs: dict[str, float]
    waves: Waves | None
    plain: list[float]

    def add(self, contents: ContentStore, build: InstrumentedBuild, answer: Recorded) -> None:
        decoded = [_decoded(contents, answer, r) for r in answer.repeats]
        if build.plan.scopes.calibrates:
            self.costs = summary.calibration(decoded, build.numbers)
            self.waves = waves(headers(fetched(contents, answer.repeats[-1].headers)))
        timed = summary.summarize(decoded, build.numbers, self.costs)
        artefacts = tuple(Artefact(r.records, RECORDS) for r in answer.repeats)
        layout = (answer.block_bytes, answer.warps, {str(n): s.name for n, s in build.numbers.items()})
        self.passes.append(
            Pass(timed, _overhead(answer), answer.same_outputs, build.static, artefacts, *layout, build.kernel)
        )
        self.plain += answer.plain_ms


def _overhead(answer: Recorded) -> float:
    return summary.overhead(answer.plain_ms, answer.instrumented_ms)


def _question(
    contents: ContentStore, place: KernelRef, build: InstrumentedBuild, repeats: int, blocks: int
) -> questions.Timeline:
    most = min(blocks, max(FEWEST, blocks * instrumented_build.USUAL // build.plan.entries))
    ours, plain = (plan_ref(contents, bundle, place.choice) for bundle in (build.bundle, place.bundle))
    return questions.Timeline(place.case, build.kernel, repeats, most, str(contents.root.resolve()), ours, plain)


def _decoded(contents: ContentStore, answer: Recorded, repeat: Recording) -> Decoded:
    return decode(fetched(contents, repeat.records), answer.block_bytes, answer.warps)


def fetched(contents: ContentStore, artefact: str) -> bytes:
    """Return a record that the judge stored. Raises EnvironmentFault when it is missing, damaged or too large."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(contents.get(artefact, RECORDS), MOST)
    if not decompressor.eof:
        raise EnvironmentFault(f"artefact {artefact[:12]} is not whole, or larger than {MOST} bytes", "profile again")
    return data
