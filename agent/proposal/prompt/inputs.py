"""Everything that the optimizer's prompt may contain, as plain values. `collect.py` reads them from the record.

Templates get their values from here alone, so there is one place to keep secrets out: reference, held-out cases,
tolerances.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgo_agent.agent.moves import CARRIED
from pgo_agent.agent.run.settings import RunSettings


@dataclass(frozen=True)
class Code:
    """The hot loop of the kernel as its compiler left it: pseudo-code with labels, and TTGIR."""

    kernel: str  # the name that is launched
    case: str  # whose build it is
    choice: str  # its configuration
    text: str  # labelled lines with what they cost; `...` where others were left out
    excerpt: str = ""  # TTGIR of the lines of the loop
    whole: str = ""  # all of the kernel's TTGIR, where that is short


@dataclass(frozen=True)
class Facts:
    device: Mapping[str, Any]  # fields of sandbox.devices.Device
    triton: str  # version
    kernel: str  # the kernel part
    cases: Sequence[Mapping[str, Any]] = ()  # name, arguments; shipped and tuned: ms, rate, unit, choice, how
    statics: Sequence[Mapping[str, Any]] = ()  # of the incumbent: static profile and occupancy, and its cases
    tried: Sequence[str] = ()  # a line each, newest last
    allowed_ops: Sequence[str] = ()  # torch ops that the launcher may use
    in_place: Sequence[str] = ()  # arguments that kernel() changes
    profile: Sequence[str] = ()  # the summaries of the incumbent's profile, a line each
    quoted: Sequence[tuple[int, str]] = ()  # lines of the file that the profile names, with their numbers
    code: Code | None = None
    ttgir: bool = True  # whether candidates may be TTGIR: its text and forms are a fifth of a prompt
    moves: Sequence[str] = ()  # rewrites that are tried without a model, with the bottleneck each answers
    skipped: Sequence[str] = ()  # rewrites that do not apply, and why
    lessons: Sequence[str] = ()  # of earlier runs, a line each
    guidance: Sequence[str] = ()  # words of the person who runs it, newest last: these may instruct
    cards: Sequence[str] = ()  # names of templates in prompts/cards, what matters most first
    gluon: Sequence[str] = ()  # what the installed Gluon offers, a line each; empty: no Gluon is asked for
    launch: str = ""  # a configuration in the form of a reply, with the names that this kernel takes
    most_configs: int = CARRIED
    most_candidates: int = 4  # of one reply
    budget: int | None = RunSettings.prompt_tokens  # tokens of the prompt; None: by the kernel's length
