"""What former runs of a target teach the next one: lines for a prompt or a person, and what is tried first or last.

Nothing is accepted from memory: what won before is proposed to be measured anew, what failed or was slower has its
turn after everything else, and each says so in its rationale. Relies on `history.py` for the record; reasons are as
models may see them. Deterministic: the same record gives the same lessons.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent import text
from pgo_agent.agent.exit_codes import FAULTY
from pgo_agent.agent.moves import Proposal
from pgo_agent.agent.run import incumbent
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record import history
from pgo_agent.agent.run.record.candidate import NewCandidate
from pgo_agent.agent.run.record.history import Tried
from pgo_agent.sandbox.build.builder import triton_version
from pgo_agent.sandbox.gate.reason import mentions
from pgo_agent.sandbox.gate.verdict import Verdict

MEMORY, GIVEN = "memory", "given"  # who proposed: the former winners' place, and somebody with a file
MOST, WIDE = 25, 160  # lines, and characters of one
NEAR = 0.97  # a speedup from here on is nearly none lost
_KINDS = ("accepted", "near", "faulty", "slower", "unmeasured")  # of lessons, the most useful first
_SHARE = {"accepted": 8, "near": 6, "faulty": 8, "slower": 6, "unmeasured": 3}  # lines of each, where all have some
_OF_A_FAULT = 3  # lines of one faulty verdict


# lines ----------------------------------------------------------------------------------------------------------------


def lines(ctx: Context) -> list[str]:
    """At most a screen of lessons for whoever proposes next, the most useful first."""
    held_out = [c.split("/", 1)[1] for c in ctx.baseline().held_out]
    return told(history.tried(ctx.store, history.of(ctx.run)), held_out)


def told(found: Sequence[Tried], held_out: Collection[str]) -> list[str]:
    """Lessons in lines: wins with their ratios, near misses, failures by kind, then what was slower, newest first."""
    kinds: dict[str, list[str]] = {k: [] for k in _KINDS}
    for t in sorted(found, key=_usefulness):  # stable: newest first
        said = _line(t, held_out)
        own = kinds[_kind(t)]
        of_a_fault = sum(x.startswith(f"{t.verdict} ") for x in own) if _kind(t) == "faulty" else 0
        if said not in own and of_a_fault < _OF_A_FAULT:
            own.append(said)
    spare = MOST - sum(min(len(own), _SHARE[k]) for k, own in kinds.items())
    shown: list[str] = []
    for kind, own in kinds.items():
        more = min(max(0, len(own) - _SHARE[kind]), max(0, spare))
        spare -= more
        shown += own[: _SHARE[kind] + more]
    return shown[:MOST]


def _kind(t: Tried) -> str:
    if t.verdict in (Verdict.ACCEPTED, *FAULTY):
        return "accepted" if t.verdict == Verdict.ACCEPTED else "faulty"
    if t.speedup is None:
        return "slower" if t.verdict == Verdict.SLOWER else "unmeasured"
    return "near" if t.speedup >= NEAR else "slower"


def _usefulness(t: Tried) -> tuple[int, float, str]:
    kind = _kind(t)
    gain = -(t.speedup or 0.0) if kind in ("accepted", "near") else 0.0
    return _KINDS.index(kind), gain, t.verdict if kind == "faulty" else ""


def _line(t: Tried, held_out: Collection[str]) -> str:
    """Verdict, ratio and where it was measured, what was tried, and why it failed or was thought to help."""
    ratio = f" {t.speedup:.3f}x its incumbent on {t.gpu or t.device}" if t.speedup is not None else ""
    at = "" if ratio else f" in stage {t.stage}, not measured"
    idea = f"{t.move} ({text.line(t.rationale, 60)})"
    if t.proposer == GIVEN or mentions(idea, held_out):  # which names a file of this machine
        idea = "a change of somebody's"
    why = "" if t.verdict == Verdict.ACCEPTED or ratio else f": {t.why.for_model(held_out)}"
    other = "" if t.same_text else "of another text of the kernel: "
    return text.line(f"{t.verdict}{ratio}{at}: {other}{idea}{why}", WIDE)


# what the moves make of it --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setbacks:
    """What of a run's proposals failed or was slower in a former run of the same text, device and compiler."""

    by_text: Mapping[str, Tried]  # id of the proposed text
    by_move: Mapping[tuple[str, str], Tried]  # parent, and name of the move

    def of(self, proposed: NewCandidate) -> str:
        """Why a proposal has its turn last; empty when nothing is held against it."""
        t = self.by_text.get(proposed.id) or self.by_move.get((proposed.parent, proposed.move))
        if t is None or t.verdict == Verdict.ACCEPTED:
            return ""
        ratio = f" ({t.speedup:.3f}x)" if t.speedup is not None else ""
        return f"tried last: {t.verdict}{ratio} in run {t.run}"


def setbacks(ctx: Context) -> Setbacks:
    """The newest verdict on a text, and on a move from a parent, decides."""
    by_text, by_move = dict[str, Tried](), dict[tuple[str, str], Tried]()
    compiler = triton_version(ctx.builder.box.python)
    for t in _of_this_text(ctx):
        measured = t.speedup is not None and t.verdict in (Verdict.SLOWER, Verdict.ACCEPTED)
        if t.triton == compiler and (measured or t.verdict in history.REFUSED):
            by_text.setdefault(t.id, t)
            by_move.setdefault((t.parent, t.move), t)
    return Setbacks(by_text, by_move)


def remembered(ctx: Context) -> Iterator[NewCandidate]:
    """The fastest winner of former runs of this text on such a device, to be measured anew.

    Whoever wrote it, it comes from elsewhere: it is built in the sandbox, or not proposed.
    """
    found = _of_this_text(ctx)
    known = {(t.run, t.id): t for t in found}
    won = [(_total(t, known), t) for t in found if t.verdict == Verdict.ACCEPTED and _whole(t)]
    best = max(won, key=lambda x: x[0], default=None)  # the newest of equals
    if best is None or not ctx.builder.box.isolates:
        return
    total, t = best
    said = f"the fastest of former runs, {total:.3f}x the kernel as shipped on {t.gpu or t.device} in run {t.run}"
    author = t.author if t.proposer == MEMORY else f"{t.author}, of {t.run}"
    rationale = f"{said}: to be measured anew; {text.line(t.rationale, 160)}"
    proposal = Proposal(history.source(ctx.store, t), t.kind, t.move, rationale)
    yield NewCandidate.of(proposal, author, incumbent.SHIPPED)


def _of_this_text(ctx: Context) -> list[Tried]:
    found = history.tried(ctx.store, history.of(ctx.run))
    return [t for t in found if t.same_text and t.device == ctx.run.device]


def _whole(t: Tried) -> bool:
    """Whether its text says all of it: TTGIR replaces a kernel of its parent's."""
    return t.kind != "ttgir" or t.parent == incumbent.SHIPPED


def _total(t: Tried, known: Mapping[tuple[str, str], Tried]) -> float:
    """How many times as fast as the kernel as shipped, by what each winner gained over the one before it."""
    total, seen = t.speedup or 1.0, {t.id}
    before = known.get((t.run, t.against or ""))
    while before is not None and before.id not in seen:
        total, seen = total * (before.speedup or 1.0), seen | {before.id}
        before = known.get((t.run, before.against or ""))
    return total
