"""Asks a model to repair what it wrote: a short message with the reason of the failure, once or twice.

Unreadable parts go back at once; candidates that fail to build or are judged wrong go back with the next generation.
Slow ones do not. Reasons are in the form that models may see, and source goes through `kernel_part.py`, so a message
holds nothing that a prompt must not. It builds the messages; `llm.py` asks.
"""

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.agent import moves
from pgo_agent.agent import text as printable
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.llm import templates
from pgo_agent.agent.llm.replies import Unread
from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.agent.proposal import prompt, ttgir_view
from pgo_agent.agent.run import incumbent, steering
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import prompts
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.gate.reason import NONE, quoted
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.ttgir.edits.excerpts import excerpt
from pgo_agent.sandbox.ttgir.edits.reference import reference

TEMPLATE = "repair"
MOST = 2  # messages that lead to one candidate
A_GENERATION = 4  # messages while one generation is proposed
FAILED = frozenset(
    {Verdict.BUILD_ERROR, Verdict.WRONG, Verdict.RACE, Verdict.DEADLOCK, Verdict.REJECTED, Verdict.CRASHED}
)
WRITTEN = 12_000  # characters of what was written that a message quotes
EXCERPTS = 24  # lines of the view whose TTGIR a message shows
LINES, TRACE = 4, 4  # quoted of a text, and of how a hang comes about
_LABEL = re.compile(r"\b[A-L]\d{1,4}\b")
_NAMED = re.compile(r"\blines? (\d{1,6})(?:(?:,| and| to|-) ?(\d{1,6}))?")


@dataclass(frozen=True)
class Question:
    """A prompt, and what its answer changes."""

    about: str  # what is to be repaired; empty for a fresh prompt
    parent: str  # what the answer starts from: `shipped` or a candidate
    source: str  # the kernel file whose kernel part is shown
    shown: Shown | None  # the kernel whose TTGIR is shown
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)  # of the template; a fresh prompt has none
    repairs: int = 0  # number of messages so far, this one included

    @property
    def rationale_prefix(self) -> str:
        """The start of an answer's rationale."""
        return f"repairs {self.about[:8]}: " if self.about else ""


def fresh(ctx: Context) -> Question:
    """Return the question that every generation asks."""
    which = steering.start(ctx)
    return Question("", which, incumbent.python(ctx, which), ttgir_view.shown(ctx, which), prompt.TEMPLATE)


def render(ctx: Context, question: Question) -> str:
    if not question.about:
        return prompt.render(prompt.gather(ctx, ctx.store.remarks(ctx.run.id)))
    return templates.render(question.template, **question.values)


# what could not be read -----------------------------------------------------------------------------------------------


def of_unread(before: Question, unread: Unread) -> Question | None:
    """Return the message about an unreadable part of the reply to `before`; None if there is nothing to repair."""
    if not unread.repairable or before.repairs >= MOST:
        return None
    about = hashlib.sha256(f"{before.about}\n{unread.error}\n{unread.text}".encode(errors="replace")).hexdigest()[:16]
    values = _values(unread.form, [unread.error], unread.text[:WRITTEN], before.source, before.shown)
    return Question(about, before.parent, before.source, before.shown, TEMPLATE, values, before.repairs + 1)


# what was judged ------------------------------------------------------------------------------------------------------


def of_judged(ctx: Context, move: Sequence[str]) -> Iterator[Question]:
    """Yield the messages about failed candidates of the last generation. `move`: the moves of a model's candidates."""
    last = max(ctx.store.generations(ctx.run.id), default=0)
    for c in ctx.store.candidates(ctx.run.id, last):
        repairs = prompts.repairs(ctx.store, ctx.run.id, c.id)
        if c.move in move and _failed(c) and repairs < MOST:
            yield _of_failed(ctx, c, repairs + 1)


def _failed(c: Candidate) -> bool:
    """Whether it is at fault. A kernel that hangs is; one that is too slow for Triton's interpreter need not be."""
    return c.verdict in FAILED or (c.verdict == Verdict.TIMEOUT and c.stage != "interpreter")


