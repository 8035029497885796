"""A report as Markdown for the body of a pull request: the main part visible, the rest folded, within GitHub's limit.

Untrusted text is put in code, where Markdown, HTML, mentions and references mean nothing; `report.md.j2` is the layout.
Only the page draws samples.
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
# Words that Markdown, and a forge's links for references and addresses, leave unchanged: others are put in code.
_WORD = re.compile(r"(?!.*(\]\(|www\.|GH-))[A-Za-z0-9.,;()%/\[\]'-]+:?")
_FIRST = re.compile(r"(?!\d+[.)]$)[A-Za-z0-9(]")  # a line that begins with it begins no list and no table
_SPAN = re.compile(r"[^`|\\<>&]+")  # safe in a code span and in a table's cell


@dataclass(frozen=True)
class Room:
    """Limits of the parts that can be long."""

    lines: int  # of the source's diff
    letters: int  # of a reason
    candidates: int
    whole: bool = True  # with the folded parts


ROOMS = (Room(400, 300, 200), Room(150, 160, 80), Room(0, 80, 25), Room(0, 80, 0, False))


def render(report: Report) -> str:
    """Return the Markdown, of at most LIMIT bytes unless the headline alone has more."""
    text = ""
    for room in ROOMS:
        text = _rendered(report, room)
        if len(text.encode()) <= LIMIT:
            break
    return text


def _rendered(report: Report, room: Room) -> str:
    values = {
        "report": report,
        "room": room,
        "table": wording.table(report.session) if report.session else None,
        "paths": [(p.case, *row) for p in report.profiles for row in wording.paths(p)],
        "ranking": wording.ranking(report),
        "proofs": [(p, wording.evidence(p)) for p in report.proofs],
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
    """Return the text as code on one line, for a paragraph or a cell of a table."""
    from markupsafe import Markup

    joined = " ".join(visible(str(text)).split())
    if not joined:
        return Markup("-")
    return Markup(f"`{joined}`") if _SPAN.fullmatch(joined) else tag(joined)


def tag(text: object) -> Any:
    """Return the text in a <code> tag, for places where Markdown is not, or may not be, read."""
    from markupsafe import Markup

    joined = " ".join(visible(str(text)).split())
    letters = (c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in joined)
    return Markup(f"<code>{''.join(letters)}</code>")


def plain(text: str) -> Any:
    """Return the text with harmless words unchanged and others as code."""
    from markupsafe import Markup

    listed = visible(text).split()
    grouped = groupby(
        enumerate(listed), lambda x: bool(_WORD.fullmatch(x[1])) and (x[0] > 0 or bool(_FIRST.match(x[1])))
    )
    runs = ((harmless, " ".join(word for _, word in group)) for harmless, group in grouped)
    return Markup(" ".join(words if harmless else code(words) for harmless, words in runs))


def cut(text: str, letters: int) -> str:
    """Cut a text to so many letters."""
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"


def fenced(language: str, lines: Sequence[str], most: int) -> Any:
    """Return a block of code with the first lines; no line in it can end it."""
    from markupsafe import Markup

    shown = [visible(line.rstrip("\n")) for line in lines[:most]]
    fence = "`" * max(3, 1 + max((len(run) for line in shown for run in re.findall("`+", line)), default=0))
    left = len(lines) - len(shown)
    rest = f"\n\n{left:,} more lines are left out here." if left else ""
    return Markup("\n".join([f"{fence}{language}", *shown, fence]) + rest)
