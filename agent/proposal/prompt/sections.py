"""A prompt as a list of sections within a budget of tokens: whole sections are dropped, in a fixed order.

It does not know what a section holds. `layout.py` makes the sections and ranks them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.agent.llm.models.budget import estimate
from pgo_agent.agent.llm.models.types import Exhausted

USUAL = 16_000  # tokens of a prompt, where nobody set a budget
BESIDE = 8_000  # tokens that are then left for what may be dropped, however long the kernel is
_LACKS = "Left out, as the prompt would be too long: "
_LEFT_OUT = re.compile(rf"^\({_LACKS}([^()\n]+)\.\)\n\Z", re.M)


class TooLong(Exhausted):
    """The required sections of a prompt exceed its budget, so no model can be asked."""

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(
            f"the kernel, the rules and the forms of an answer take about {needed} tokens of a prompt, and "
            f"{budget} are allowed"
        )
        self.needed = needed


@dataclass(frozen=True)
class Section:
    name: str
    text: str
    rank: int = 0  # 0 stays; of the others the highest is dropped first, the last one of equals
    needs: str = ""  # the section that it depends on: it is dropped with that one


@dataclass(frozen=True)
class Prompt:
    text: str
    sections: tuple[str, ...]  # names of those that are in it, in order
    dropped: tuple[str, ...]  # of those that did not fit, in the order of dropping

    @property
    def tokens(self) -> int:
        return estimate(self.text)


def fitted(sections: Sequence[Section], budget: int | None) -> Prompt:
    """Return the sections that fit, and a last line that names the others. Raises TooLong if rank 0 does not fit.

    `budget`: in tokens; None: USUAL, or BESIDE more than rank 0 takes.
    """
    remaining, dropped = list(sections), list[str]()
    if budget is None:
        stays = [s for s in sections if not s.rank and not s.needs]
        budget = max(USUAL, estimate(_text(stays, [])) + BESIDE)
    while estimate(text := _text(remaining, dropped)) > budget:
        last = max(remaining, key=lambda s: (s.rank, remaining.index(s)))
        if not last.rank:
            raise TooLong(estimate(text), budget)
        gone = _with_those_that_need(last, remaining)
        remaining = [s for s in remaining if s not in gone]
        dropped += [s.name for s in gone]
    return Prompt(text, tuple(s.name for s in remaining), tuple(dropped))


def left_out(text: str) -> list[str]:
    """Return the names of the sections that a prompt lacks, from its last line, which this module wrote."""
    match = _LEFT_OUT.search(text)
    return match[1].split(", ") if match else []


def _with_those_that_need(last: Section, sections: Sequence[Section]) -> list[Section]:
    gone = [last]
    for s in sections:  # a section stands behind the one that it needs
        if s.needs in {g.name for g in gone} and s not in gone:
            gone.append(s)
    return gone


def _text(sections: Sequence[Section], dropped: Sequence[str]) -> str:
    note = [f"({_LACKS}{', '.join(dropped)}.)"] if dropped else []
    return "\n\n".join([*(s.text for s in sections), *note]) + "\n"