def _of_failed(ctx: Context, c: Candidate, repairs: int) -> Question:
    failure = failures(ctx, c)
    if c.kind == "ttgir":
        source, shown = incumbent.python(ctx, c.parent), ttgir_view.shown(ctx, c.parent)
        values = _values("ttgir", failure, _difference(shown, c.source), source, shown)
    else:
        source, shown = c.source, None
        values = _values(c.kind, failure, "", source, None)
    return Question(c.id, c.parent, source, shown, TEMPLATE, values | {"idea": printable.line(c.rationale)}, repairs)


def failures(ctx: Context, c: Candidate) -> list[str]:
    """Return what is wrong with a candidate: verdict and reason, and the lines that these name."""
    hidden = [name.split("/", 1)[1] for name in ctx.baseline().held_out]
    details = _stage_details(c)
    why = c.why or NONE
    reasons = [f"{c.verdict} in stage {c.stage}: {why.for_model(hidden)}"]
    reasons += [f"at your line: {text}" for text in [_failing_line(c)] if text]
    trace = () if why.is_held_out else details.get("trace", ())[:TRACE]
    reasons += [quoted(str(step)).for_model(hidden) for step in trace]
    return [printable.line(line) for line in (*reasons, *_quoted(_text(ctx, c, details), reasons)) if line.strip(" :")]


def _failing_line(c: Candidate) -> str:
    """The line of a candidate's file at which a public case fails to build, if a model may see that line."""
    failures = c.built.failures if c.built and c.stage == "build" and c.kind != "ttgir" else ()
    public = [f for f in failures if not f.case.startswith("HELD_OUT")]
    line = next((f.line for f in public if f.line and (c.reason or "")[:30] in f.message), 0)
    lines = c.source.split("\n")
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return text if text and text in {other.strip() for other in kernel_part(c.source).split("\n")} else ""


def _stage_details(c: Candidate) -> Mapping[str, Any]:
    """The findings of the build stage that gave the verdict; empty for other stages."""
    stages = c.built.stages if c.built else ()
    return next((s.found for s in stages if s.stage == c.stage), {})


def _text(ctx: Context, c: Candidate, details: Mapping[str, Any]) -> str:
    """The TTGIR whose lines the reason names; empty if there is none."""
    build = ctx.store.contents.build(str(details["kernel"])) if "kernel" in details else None
    if build and "kernel" in build:
        return ctx.store.contents.get(build["kernel"]["files"]["ttgir"], "ttgir").decode()
    return c.source if c.kind == "ttgir" else ""


def _quoted(text: str, reasons: Sequence[str]) -> Iterator[str]:
    """The lines of a text that the reasons name, at most LINES."""
    named = [int(n) for line in reasons for match in _NAMED.findall(line) for n in match if n]
    lines = text.split("\n") if text else []
    for n in list(dict.fromkeys(n for n in named if 0 < n <= len(lines)))[:LINES]:
        yield f"line {n} is: {lines[n - 1].strip()}"


def _difference(shown: Shown | None, text: str) -> str:
    if shown is None:
        return text[:WRITTEN]
    old, new = (t.splitlines() for t in (shown.candidate(shown.text), text))
    return "\n".join(difflib.unified_diff(old, new, "shown", "yours", lineterm="", n=2))[:WRITTEN]


# the template's values ------------------------------------------------------------------------------------------------


def _values(form: str, failure: Sequence[str], wrote: str, source: str, shown: Shown | None) -> JsonObject:
    if form == "ttgir":
        caption, text = "The kernel that scripts edit, as readable TTGIR, and excerpts of its text", _view(shown, wrote)
    else:
        caption, text = "The kernel", "" if form == "launch" and wrote else kernel_part(source)
    return {
        "form": form,
        "idea": "",
        "failure": [printable.line(line) for line in failure],
        "wrote": wrote.strip("\n"),
        "wrote_mark": templates.fenced("yours", wrote),
        "told": caption,
        "shown": text.strip("\n"),
        "shown_mark": templates.fenced("kernel", text),
        "most_configs": moves.CARRIED,
        "reference": reference(),
    }


def _view(shown: Shown | None, wrote: str) -> str:
    """The readable view, and the TTGIR of the lines that a script names."""
    if shown is None:
        return ""
    labels = {line.label for line in shown.view.lines}
    named = list(dict.fromkeys(label for label in _LABEL.findall(wrote) if label in labels))[:EXCERPTS]
    return f"{shown.view.text()}\n{excerpt(shown.module, shown.view, named) if named else ''}"
