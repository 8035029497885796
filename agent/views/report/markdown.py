"""A report as Markdown for the body of a pull request: what counts in sight, the rest folded, within GitHub's limit.

What was not written by us stands in code, where Markdown, HTML, mentions and references mean nothing; `report.md.j2`
says what stands where. The samples are drawn in the page alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pgo_agent.agent.text import visible
from pgo_agent.agent.views.html import template
from pgo_agent.agent.views.report import text as wording
from pgo_agent.agent.views.report.collect import Report, times

LIMIT = 60_000  # bytes; a pull request's body may have 65,536 characters
# A word that Markdown, and what a forge makes of references and addresses, leaves as it is: others are put in code.
_WORD = re.compile(r"(?!.*(\]\(|www\.|GH-))[A-Za-z0-9.,;()%/\[\]'-]+:?")
_FIRST = re.compile(r"(?!\d+[.)]$)[A-Za-z0-9(]")  # what begins with it begins no list and no table
_SPAN = re.compile(r"[^`|\\<>&]+")  # what stands in a code span, and in a table's cell, as it is


@dataclass(frozen=True)
class Room:
    """How much of what grows is shown."""

    lines: int  # of the source's diff
    letters: int  # of a reason
    candidates: int
    whole: bool = True  # with what is folded


ROOMS = (Room(400, 300, 200), Room(150, 160, 80), Room(0, 80, 25), Room(0, 80, 0, False))


def render(report: Report) -> str:
    """At most LIMIT bytes, but for a run whose headline alone has more."""
    found = ""
    for room in ROOMS:
        found = _rendered(report, room)
        if len(found.encode()) <= LIMIT:
            break
    return found


def _rendered(report: Report, room: Room) -> str:
    values = {
        "report": report,
        "room": room,
        "table": wording.table(report.session) if report.session else None,
        "paths": [(p.case, *row) for p in report.profiles for row in wording.paths(p)],
        "known": wording.known(report),
        "proofs": [(p, wording.told(p)) for p in report.proofs],
        "source": report.comparison.source if report.comparison else (),
        "occupancy": wording.occupancy,
        "times": times,
        "unfit": wording.unfit(report),
        "code": code,
        "tag": tag,
        "plain": plain,
        "cut": lambda text: cut(text, room.letters),
        "fenced": fenced,
    }
    text = str(template("views/report/report.md.j2").render(**values))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"  # no line of a diff is empty


def code(text: object) -> Any:
    """As code, on one line, in a paragraph or a cell of a table."""
    from markupsafe import Markup

    one = " ".join(visible(str(text)).split())
    if not one:
        return Markup("-")
    return Markup(f"`{one}`") if _SPAN.fullmatch(one) else tag(one)


def tag(text: object) -> Any:
    """As code by its tag, where Markdown is not read, or may not be."""
    from markupsafe import Markup

    one = " ".join(visible(str(text)).split())
    letters = (c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in one)
    return Markup(f"<code>{''.join(letters)}</code>")


def plain(text: str) -> Any:
    """Words that mean nothing as they are, others as code."""
    from markupsafe import Markup

    listed = visible(text).split()
    grouped = groupby(
        enumerate(listed), lambda x: bool(_WORD.fullmatch(x[1])) and (x[0] > 0 or bool(_FIRST.match(x[1])))
    )
    told = ((harmless, " ".join(word for _, word in group)) for harmless, group in grouped)
    return Markup(" ".join(words if harmless else code(words) for harmless, words in told))


def cut(text: str, letters: int) -> str:
    """Its first letters."""
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"


def fenced(language: str, lines: Sequence[str], most: int) -> Any:
    """A block of code with the first lines; no line in it can end it."""
    from markupsafe import Markup

    kept = [visible(line.rstrip("\n")) for line in lines[:most]]
    fence = "`" * max(3, 1 + max((len(run) for line in kept for run in re.findall("`+", line)), default=0))
    left = len(lines) - len(kept)
    rest = f"\n\n{left:,} more lines are left out here." if left else ""
    return Markup("\n".join([f"{fence}{language}", *kept, fence]) + rest)
