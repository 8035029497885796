"""The model's part of a generation: one call, its reply read and recorded whole, its proposals.

A reply that is of no use costs its tokens and nothing else: what was wrong with it goes into the next prompt.
"""

from collections.abc import Iterator

from pgo_agent.agent import incumbent, prompting, replies
from pgo_agent.agent.context import Context
from pgo_agent.agent.moves import Proposal

_MOVE = "model rewrite"


def ask(ctx: Context) -> Iterator[tuple[Proposal, str, str]]:
    """Proposals with their author, the model that answered, and their parent; nothing without a model.

    Raises its client's faults.
    """
    if ctx.model is None:
        return
    ctx.emit("phase", phase="propose", doing=f"asking {ctx.model.name}")
    prompt = prompting.render(prompting.gather(ctx, ctx.store.remarks(ctx.run.id)))
    reply = ctx.model.complete(prompt)
    found = replies.parse(reply.text, incumbent.source(ctx))
    remark = "; ".join(found.errors)
    ctx.store.add_call(ctx.run.id, reply, prompting.prompt_hash(), prompt, remark)
    ctx.emit(
        "model.replied",
        model=reply.model,
        sources=len(found.sources),
        remark=remark,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        seconds=reply.seconds,
    )
    for source in found.sources:
        yield Proposal(source, "source", _MOVE, replies.rationale(reply.text)), reply.model, incumbent.name(ctx)
