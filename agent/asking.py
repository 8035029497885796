"""The model's part of a generation: one call, its reply read and recorded whole, its proposals.

A reply that is of no use costs its tokens and nothing else: what was wrong with it goes into the next prompt. A prompt
whose reply is in the record is not asked again: a killed run comes back to it.
"""

from collections.abc import Collection, Iterator
from contextlib import nullcontext

from pgo_agent.agent import beam, check, incumbent, prompting, replies
from pgo_agent.agent.context import Context
from pgo_agent.agent.models.base import Exhausted, Model, Reply
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
    try:
        prompt, before = (prompting.render(prompting.gather(ctx, known)) for known in (remarks, remarks[:-1]))
        reply, found = _recorded(ctx, {prompt, before}) or _asked(ctx, ctx.model, prompt)
    except Exhausted as e:
        ctx.emit("model.exhausted", model=ctx.model.name, text=str(e))
        ctx.model = None
        return
    ctx.emit(
        "model.replied",
        model=reply.model,
        sources=len(found.sources),
        remark="; ".join(found.errors),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        seconds=reply.seconds,
    )
    author = f"'{reply.model}'" if reply.model in _TAKEN else reply.model
    for c in found.candidates:
        yield Proposal(c.source, c.kind, _MOVE, c.rationale), author, incumbent.name(ctx)


def _recorded(ctx: Context, prompts: Collection[str]) -> tuple[Reply, replies.Parsed] | None:
    """The reply that a killed run was at: to the prompt as it is, or as it was before that reply was found useless."""
    known = next((c for c in ctx.store.calls(ctx.run.id) if c.prompt in prompts), None)
    if known is None:
        return None
    reply = Reply(known.reply, known.prompt_tokens, known.completion_tokens, known.seconds, known.model)
    return reply, replies.parse(reply.text, incumbent.source(ctx))


def _asked(ctx: Context, model: Model, prompt: str) -> tuple[Reply, replies.Parsed]:
    ctx.emit("phase", phase="propose", doing=f"asking {model.name}")
    ctx.emit("model.prompted", model=model.name, tokens=prompting.tokens(prompt), left_out=prompting.left_out(prompt))
    with nullcontext() if model.booked else ctx.unbooked():
        reply = model.complete(prompt)
    found = replies.parse(reply.text, incumbent.source(ctx))
    ctx.store.add_call(ctx.run.id, reply, prompting.prompt_hash(), prompt, "; ".join(found.errors))
    return reply, found
