"""Edits of a kernel's own TTGIR, for entries that a target's source cannot express: `NAME.ttgir-edit` of the corpora.

    <<<<<<< MATCH 2
    (ttg\\.async_wait .*)num = 2
    =======
    \\1num = 4
    >>>>>>> REPLACE

Between the first two lines stands a regular expression of Python's `re` (`^` and `$` at every line, `.` within one),
then what takes the place of each match. It must match exactly as often as the number says, once without a number, and
change something: else BrokenCorpus. So an edit names no SSA value, which the compiler numbers anew at every change, but
takes it from the match. An entry without any edit is the kernel's own text as it is.

The text is what the target's only launch in its public cases builds, by the boxed tracer, as `show --ttgir` writes it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.errors import Fault

_EDIT = re.compile(r"<<<<<<< MATCH(?: (\d+))?\n(.+?)\n=======\n(.*?)>>>>>>> REPLACE\n", re.S)


class BrokenCorpus(Fault):
    """A file of the corpus that is unclear, or does not fit its target any more."""


@dataclass(frozen=True)
class Edit:
    expression: re.Pattern[str]
    replacement: str  # with \1, \2, ... for what the groups matched
    times: int


def own(builder: Builder) -> str:
    """Return the TTGIR that the builder's target launches in its public cases, with the line that says which kernel it
    is.

    Raises BrokenCorpus when it cannot be traced, or launches more or less than one kernel.
    """
    place = builder.box, builder.contents, builder.target, builder.device
    traced = trace_and_compile.trace(*place, builder.target.source, {"CASES": None}, None)
    if "error" in traced:
        raise BrokenCorpus(f"{builder.target.path.stem} cannot be traced: {traced['error']['message']}")
    if len(traced["kernels"]) != 1:
        raise BrokenCorpus(f"{builder.target.path.stem} launches {len(traced['kernels'])} kernels, not one")
    ((name, kernel),) = traced["kernels"].items()
    text = traced["texts"][name]
    return f"// replaces: {builder.key(text, kernel['options'])}\n{text.decode()}"


def edited(name: str, edits: str, text: str) -> str:
    """Return the text after all edits of the entry of that name, one after another. Raises BrokenCorpus."""
    for number, edit in enumerate(_read(name, edits), 1):
        try:
            changed, times = edit.expression.subn(edit.replacement, text)
        except re.error as e:
            raise BrokenCorpus(f"{name}: {edit.replacement} is no replacement: {e}") from None
        if times != edit.times:
            raise BrokenCorpus(f"{name}: edit {number} matches {times} times, not {edit.times}: its target changed")
        if changed == text:
            raise BrokenCorpus(f"{name}: edit {number} changes nothing")
        text = changed
    return text


def _read(name: str, edits: str) -> Iterator[Edit]:
    if _EDIT.sub("", edits).strip():
        raise BrokenCorpus(f"{name}: write each edit as <<<<<<< MATCH, =======, >>>>>>> REPLACE, and nothing else")
    for m in _EDIT.finditer(edits):
        try:
            expression = re.compile(m[2], re.M)
        except re.error as e:
            raise BrokenCorpus(f"{name}: {m[2]} is no regular expression: {e}") from None
        yield Edit(expression, m[3].removesuffix("\n"), int(m[1] or 1))
