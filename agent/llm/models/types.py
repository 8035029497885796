"""What every model is to the loop: a prompt goes in, a reply comes out, or one of two endings that are nobody's fault.

It does not read what a reply says (`replies.py` and `json_query.py` do) and records nothing (they do).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pgo_agent.agent import text as printable
from pgo_agent.sandbox.errors import EnvironmentFault

OPTIMIZER = "optimizer"  # the role that asks when nobody says otherwise
PROFILER, SUMMARIZER = "profiler", "summarizer"
ROLES = (PROFILER, SUMMARIZER, OPTIMIZER)
LONGEST_NAME, MOST_TOKENS = 100, 10**12  # of what answers; of one call


@dataclass(frozen=True)
class Reply:
    text: str  # what was written; empty when the model refused or said nothing
    prompt_tokens: int | None  # None: nobody tells, or none were spent
    completion_tokens: int | None
    seconds: float  # wall clock, over all attempts
    model: str  # what answered, by its own word
    ended: str = ""  # why it is not all that the model would have written: refused, withheld, cut off; in words
    attempts: int = 1
    counted: int = 0  # tokens by which a budget counts it: as told, else estimated; none of a recording
    cost: float | None = None  # money; None: no price is known


@dataclass(frozen=True)
class Form:
    """What a reply is to be, as far as a server can be told. The prompt says it in words, too."""

    schema: Mapping[str, Any] | None = None  # JSON that it must be; None: free text
    most: int | None = None  # tokens of it; None: as many as the server allows


FREE = Form()


@dataclass(frozen=True)
class Asker:
    """What a model may need to know of the run that asks, beside the prompts."""

    run: str
    digest: str  # of its target
    tell: Callable[..., None]  # one event: its type, then its fields
    wait: bool = True  # for a reply that is not there yet; if not, Suspended is raised
    asked: tuple[str, ...] = ()  # the prompts of this role that the run has replies to, in order
    role: str = OPTIMIZER


class Model(Protocol):
    name: str  # as `--model` takes it; good in any folder
    booked: bool  # whether the time until its reply takes from the run's minutes
    paid: bool  # whether its tokens are spent now: those of a recording were spent before

    def complete(self, prompt: str, role: str = OPTIMIZER, form: Form = FREE) -> Reply:
        """Asks the model, and blocks. Raises Suspended, Exhausted, and Faults."""


class Suspended(Exception):
    """A reply is not there yet, and nobody is to wait: the run goes on with it when it is resumed."""

    def __init__(self, request: Path, reply: Path, why: str) -> None:
        super().__init__(f"{reply} {why}")
        self.request, self.reply, self.why = request, reply, why


class Exhausted(Exception):
    """The model has nothing more to say, whatever it is asked. In words."""


class Gone(EnvironmentFault):
    """A server that refuses the key or the request, cannot be reached, or does not answer in time."""


def whole(text: str) -> str:
    """The text without halves of characters: JSON may hold them, files and requests may not."""
    return text.encode("utf-8", "replace").decode()


def signed(said: object, otherwise: str) -> str:
    """What an answer says that it is from, as one short printable line; `otherwise` when it says nothing."""
    return (printable.line(said, None)[:LONGEST_NAME] if isinstance(said, str) else "") or otherwise


def remark(reply: Reply, *problems: str) -> str:
    """What was wrong with a reply, for the record and the next prompt; empty when nothing was."""
    return "; ".join(p for p in (reply.ended, *problems) if p)


def count(said: object) -> int | None:
    """A number of tokens, by whoever answered; None when it is none that a record can hold."""
    return said if type(said) is int and 0 <= said < MOST_TOKENS else None


def sha256(prompt: str) -> str:
    """By what a prompt is told from others."""
    return hashlib.sha256(whole(prompt).encode()).hexdigest()
