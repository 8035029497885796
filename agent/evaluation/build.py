"""Builds candidates: the public cases first, the held-out ones only if the candidate survives the first look.

Held-out cases are most of a build, and most candidates are slower or wrong at the first look. A person's file is built
whole at once, and so is TTGIR, but in two boxes: whoever wrote its launcher hears why the public cases failed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pgo_agent.agent import moves
from pgo_agent.agent.evaluation import baseline_builds, given_file, known_configs, screen
from pgo_agent.agent.evaluation.changed_kernels import changed_kernels
from pgo_agent.agent.run import incumbent, provenance, steering, ttgir_files
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.build.result import Built, joined
from pgo_agent.sandbox.gate.coverage import HELD_OUT
from pgo_agent.sandbox.gate.evidence import Evidence
from pgo_agent.sandbox.gate.reason import of_case
from pgo_agent.sandbox.gate.verdict import Judgement

_GIVEN = (provenance.GIVEN, steering.AUTHOR)  # proposers: a person's file brings its whole list of configurations
_SECTIONS = ("CASES", "HELD_OUT")  # of a target


def first(ctx: Context, candidate: Candidate, workers: int) -> Built:
    """Build a candidate for the first time, with the evidence of the build stages of the gate."""
    # an agent hears why a build failed: that of the public cases comes first, in a box that holds no others
    by_person = candidate.proposer in _GIVEN and not ctx.run.facts.open_to
    built = _build(ctx, candidate, _SECTIONS if by_person else ["CASES"], workers)
    if candidate.kind == "ttgir" and built.ok and not by_person:
        return _whole(ctx, candidate, built)
    return _examined(ctx, candidate, built, by_person or not built.ok)


def complete(ctx: Context, candidate: Candidate) -> tuple[Candidate, Judgement | None]:
    """Build the held-out cases of a candidate, too; return it and the verdict that follows, if any."""
    if not candidate.build.whole:
        ctx.store.set_built(ctx.run.id, candidate.id, _whole(ctx, candidate, candidate.build))
    candidate = ctx.store.candidate(ctx.run.id, candidate.id)
    return candidate, screen.verdict(ctx, candidate)


def again(ctx: Context, candidate: Candidate) -> None:
    """Build again what a candidate had in the content store."""
    built = first(ctx, candidate, ctx.builder.cores)
    if built.whole != candidate.build.whole:
        _whole(ctx, candidate, built)


def _whole(ctx: Context, candidate: Candidate, built: Built) -> Built:
    more = _build(ctx, candidate, ["HELD_OUT"], ctx.builder.cores, built.replaced.get("key", ""))
    more = replace(more, failures=tuple(replace(f, case=f.case or HELD_OUT) for f in more.failures))
    whole = _examined(ctx, candidate, joined(ctx.store.contents, built, more), True)
    return replace(whole, stages=tuple(_told(s, built.stages) for s in whole.stages))


def _told(found: Evidence, public: Sequence[Evidence]) -> Evidence:
    """Say of what the public cases did not show that it is of a held-out one: its words, such as the name of a kernel,
    may be chosen by a launcher that met it."""
    known = (
        found.verdict is None
        or found.why.is_held_out
        or any((s.stage, s.why) == (found.stage, found.why) for s in public)
    )
    return found if known else replace(found, why=of_case(HELD_OUT, ": ") + found.why)


def _examined(ctx: Context, candidate: Candidate, built: Built, whole: bool) -> Built:
    stages = screen.stages(ctx, built, _source(ctx, candidate))
    return replace(built, stages=tuple(stages), whole=whole)


def _build(ctx: Context, candidate: Candidate, sections: Iterable[str], workers: int, replaced: str = "") -> Built:
    untrusted, by_person = provenance.untrusted(ctx, candidate), candidate.proposer in _GIVEN
    text = candidate.source if candidate.kind == "ttgir" else ""
    source = _source(ctx, candidate)
    limit = baseline_builds.sampled(ctx) if by_person and not text else None if text else moves.CARRIED
    base = ctx.baseline()
    listed = dict(zip(_SECTIONS, (base.cases, base.held_out), strict=True))
    cases = {s: [c.split("/", 1)[1] for c in listed[s]] for s in sections}
    again = untrusted and not text  # what moves write calls kernels as its parent does
    builder = replace(ctx.builder, known=known_configs.of(ctx, candidate.parent))
    if builder.known and not by_person and not text:
        builder = replace(builder, varied=changed_kernels(incumbent.python(ctx, candidate.parent), source))
    built = builder.build(source, cases, limit, workers, untrusted, text, by_person, replaced, again)
    return given_file.narrowed(ctx, built, bool(builder.known)) if by_person else built


def _source(ctx: Context, candidate: Candidate) -> str:
    """The kernel file whose kernel() launches the candidate: of TTGIR, the one that launches what it replaces."""
    if candidate.kind != "ttgir":
        return candidate.source
    configs = [b.config for b in incumbent.best_known(ctx, candidate.parent).values()]
    return ttgir_files.launcher(incumbent.python(ctx, candidate.parent), candidate.source, configs)
