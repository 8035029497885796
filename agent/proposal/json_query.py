"""Asks a role's model for JSON: records the whole reply, reads it, and asks once more if it is of no use.

A prompt whose reply is in the record is not asked again, so a resumed run finds it. After `Exhausted` the embedded form
of the role takes over for the rest of this process, and the run says so. The caller decides what a prompt holds and
what a reply means (`agent/llm/roles/`).
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
    read: Callable[
        [Mapping[str, Any]], str
    ]  # takes what it can from an object; returns what is wrong, or an empty text


@dataclass(frozen=True)
class _Answer:
    author: str  # empty where nobody answered
    text: str
    problem: str  # empty where it has none


def consult(ctx: Context, of: Question, template: str, values: Mapping[str, Any]) -> str:
    """Ask a question, and once more if the reply has a problem. Return the name of the model that answered; empty:
    nobody.

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
    """Let the embedded form of a role take over: `about` one thing, or for good if empty. Emits and records it."""
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
    recorded = next(iter(ctx.store.calls(ctx.run.id, of.role, prompt)), None)
    if recorded is not None:  # a killed run had it
        return _Answer(recorded.model, recorded.reply, _problem(recorded.reply, of))
    reply = _asked(ctx, of, prompt)
    if reply is None:
        return _Answer("", "", "")
    problem = _problem(reply.text, of)
    comment = remark(reply, problem) if problem else ""
    ctx.store.add_call(ctx.run.id, reply, templates.digest(template), prompt, comment, of.role)
    tokens = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    ctx.emit("role.replied", role=of.role, model=reply.model, remark=comment, seconds=reply.seconds, **tokens)
    return _Answer(reply.model, reply.text, comment)


def _asked(ctx: Context, of: Question, prompt: str) -> Reply | None:
    """The model's reply; None, after the fall back, if it is exhausted."""
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
    """What is wrong with a reply; the parts without a fault were read."""
    try:
        return of.read(json_extract.find_object(text))
    except json_extract.NoObject as e:
        return str(e)
