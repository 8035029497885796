"""A prompt as a list of sections within a budget of tokens: what does not fit is dropped whole, in a fixed order.

Knows nothing of what stands in a section. `layout.py` makes them and says in which order they go.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgo_agent.agent.llm.models.budget import estimate
from pgo_agent.agent.llm.models.types import Exhausted

_LACKS = "Left out, as the prompt would be too long: "
_LEFT_OUT = re.compile(rf"^\({_LACKS}([^()\n]+)\.\)\n\Z", re.M)


class TooLong(Exhausted):
    """What must be in a prompt does not fit into its budget: no model can be asked. In words."""

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
    needs: str = ""  # the section without which it says nothing: it goes with that one


@dataclass(frozen=True)
class Prompt:
    text: str
    sections: tuple[str, ...]  # names of those that are in it, in order
    dropped: tuple[str, ...]  # of those that did not fit, in the order in which they went

    @property
    def tokens(self) -> int:
        return estimate(self.text)


def fitted(sections: Sequence[Section], budget: int) -> Prompt:
    """The sections that fit, and a last line that names the others. Raises TooLong where those that stay do not fit."""
    kept, dropped = list(sections), list[str]()
    while estimate(text := _text(kept, dropped)) > budget:
        last = max(kept, key=lambda s: (s.rank, kept.index(s)))
        if not last.rank:
            raise TooLong(estimate(text), budget)
        gone = _with_those_that_need(last, kept)
        kept = [s for s in kept if s not in gone]
        dropped += [s.name for s in gone]
    return Prompt(text, tuple(s.name for s in kept), tuple(dropped))


def left_out(text: str) -> list[str]:
    """The sections that a prompt says it lacks, by its last line: that one is ours."""
    said = _LEFT_OUT.search(text)
    return said[1].split(", ") if said else []


def _with_those_that_need(last: Section, kept: Sequence[Section]) -> list[Section]:
    gone = [last]
    for s in kept:  # what needs another stands behind it
        if s.needs in {g.name for g in gone} and s not in gone:
            gone.append(s)
    return gone


def _text(kept: Sequence[Section], dropped: Sequence[str]) -> str:
    note = [f"({_LACKS}{', '.join(dropped)}.)"] if dropped else []
    return "\n\n".join([*(s.text for s in kept), *note]) + "\n"
