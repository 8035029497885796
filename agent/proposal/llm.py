"""The model's part of a generation: first repairs of what failed in the last one, then a fresh prompt.

A reply is recorded whole and read; parts that cannot be read go back once or twice. A useless reply costs its tokens
and nothing else: what was wrong goes into the next prompt. Proposals beyond the places of their generation are used
before the model is asked again. A prompt is recorded before it is asked. One whose reply is in the record is not asked
again, so a resumed run finds it.
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


def propose_repairs(ctx: Context) -> Iterator[NewCandidate]:
    """Ask the model to repair its candidates that failed in the last generation; yield what it answers, as its author.

    Raises Suspended, and the faults of its client. An exhausted model is not asked again.
    """
    messages = list(repair.of_judged(ctx, (MOVE, REPAIR))) if ctx.model else []
    for n, message in enumerate(messages):
        yield from _asked_for(ctx, message, [*messages[n + 1 :], repair.fresh(ctx)])


def propose_fresh(ctx: Context) -> Iterator[NewCandidate]:
    """Yield fresh proposals; nothing without a model. Author and errors are those of `propose_repairs`."""
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
    """The answer to a question. If the run does not wait for it, the other questions are asked, too."""
    try:
        return _answered(ctx, model, question)
    except Suspended:
        for other in others:
            with suppress(Suspended):
                _answered(ctx, model, other)
        raise


def _answered(ctx: Context, model: Model, question: Question) -> list[Answered]:
    """The reply to a question, parsed; empty if the generation has used up its messages."""
    prompt = _prompt(ctx, question)
    if prompt is None:
        return []
    reply, parsed = _recorded(ctx, question, prompt, _generation(ctx)) or _asked(ctx, model, question, prompt)
    _report(ctx, question, reply, parsed)
    return [(question, reply, parsed)]


def _proposed(
    ctx: Context, model: Model, question: Question, reply: Reply, parsed: replies.Parsed
) -> Iterator[NewCandidate]:
    """The candidates of a reply, and those of the replies to messages about its unreadable parts."""
    for c in parsed.candidates if question.about else ():
        ids = (candidate_id(c.source), question.about, question.repairs)
        prompts.add_repair(ctx.store, ctx.run.id, *ids)
    yield from _candidates(question, reply, parsed)
    messages = [m for unread in parsed.unread if (m := repair.of_unread(question, unread)) is not None]
    for message in messages:
        for answered in _answered(ctx, model, message):
            yield from _proposed(ctx, model, *answered)


def _candidates(question: Question, reply: Reply, parsed: replies.Parsed) -> Iterator[NewCandidate]:
    author = f"'{reply.model}'" if reply.model in _TAKEN else reply.model
    for c in parsed.candidates:
        move, rationale = REPAIR if question.about else MOVE, f"{question.rationale_prefix}{c.rationale}"
        yield NewCandidate.of(Proposal(c.source, c.kind, move, rationale), author, question.parent)


def _left_over(ctx: Context, question: Question) -> Iterator[NewCandidate]:
    """Candidates of the last fresh reply, if it started from the same parent: it may hold more than there were places.

    The caller skips those that the run has already.
    """
    last = prompts.last_fresh(ctx.store, ctx.run.id, _generation(ctx))
    if last is None or steering.started_from(ctx, last[0]) != question.parent:
        return
    recorded = _recorded(ctx, question, last[1], last[0])
    if recorded is not None:
        yield from _candidates(question, *recorded)


def _prompt(ctx: Context, question: Question) -> str | None:
    """The prompt as it was first asked; None if the generation has used up its messages."""
    run, generation = ctx.run.id, _generation(ctx)
    stored = prompts.prompt(ctx.store, run, generation, question.about)
    if stored is not None:
        return stored
    messages = [about for about in prompts.asked(ctx.store, run, generation) if about]
    if question.about and len(messages) >= repair.A_GENERATION:
        return None
    prompt = whole(repair.render(ctx, question))
    prompts.keep(ctx.store, run, generation, question.about, prompt)
    return prompt


def _generation(ctx: Context) -> int:
    """The number of the generation that is being proposed."""
    return max(ctx.store.generations(ctx.run.id), default=0) + 1


def _recorded(ctx: Context, question: Question, prompt: str, generation: int) -> tuple[Reply, replies.Parsed] | None:
    """The recorded reply to a prompt of a generation; of the present one if a run was killed after it came."""
    before = prompts.same_before(ctx.store, ctx.run.id, generation, question.about)
    calls = ctx.store.calls(ctx.run.id, OPTIMIZER, prompt)[before:]
    if not calls:
        return None
    call = calls[0]
    reply = Reply(call.reply, call.prompt_tokens, call.completion_tokens, call.seconds, call.model)
    return reply, _read(ctx, question, reply)


def _asked(ctx: Context, model: Model, question: Question, prompt: str) -> tuple[Reply, replies.Parsed]:
    doing = f"asking {model.name}" + (f" to repair {question.about[:8]}" if question.about else "")
    ctx.emit("phase", phase="propose", doing=doing)
    ctx.emit("model.prompted", model=model.name, tokens=budget.estimate(prompt), left_out=prompting.left_out(prompt))
    with nullcontext() if model.booked else ctx.unbooked():
        reply = model.complete(prompt)
    parsed = _read(ctx, question, reply)
    ctx.store.add_call(ctx.run.id, reply, templates.digest(question.template), prompt, remark(reply, *parsed.errors))
    return reply, parsed


def _read(ctx: Context, question: Question, reply: Reply) -> replies.Parsed:
    triton = partial(triton_parser.ask, ctx.builder.box, ctx.store.contents, ctx.device.arch)
    return replies.parse(reply.text, question.source, question.shown, triton)


def _report(ctx: Context, question: Question, reply: Reply, parsed: replies.Parsed) -> None:
    ctx.emit(
        "model.replied",
        model=reply.model,
        sources=len(parsed.sources),
        remark=remark(reply, *parsed.errors),
        mends=question.about,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        seconds=reply.seconds,
    )
