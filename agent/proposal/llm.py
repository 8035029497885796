"""The model's part of a generation: first what failed of the last one, to be mended, then a fresh prompt.

A reply is read and recorded whole, and what of it cannot be read goes back once or twice. One that is of no use costs
its tokens and nothing else: what was wrong with it goes into the next prompt. What it proposes beyond the places of its
generation comes before anybody is asked again. A prompt is recorded before it is asked, and one whose reply is in the
record is not asked again: a killed run comes back to it.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial

from pgo_agent.agent.llm import replies, templates
from pgo_agent.agent.llm.models import budget
from pgo_agent.agent.llm.models.types import OPTIMIZER, Exhausted, Model, Reply, Suspended, remark, whole
from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.proposal import json_query, repair
from pgo_agent.agent.proposal import prompt as prompting
from pgo_agent.agent.proposal.repair import Question
from pgo_agent.agent.run import provenance, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import prompts
from pgo_agent.agent.run.record.candidate import NewCandidate, candidate_id
from pgo_agent.sandbox.ttgir import triton_parser

MOVE, REPAIR = "model rewrite", "model repair"
# names that say how far a candidate is trusted: no answer may sign with one
_TAKEN = (provenance.EMBEDDED, provenance.GIVEN, steering.AUTHOR)
Answered = tuple[Question, Reply, replies.Parsed]


def mend(ctx: Context) -> Iterator[NewCandidate]:
    """What becomes of the model's candidates that failed in the last generation; its author is the model that answers.

    Raises Suspended, and its client's faults. A model with nothing more to say is not asked again.
    """
    messages = list(repair.of_judged(ctx, (MOVE, REPAIR))) if ctx.model else []
    for n, message in enumerate(messages):
        yield from _asked_for(ctx, message, [*messages[n + 1 :], repair.fresh(ctx)])


def ask(ctx: Context) -> Iterator[NewCandidate]:
    """Fresh proposals. Nothing without a model; author and what it raises as `mend`."""
    if ctx.model is not None:
        question = repair.fresh(ctx)
        yield from _left_over(ctx, question)
        yield from _asked_for(ctx, question, ())


def _asked_for(ctx: Context, question: Question, others: Sequence[Question]) -> Iterator[NewCandidate]:
    model = ctx.model
    if model is None:
        return
    try:
        for answered in _or_all_asked(ctx, model, question, others):
            yield from _proposed(ctx, model, *answered)
    except Exhausted as e:
        json_query.fall_back(ctx, OPTIMIZER, str(e))


def _or_all_asked(ctx: Context, model: Model, question: Question, others: Sequence[Question]) -> list[Answered]:
    """The answer to a question. Where nobody waits for it, the others of the generation are asked, too."""
    try:
        return _answered(ctx, model, question)
    except Suspended:
        for other in others:
            with suppress(Suspended):
                _answered(ctx, model, other)
        raise


def _answered(ctx: Context, model: Model, question: Question) -> list[Answered]:
    """The reply to a question, and what it says; nothing for a message more than a generation may take."""
    prompt = _prompt(ctx, question)
    if prompt is None:
        return []
    reply, found = _recorded(ctx, question, prompt, _generation(ctx)) or _asked(ctx, model, question, prompt)
    _tell(ctx, question, reply, found)
    return [(question, reply, found)]


def _proposed(
    ctx: Context, model: Model, question: Question, reply: Reply, found: replies.Parsed
) -> Iterator[NewCandidate]:
    """What a reply proposes, and what the messages bring about that of it which cannot be read."""
    for c in found.candidates if question.about else ():
        mends = (candidate_id(c.source), question.about, question.repairs)
        prompts.add_mended(ctx.store, ctx.run.id, *mends)
    yield from _candidates(question, reply, found)
    messages = [m for unread in found.unread if (m := repair.of_unread(question, unread)) is not None]
    for message in messages:
        for answered in _answered(ctx, model, message):
            yield from _proposed(ctx, model, *answered)


def _candidates(question: Question, reply: Reply, found: replies.Parsed) -> Iterator[NewCandidate]:
    author = f"'{reply.model}'" if reply.model in _TAKEN else reply.model
    for c in found.candidates:
        move, rationale = REPAIR if question.about else MOVE, f"{question.mends}{c.rationale}"
        yield NewCandidate.of(Proposal(c.source, c.kind, move, rationale), author, question.parent)


def _left_over(ctx: Context, question: Question) -> Iterator[NewCandidate]:
    """What the last fresh reply proposed beyond its places, which is paid for, while what it starts from stands.

    Whoever shares the places passes over candidates that the run has already.
    """
    last = prompts.last_fresh(ctx.store, ctx.run.id, _generation(ctx))
    if last is None or steering.started_from(ctx, last[0]) != question.parent:
        return
    known = _recorded(ctx, question, last[1], last[0])
    if known is not None:
        yield from _candidates(question, *known)


def _prompt(ctx: Context, question: Question) -> str | None:
    """The prompt as it was when it was first asked; None for a message more than a generation may take."""
    run, generation = ctx.run.id, _generation(ctx)
    known = prompts.prompt(ctx.store, run, generation, question.about)
    if known is not None:
        return known
    messages = [about for about in prompts.asked(ctx.store, run, generation) if about]
    if question.about and len(messages) >= repair.A_GENERATION:
        return None
    prompt = whole(repair.render(ctx, question))
    prompts.keep(ctx.store, run, generation, question.about, prompt)
    return prompt


def _generation(ctx: Context) -> int:
    """The one that is being proposed."""
    return max(ctx.store.generations(ctx.run.id), default=0) + 1


def _recorded(ctx: Context, question: Question, prompt: str, generation: int) -> tuple[Reply, replies.Parsed] | None:
    """The reply that a generation had: of this one, where a killed run was at it."""
    before = prompts.same_before(ctx.store, ctx.run.id, generation, question.about)
    told = [c for c in ctx.store.calls(ctx.run.id, OPTIMIZER) if c.prompt == prompt][before:]
    if not told:
        return None
    known = told[0]
    reply = Reply(known.reply, known.prompt_tokens, known.completion_tokens, known.seconds, known.model)
    return reply, _read(ctx, question, reply)


def _asked(ctx: Context, model: Model, question: Question, prompt: str) -> tuple[Reply, replies.Parsed]:
    doing = f"asking {model.name}" + (f" to mend {question.about[:8]}" if question.about else "")
    ctx.emit("phase", phase="propose", doing=doing)
    ctx.emit("model.prompted", model=model.name, tokens=budget.estimate(prompt), left_out=prompting.left_out(prompt))
    with nullcontext() if model.booked else ctx.unbooked():
        reply = model.complete(prompt)
    found = _read(ctx, question, reply)
    ctx.store.add_call(ctx.run.id, reply, templates.digest(question.template), prompt, remark(reply, *found.errors))
    return reply, found


def _read(ctx: Context, question: Question, reply: Reply) -> replies.Parsed:
    triton = partial(triton_parser.ask, ctx.builder.box, ctx.store.contents, ctx.device.arch)
    return replies.parse(reply.text, question.source, question.shown, triton)


def _tell(ctx: Context, question: Question, reply: Reply, found: replies.Parsed) -> None:
    ctx.emit(
        "model.replied",
        model=reply.model,
        sources=len(found.sources),
        remark=remark(reply, *found.errors),
        mends=question.about,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        seconds=reply.seconds,
    )
