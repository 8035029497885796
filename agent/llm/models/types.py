"""The interface of every model: a prompt goes in, and a reply comes out, or Suspended or Exhausted, which are no
faults.

It does not read what a reply says and records nothing: `replies/`, `proposal/llm.py` and `json_query.py` do.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pgo_agent.agent import text as printable
from pgo_agent.sandbox.errors import EnvironmentFault

OPTIMIZER = "optimizer"  # the default role
PROFILER, SUMMARIZER = "profiler", "summarizer"
ROLES = (PROFILER, SUMMARIZER, OPTIMIZER)
LONGEST_NAME, MOST_TOKENS = 100, 10**12  # of what answers; of one call


@dataclass(frozen=True)
class Reply:
    text: str  # what was written; empty when the model refused or said nothing
    prompt_tokens: int | None  # None: not reported, or none were spent
    completion_tokens: int | None
    seconds: float  # wall clock, over all attempts
    model: str  # the name that it gave itself
    ended: str = ""  # why it is incomplete: refused, withheld or cut off, as text
    attempts: int = 1
    counted: int = 0  # tokens that a budget counts: as reported, else estimated; 0 for a recording
    cost: float | None = None  # money; None: no price is known


@dataclass(frozen=True)
class Form:
    """The wanted form of a reply, for servers that take it. The prompt says it in words, too."""

    schema: Mapping[str, Any] | None = None  # JSON that it must be; None: free text
    most: int | None = None  # tokens of it; None: as many as the server allows


FREE = Form()


@dataclass(frozen=True)
class Asker:
    """The run that asks, for a model that needs more than prompts."""

    run: str
    target: str  # name of the kernel file
    digest: str  # of its text
    report: Callable[..., None]  # emits one event: its type, then its fields
    wait: bool = True  # for a reply that is not there yet; if not, Suspended is raised
    asked: tuple[str, ...] = ()  # the prompts of this role that the run has replies to, in order
    role: str = OPTIMIZER


class Model(Protocol):
    name: str  # as `--model` takes it; good in any folder
    booked: bool  # whether the time until its reply takes from the run's minutes
    paid: bool  # whether its tokens are spent now: those of a recording were spent before

    def complete(self, prompt: str, role: str = OPTIMIZER, form: Form = FREE) -> Reply:
        """Ask the model, and block. Raises Suspended, Exhausted, and Faults."""


class Suspended(Exception):
    """A reply is not there yet, and the run does not wait: it uses the reply when it is resumed."""

    def __init__(self, request: Path, reply: Path, why: str) -> None:
        super().__init__(f"{reply} {why}")
        self.request, self.reply, self.why = request, reply, why


class Exhausted(Exception):
    """The model will answer no more prompts; the message says why."""


class Gone(EnvironmentFault):
    """A server that refuses the key or the request, cannot be reached, or does not answer in time."""


def whole(text: str) -> str:
    """Return the text without lone surrogates: JSON may hold them, files and requests may not."""
    return text.encode("utf-8", "replace").decode()


def signed(name: object, otherwise: str) -> str:
    """Return the model name of an answer as one short printable line; `otherwise` if it has none."""
    return (printable.line(name, None)[:LONGEST_NAME] if isinstance(name, str) else "") or otherwise


def remark(reply: Reply, *problems: str) -> str:
    """Return what was wrong with a reply, for the record and the next prompt; empty if nothing was."""
    return "; ".join(p for p in (reply.ended, *problems) if p)


def count(value: object) -> int | None:
    """Return a reported number of tokens; None if it is not a valid one."""
    return value if type(value) is int and 0 <= value < MOST_TOKENS else None


def sha256(prompt: str) -> str:
    """Return the hash that identifies a prompt."""
    return hashlib.sha256(whole(prompt).encode()).hexdigest()
