"""A comparison of two revisions as Markdown: a comment for a pull request.

Names and reasons come from files of the pull request: they stand in code spans, on one line, and can form no markup.
"""

from collections.abc import Iterable, Sequence

from pgo_agent.agent import text as texts
from pgo_agent.agent.run.regression import KernelChange, Outcome, Result
from pgo_agent.agent.views.regression import figures
from pgo_agent.sandbox.errors import Fault

_HEADS = {
    Outcome.SAME_CODE: "the same code",
    Outcome.NOT_SLOWER: "right, and not slower",
    Outcome.SLOWER: "slower",
    Outcome.RIGHT: "right; not timed: no GPU",
    Outcome.UNDECIDED: "not decided",
}
MARK = "<!-- pgo-agent check -->"  # by which a workflow finds its comment again


def text(result: Result) -> str:
    """Return the comment."""
    head = {str(k): v for k, v in _HEADS.items()}.get(result.outcome, result.outcome.replace("_", " "))
    timed = figures.time(result.speedup) if result.speedup else ""
    verdict = timed if timed.startswith(head) else f"{head}: {timed}" if timed else head  # not "slower: slower by .."
    about = f"target {_code(result.target)}, against {_code(result.against)}, compiled for {_escaped(result.device)}"
    covered = f", covered: {_escaped(result.covered)}" if result.covered else ""
    why = ["", f"Stage {_code(result.stage)}: {_code(result.reason, None)}"] if result.reason else []
    lines = [f"### {_code(result.file)}: {verdict}", "", f"{_code(result.file)} {_escaped(result.said)}.", *why]
    return "\n".join([*lines, *_code_part(result), *_times(result), "", f"<sub>{about}{covered}</sub>", MARK, ""])


def failed(file: str, base: str, fault: Fault) -> str:
    """Return the comment for a comparison that could not be made."""
    lines = [f"### {_code(file)}: not compared", "", _code(fault.message, 2000)]
    return "\n".join([*lines, *(["", f"What to do: {_code(fault.hint, 2000)}"] if fault.hint else []),
                      "", f"<sub>against {_code(base)}</sub>", MARK, ""])  # fmt: skip


def _code_part(result: Result) -> Iterable[str]:
    said = figures.compared(result.code)
    if not said:
        return
    yield ""
    yield f"{said[0].upper()}{said[1:]}."
    changes = result.code.changes if result.code else ()
    if changes:
        yield from ("", *_table(figures.HEAD, [_cells(c) for c in changes[: figures.SHOWN]]))
    if len(changes) > figures.SHOWN:
        yield f"\nand {len(changes) - figures.SHOWN} more."


def _times(result: Result) -> Iterable[str]:
    if result.speedup is None:
        return
    rows = [(_code(case).replace("|", "\\|"), figures.time(ratio)) for case, ratio in result.cases.items()]
    rows.append(("all cases", figures.time(result.speedup)))
    rows += [("all cases, a second session", figures.time(result.again))] if result.again else []
    rows += [("BASE against itself", figures.itself(result.noise))] if result.noise else []
    yield from ("", *_table(("case", "FILE against BASE, timed in one session"), rows))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cells(change: KernelChange) -> list[str]:
    """Return the row of a changed kernel: names as code, in which a table still takes a bar for its own."""
    named, figured = (figures.cells(change)[i] for i in (slice(0, 3), slice(3, None)))
    return [*(_code(cell).replace("|", "\\|") for cell in named), *map(_escaped, figured)]


def _code(words: str, most: int | None = 400) -> str:
    """Return words as a code span that nothing in them ends."""
    return f"`{texts.line(words, most).replace('`', chr(39))}`"


def _escaped(words: str) -> str:
    """Return words in which no character is markup."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#!|&~@$" and not c.isalnum() else c for c in texts.line(words))
