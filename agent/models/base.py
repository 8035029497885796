"""What every model is to the loop: a prompt goes in, a reply comes out, or one of two endings that are nobody's fault.

Relies on nothing. It does not read what a reply says (`replies.py` does) and records nothing (`asking.py` does).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OPTIMIZER = "optimizer"  # the role that asks when nobody says otherwise
LONGEST_NAME, MOST_TOKENS = 100, 10**12  # of what answers; of one call


@dataclass(frozen=True)
class Reply:
    text: str  # what was written; empty when the model refused or said nothing
    prompt_tokens: int | None  # None: nobody tells, or none were spent
    completion_tokens: int | None
    seconds: float  # wall clock, over all attempts
    model: str  # what answered, by its own word


@dataclass(frozen=True)
class Asker:
    """What a model may need to know of the run that asks, beside the prompts."""

    run: str
    digest: str  # of its target
    tell: Callable[..., None]  # one event: its type, then its fields
    wait: bool = True  # for a reply that is not there yet; if not, Suspended is raised
    asked: tuple[str, ...] = ()  # the prompts that the run has replies to, in order


class Model(Protocol):
    name: str  # as `--model` takes it; good in any folder
    booked: bool  # whether the time until its reply takes from the run's minutes

    def complete(self, prompt: str, role: str = OPTIMIZER) -> Reply:
        """Asks the model, and blocks. Raises Suspended, Exhausted, and Faults."""


class Suspended(Exception):
    """A reply is not there yet, and nobody is to wait: the run goes on with it when it is resumed."""

    def __init__(self, request: Path, reply: Path, why: str) -> None:
        super().__init__(f"{reply} {why}")
        self.request, self.reply, self.why = request, reply, why


class Exhausted(Exception):
    """The model has nothing more to say, whatever it is asked. In words."""


def whole(text: str) -> str:
    """The text without halves of characters: JSON may hold them, files and requests may not."""
    return text.encode("utf-8", "replace").decode()


def signed(said: object, otherwise: str) -> str:
    """What an answer says that it is from, as one short printable line; `otherwise` when it says nothing."""
    line = " ".join("".join(c if c.isprintable() else " " for c in said).split()) if isinstance(said, str) else ""
    return line[:LONGEST_NAME] or otherwise


def count(said: object) -> int | None:
    """A number of tokens, by whoever answered; None when it is none that a record can hold."""
    return said if type(said) is int and 0 <= said < MOST_TOKENS else None


def sha256(prompt: str) -> str:
    """By what a prompt is told from others."""
    return hashlib.sha256(whole(prompt).encode()).hexdigest()
