"""Facts in, prompt out: the sections, their order, and which are dropped first when the budget is too small.

A section is a template in `prompts/`, rendered alone and joined as text: its content is never read as a template and
cannot change another section. The task, the kernel, the rules and the forms of an answer always stay. The others are
dropped in this order: moves that do not apply, all cards but the first, Gluon with its form, TTGIR of
the hot loop, the first card, lessons, the static profile, moves that apply, the pseudo-code with the form of edits,
times, what was tried, the profile, guidance of the person who runs it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pgo_agent.agent import text as printable
from pgo_agent.agent.llm import templates
from pgo_agent.agent.proposal.prompt.inputs import Facts
from pgo_agent.agent.proposal.prompt.sections import Prompt, Section, fitted
from pgo_agent.sandbox.judge.timing.decision import REGRESSION
from pgo_agent.sandbox.ttgir.edits import reference

TEMPLATE = "optimizer"
LONGEST = 600  # characters of a line
_LINES = (
    *("cases", "statics", "tried", "allowed_ops", "profile", "quoted", "moves", "skipped", "lessons", "gluon"),
    *("launch", "guidance", "in_place"),
)
LAST = (  # in reverse order of dropping
    *("guidance", "profile", "tried", "times", "code", "moves", "static", "lessons", "card", "excerpt", "gluon"),
    *("cards", "skipped"),
)


def render(facts: Facts) -> str:
    """Return the text of the prompt."""
    return prompt(facts).text


def prompt(facts: Facts) -> Prompt:
    """Return the prompt within the budget of the facts. Raises TooLong if kernel, rules and forms alone exceed it."""
    return fitted(sections(facts), facts.budget)


def sections(facts: Facts) -> list[Section]:
    """Return all sections, in order. Text that is not fenced by marks becomes single lines, so it cannot fake a
    mark."""
    code = facts.code
    if code is not None:
        code = replace(code, kernel=_plain(code.kernel), case=_plain(code.case), choice=_plain(code.choice))
    return list(_sections(replace(facts, code=code, **{name: _plain(getattr(facts, name)) for name in _LINES})))


def prompt_hash() -> str:
    """Return the SHA-256 of all templates of the role: it says which prompt a candidate came from."""
    return templates.digest(TEMPLATE)


def _sections(facts: Facts) -> Iterator[Section]:
    yield _section("task", TEMPLATE, device=facts.device, triton=facts.triton)
    yield from _measured(facts)
    mark = templates.fenced("kernel", facts.kernel)
    yield _section("kernel", "sections/kernel", kernel=facts.kernel, mark=mark)
    yield from _code(facts)
    yield from _listed(facts)
    yield from _cards(facts)
    if facts.guidance:
        yield _section("guidance", "sections/guidance", lines=facts.guidance)
    allowed: dict[str, Any] = {"ops": facts.allowed_ops, "in_place": facts.in_place, "slower": 1.0 - REGRESSION}
    yield _section("rules", "sections/rules", most_configs=facts.most_configs, **allowed)
    yield from _forms(facts)


def _measured(facts: Facts) -> Iterator[Section]:
    if facts.cases:
        yield _section("times", "sections/times", cases=facts.cases)
    if facts.statics:
        yield _section("static", "sections/static", statics=facts.statics)
    if facts.profile:
        yield _section("profile", "sections/profile", lines=facts.profile, quoted=facts.quoted)


def _code(facts: Facts) -> Iterator[Section]:
    code = facts.code
    if code is None:
        return
    yield _section("code", "sections/code", code=code, mark=templates.fenced("pseudo-code", code.text))
    text = code.whole or code.excerpt
    if text and facts.ttgir:
        mark = templates.fenced("TTGIR", text)
        yield _section("excerpt", "sections/excerpt", needs="code", text=text, whole=bool(code.whole), mark=mark)


def _listed(facts: Facts) -> Iterator[Section]:
    for name in ("moves", "skipped", "tried", "lessons"):
        if lines := getattr(facts, name):
            yield _section(name, f"sections/{name}", lines=lines)


def _cards(facts: Facts) -> Iterator[Section]:
    for i, name in enumerate(facts.cards):
        yield _section(f"card {name}", f"cards/{name}", "cards" if i else "card", device=facts.device)
    if facts.gluon:
        yield _section("gluon", "cards/gluon", lines=facts.gluon, triton=facts.triton)


def _forms(facts: Facts) -> Iterator[Section]:
    """How to answer. It stands last, where a model forgets least."""
    yield _section("answer", "sections/answer")
    yield _section("form source", "formats/source")
    if facts.launch:
        yield _section("form launch", "formats/launch", example=facts.launch, most_configs=facts.most_configs)
    if facts.code is not None and facts.ttgir:
        kernel = facts.code.kernel
        edits = {"format": reference.FORMAT, "example": reference.EXAMPLE}
        yield _section("form edits", "formats/ttgir_edits", needs="code", kernel=kernel, **edits)
        if facts.code.whole:
            yield _section("form ttgir", "formats/ttgir", needs="excerpt", kernel=kernel)
    if facts.gluon:
        yield _section("form gluon", "formats/gluon", needs="gluon")
    yield _section("form several", "formats/several", most=facts.most_candidates)


def _section(name: str, template: str, kind: str = "", needs: str = "", **values: Any) -> Section:
    kind = kind or name
    rank = LAST.index(kind) + 1 if kind in LAST else 0
    return Section(name, templates.render(template, **values).strip("\n"), rank, needs)


def _plain(value: Any) -> Any:
    """The value with every text in it as one printable line."""
    if isinstance(value, str):
        return printable.line(value, LONGEST)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
