"""Asks a role's model for JSON: its reply is read, recorded whole, and, where it is of no use, asked for once more.

A prompt whose reply is in the record is not asked again: a killed run comes back to it. A model that has nothing more
to say, by `Exhausted`, leaves its role to the embedded form for as long as this process runs, and that is said. What a
prompt holds and what a reply means is its caller's (`llm_roles.py`).
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.llm import json_extract, templates
from pgo_agent.agent.llm.models.types import Exhausted, Form, Reply, remark, whole
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import model_calls
from pgo_agent.agent.run.record.model_calls import Fallback

REPAIR = "json_repair"  # template
QUOTED = 4000  # characters of a bad reply that its model is shown again


@dataclass(frozen=True)
class Question:
    role: str
    schema: Mapping[str, Any]  # of the reply
    read: Callable[[Mapping[str, Any]], str]  # takes what it can from an object; gives what is wrong, or nothing


@dataclass(frozen=True)
class _Answer:
    author: str  # empty where nobody answered
    text: str
    problem: str  # empty where it has none


def consult(ctx: Context, of: Question, template: str, values: Mapping[str, Any]) -> str:
    """Who answered, by its own word, whatever the question's reader made of it; empty where nobody did.

    Raises Suspended and Faults.
    """
    prompt = templates.render(template, **values)
    first = _answer(ctx, of, template, prompt)
    if not first.problem:
        return first.author
    cut = first.text if len(first.text) <= QUOTED else f"{first.text[:QUOTED]}..."
    quoted = {"reply": cut, "mark": templates.fenced("reply", cut), "problem": first.problem}
    return _answer(ctx, of, REPAIR, templates.render(REPAIR, prompt=prompt, **quoted)).author or first.author


def fall_back(ctx: Context, role: str, why: str, about: str = "") -> None:
    """The embedded form of a role takes over, `about` one thing or for good: told and recorded."""
    model_calls.add_fallback(ctx.store, ctx.run.id, Fallback(role, about, why))
    model = ctx.model_of(role)
    name = model.name if model else ""
    if about:
        ctx.emit("role.fallback", role=role, model=name, about=about, text=why)
    else:
        ctx.dismiss(role)
        ctx.emit("model.exhausted", role=role, model=name, text=why)


def _answer(ctx: Context, of: Question, template: str, prompt: str) -> _Answer:
    prompt = whole(prompt)
    known = next((c for c in ctx.store.calls(ctx.run.id, of.role) if c.prompt == prompt), None)
    if known is not None:  # the reply that a killed run was at
        return _Answer(known.model, known.reply, _problem(known.reply, of))
    reply = _asked(ctx, of, prompt)
    if reply is None:
        return _Answer("", "", "")
    problem = _problem(reply.text, of)
    said = remark(reply, problem) if problem else ""
    ctx.store.add_call(ctx.run.id, reply, templates.digest(template), prompt, said, of.role)
    tokens = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    ctx.emit("role.replied", role=of.role, model=reply.model, remark=said, seconds=reply.seconds, **tokens)
    return _Answer(reply.model, reply.text, said)


def _asked(ctx: Context, of: Question, prompt: str) -> Reply | None:
    """The model's reply; None, and said so, where it has no more to say."""
    model = ctx.model_of(of.role)
    if model is None:
        return None
    ctx.emit("phase", phase=of.role, doing=f"asking {model.name} as {of.role}")
    try:
        with nullcontext() if model.booked else ctx.unbooked():
            return model.complete(prompt, of.role, Form(of.schema))
    except Exhausted as e:
        fall_back(ctx, of.role, str(e))
        return None


def _problem(text: str, of: Question) -> str:
    """What is wrong with a reply; what is right with it was read."""
    try:
        return of.read(json_extract.found(text))
    except json_extract.NoObject as e:
        return str(e)
