"""The model's part of a generation: one call, its reply read and recorded whole, its proposals.

A reply that is of no use costs its tokens and nothing else: what was wrong with it goes into the next prompt. A prompt
whose reply is in the record is not asked again: a killed run comes back to it.
"""

from collections.abc import Collection, Iterator
from contextlib import nullcontext

from pgo_agent.agent import beam, check, consulting, incumbent, prompting, replies
from pgo_agent.agent.context import Context
from pgo_agent.agent.models.base import OPTIMIZER, Exhausted, Model, Reply, remark
from pgo_agent.agent.moves import Proposal

_MOVE = "model rewrite"
_TAKEN = (beam.AUTHOR, check.AUTHOR)  # names that say how far a candidate is trusted: no answer may sign with one


def ask(ctx: Context) -> Iterator[tuple[Proposal, str, str]]:
    """Proposals with their author, the model that answered, and their parent; nothing without a model.

    Raises Suspended, and its client's faults. A model with nothing more to say is not asked again.
    """
    if ctx.model is None:
        return
    remarks = ctx.store.remarks(ctx.run.id)
    prompt, before = (prompting.render(prompting.gather(ctx, known)) for known in (remarks, remarks[:-1]))
    try:
        reply, found = _recorded(ctx, {prompt, before}) or _asked(ctx, ctx.model, prompt)
    except Exhausted as e:
        consulting.fall_back(ctx, OPTIMIZER, str(e))
        return
    ctx.emit(
        "model.replied",
        model=reply.model,
        sources=len(found.sources),
        remark=remark(reply, *found.errors),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        seconds=reply.seconds,
    )
    author = f"'{reply.model}'" if reply.model in _TAKEN else reply.model
    for source in found.sources:
        yield Proposal(source, "source", _MOVE, replies.rationale(reply.text)), author, incumbent.name(ctx)


def _recorded(ctx: Context, prompts: Collection[str]) -> tuple[Reply, replies.Parsed] | None:
    """The reply that a killed run was at: to the prompt as it is, or as it was before that reply was found useless."""
    known = next((c for c in ctx.store.calls(ctx.run.id, OPTIMIZER) if c.prompt in prompts), None)
    if known is None:
        return None
    reply = Reply(known.reply, known.prompt_tokens, known.completion_tokens, known.seconds, known.model)
    return reply, replies.parse(reply.text, incumbent.source(ctx))


def _asked(ctx: Context, model: Model, prompt: str) -> tuple[Reply, replies.Parsed]:
    ctx.emit("phase", phase="propose", doing=f"asking {model.name}")
    with nullcontext() if model.booked else ctx.unbooked():
        reply = model.complete(prompt)
    found = replies.parse(reply.text, incumbent.source(ctx))
    ctx.store.add_call(ctx.run.id, reply, prompting.prompt_hash(), prompt, remark(reply, *found.errors))
    return reply, found
