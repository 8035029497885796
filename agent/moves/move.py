"""What a move is: a symptom, a rewrite of the kernel part, and the gain it may bring. Every move states all three.

A move that cannot prove its precondition raises DoesNotApply with the reason: it is listed, never skipped in silence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgo_agent.agent.moves.analysis import DoesNotApply, text_faults
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.agent.profile.summary import Bottleneck
from pgo_agent.sandbox.devices import Device

NO_LAUNCH = "the launcher launches no kernel that is defined in this file"
CARRIED = 6  # configurations that a candidate may carry: the best of every case, and new ones


@dataclass(frozen=True)
class Best:
    """The best known configuration of a case, and the static profile of what it builds."""

    config: Config
    static: Mapping[str, Any]  # of the kernel that does the work
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # kernel name -> static profile, of all
    blocks: Mapping[str, int] = field(default_factory=dict)  # kernel name -> blocks of its largest grid
    near: tuple[Config, ...] = ()  # others that ran as fast, as far as a sweep tells
    standing: bool = False  # whether the file's own list holds the configuration


@dataclass(frozen=True)
class Proposal:
    source: str
    kind: str  # launch, source, gluon or ttgir
    move: str  # name of the move
    rationale: str  # symptom and expected effect, one line
    cites: Bottleneck | None = None  # what in the profile asks for it; None: nothing does, or it needs no profile


@dataclass(frozen=True)
class RewriteInput:
    """What a source move works on: one launched kernel of a file, and what is known of its best build."""

    source: str  # the whole file
    kernel: str  # the jit function, by the name that is launched
    device: Device
    config: Config = field(default_factory=dict)  # its best known configuration; empty: unknown
    static: Mapping[str, Any] = field(default_factory=dict)  # static profile of that build; empty: unknown
    blocks: int | None = None  # of its largest grid in any case; None: unknown
    statics: Sequence[Mapping[str, Any]] = ()  # of its best builds in all cases; empty: unknown


@dataclass(frozen=True)
class SourceMove:
    """A rewrite of Triton source that computes the same values."""

    name: str
    symptom: str
    gain: str  # what was seen elsewhere, and where
    archs: Sequence[int]  # compute capabilities x 10 that it is for
    rewrite: Callable[[RewriteInput], str]  # gives the whole file anew; raises DoesNotApply
    launch: Config = field(default_factory=dict)  # launch parameters that the rewrite needs
    cures: tuple[Defect, ...] = ()  # what of a profile it is an answer to, by its symptom
    streams: bool = False  # whether it is for kernels without dots, too, where nothing in a profile asks for it


@dataclass(frozen=True)
class Skipped:
    """A move that did not fire, and why."""

    move: str
    reason: str

    @property
    def cites(self) -> None:
        """Return None: the profile asks for no move that does not apply."""


def attempted(name: str, rationale: str, rewrite: Callable[[], str], before: str = "") -> Proposal | Skipped:
    """Return what a rewrite gives. Its faults are listed like a precondition that does not hold: none ends a run.

    `before`: the file that it starts from, which tells its faults from those that were there.
    """
    try:
        changed = rewrite()
    except DoesNotApply as e:
        return Skipped(name, str(e))
    except SyntaxError as e:  # of what it wrote: it reads that again
        return Skipped(name, _no_python(e))
    except Exception as e:
        return Skipped(name, f"a fault of this move: {type(e).__name__}: {e}")
    return checked(Proposal(changed, "source", name, rationale), before)


def checked(proposal: Proposal, before: str) -> Proposal | Skipped:
    """Return a proposal whose text can run, as far as reading it tells: every text of a move goes through here."""
    try:
        text_faults.check(before, proposal.source)
    except DoesNotApply as e:
        return Skipped(proposal.move, f"a fault of this move: {e}")
    except SyntaxError as e:
        return Skipped(proposal.move, _no_python(e))
    except (ValueError, RecursionError) as e:
        return Skipped(proposal.move, f"a fault of this move: what it wrote cannot be read ({type(e).__name__})")
    return proposal


def _no_python(e: SyntaxError) -> str:
    return f"a fault of this move: it wrote what is not Python ({e.msg}, line {e.lineno})"
