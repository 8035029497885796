"""Lessons from earlier runs of a target: lines for a prompt or a person, and which proposals come first or last.

Nothing is accepted from memory: an earlier winner is proposed and measured again; what failed or was slower comes after
all other proposals. The rationale of each says so. Relies on `history.py`. Reasons are in the form that models may see.
Deterministic: the same record gives the same lessons.
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
from pgo_agent.sandbox.build.versions import triton_version
from pgo_agent.sandbox.gate.reason import mentions
from pgo_agent.sandbox.gate.verdict import Verdict

MEMORY, GIVEN = "memory", "given"  # proposers: the place of earlier winners, and somebody with a file
MOST, WIDE = 25, 160  # lines, and characters of one
NEAR = 0.97  # from this speedup on a candidate counts as nearly as fast
_KINDS = ("accepted", "near", "faulty", "slower", "unmeasured")  # of lessons, the most useful first
_SHARE = {"accepted": 8, "near": 6, "faulty": 8, "slower": 6, "unmeasured": 3}  # lines of each, where all have some
_OF_A_FAULT = 3  # lines of one faulty verdict


# lines ----------------------------------------------------------------------------------------------------------------


def lines(ctx: Context) -> list[str]:
    """Return at most MOST lessons for the next proposer, the most useful first."""
    held_out = [c.split("/", 1)[1] for c in ctx.baseline().held_out]
    return as_lines(history.tried(ctx.store, history.of(ctx.run)), held_out)


def as_lines(tried: Sequence[Tried], held_out: Collection[str]) -> list[str]:
    """Return lessons as lines: wins with ratios, near misses, failures by kind, then the slower ones, newest first."""
    kinds: dict[str, list[str]] = {k: [] for k in _KINDS}
    for t in sorted(tried, key=_usefulness):  # stable: newest first
        line = _line(t, held_out)
        chosen = kinds[_kind(t)]
        of_a_fault = sum(x.startswith(f"{t.verdict} ") for x in chosen) if _kind(t) == "faulty" else 0
        if line not in chosen and of_a_fault < _OF_A_FAULT:
            chosen.append(line)
    spare = MOST - sum(min(len(chosen), _SHARE[k]) for k, chosen in kinds.items())
    shown: list[str] = []
    for kind, chosen in kinds.items():
        more = min(max(0, len(chosen) - _SHARE[kind]), max(0, spare))
        spare -= more
        shown += chosen[: _SHARE[kind] + more]
    return shown[:MOST]


def whole_lines(tried: Sequence[Tried], held_out: Collection[str], most: int) -> list[str]:
    """Return a line for each candidate, the newest first: its job, its author, and the whole of what became of it."""
    lines = (f"{t.run}/{t.id}, by {t.author}: {_line(t, held_out, 400, 2000, said=True)}" for t in tried[:most])
    left = [f"and {len(tried) - most} earlier ones"] if len(tried) > most else []
    return [*lines, *left]


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


def _line(t: Tried, held_out: Collection[str], idea_wide: int = 60, wide: int = WIDE, said: bool = False) -> str:
    """Verdict, ratio and where it was measured, what was tried, and why it failed or was thought to help.

    `said`: the words of who proposed it stand in quotes.
    """
    ratio = f" {t.speedup:.3f}x its incumbent on {t.gpu or t.device}" if t.speedup is not None else ""
    at = "" if ratio else f" in stage {t.stage}, not measured"
    rationale = text.line(t.rationale, idea_wide)
    idea = f"{t.move}, {text.quoted(rationale)}" if said else f"{t.move} ({rationale})"
    if t.proposer == GIVEN or mentions(idea, held_out):  # which names a file of this machine
        idea = "a change of somebody's"
    why = "" if t.verdict == Verdict.ACCEPTED or ratio else f": {t.why.for_model(held_out)}"
    other = "" if t.same_text else "of another text of the kernel: "
    return text.line(f"{t.verdict}{ratio}{at}: {other}{idea}{why}", wide)


# what the moves make of it --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setbacks:
    """Which proposals failed or were slower in an earlier run of the same text, device and compiler."""

    by_text: Mapping[str, Tried]  # id of the proposed text
    by_move: Mapping[tuple[str, str], Tried]  # parent, and name of the move

    def of(self, proposed: NewCandidate) -> str:
        """Return why a proposal is tried last; empty if nothing speaks against it."""
        t = self.by_text.get(proposed.id) or self.by_move.get((proposed.parent, proposed.move))
        if t is None or t.verdict == Verdict.ACCEPTED:
            return ""
        ratio = f" ({t.speedup:.3f}x)" if t.speedup is not None else ""
        return f"tried last: {t.verdict}{ratio} in run {t.run}"


def setbacks(ctx: Context) -> Setbacks:
    """Return the setbacks of earlier runs. The newest verdict on a text, and on a move from a parent, decides."""
    by_text, by_move = dict[str, Tried](), dict[tuple[str, str], Tried]()
    compiler = triton_version(ctx.builder.box.python)
    for t in _of_this_text(ctx):
        measured = t.speedup is not None and t.verdict in (Verdict.SLOWER, Verdict.ACCEPTED)
        if t.triton == compiler and (measured or t.verdict in history.REFUSED):
            by_text.setdefault(t.id, t)
            by_move.setdefault((t.parent, t.move), t)
    return Setbacks(by_text, by_move)


def remembered(ctx: Context) -> Iterator[NewCandidate]:
    """Yield the fastest winner of earlier runs of this text on such a device, to be measured again.

    Its author is untrusted here: without a sandbox it is not proposed.
    """
    tried = _of_this_text(ctx)
    tried_by_id = {(t.run, t.id): t for t in tried}
    winners = [(_total(t, tried_by_id), t) for t in tried if t.verdict == Verdict.ACCEPTED and _whole(t)]
    best = max(winners, key=lambda x: x[0], default=None)  # the newest of equals
    if best is None or not ctx.builder.box.isolates:
        return
    total, t = best
    speed = f"the fastest of former runs, {total:.3f}x the kernel as shipped on {t.gpu or t.device} in run {t.run}"
    author = t.author if t.proposer == MEMORY else f"{t.author}, of {t.run}"
    rationale = f"{speed}: to be measured anew; {text.line(t.rationale, 160)}"
    proposal = Proposal(history.source(ctx.store, t), t.kind, t.move, rationale)
    yield NewCandidate.of(proposal, author, incumbent.SHIPPED)


def _of_this_text(ctx: Context) -> list[Tried]:
    tried = history.tried(ctx.store, history.of(ctx.run))
    return [t for t in tried if t.same_text and t.device == ctx.run.device]


def _whole(t: Tried) -> bool:
    """Whether its text is complete. TTGIR is only if it replaces a kernel of the kernel as shipped."""
    return t.kind != "ttgir" or t.parent == incumbent.SHIPPED


def _total(t: Tried, tried_by_id: Mapping[tuple[str, str], Tried]) -> float:
    """Speedup over the kernel as shipped: the product of the gains of each winner over its predecessor."""
    total, seen = t.speedup or 1.0, {t.id}
    before = tried_by_id.get((t.run, t.against or ""))
    while before is not None and before.id not in seen:
        total, seen = total * (before.speedup or 1.0), seen | {before.id}
        before = tried_by_id.get((t.run, before.against or ""))
    return total
