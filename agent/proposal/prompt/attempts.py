"""What was tried in a run, in a line for each kind of outcome: attempts that ended alike stand together, newest last.

Reasons are as models may see them. It reads candidates and asks nobody.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent import text as printable
from pgo_agent.agent.run import provenance
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.sandbox.gate.reason import NONE

MOST = 20  # lines
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Attempt:
    """A candidate that has its verdict."""

    what: str  # its move, and of a model's the sentence that came with it
    verdict: str
    stage: str
    reason: str  # without what must not be told
    ratios: str  # how many times faster than its incumbent it ran, by case, or what is recorded; empty: not known

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """Equal for attempts that end alike."""
        return self.what, self.verdict, self.stage, _NUMBER.sub("", self.reason)


def lines(attempts: Iterable[Attempt], remarks: Sequence[str] = (), most: int = MOST) -> list[str]:
    """Newest last; what is older than the last `most` is counted in the first line."""
    groups: dict[tuple[str, str, str, str], list[Attempt]] = {}
    for attempt in attempts:
        groups[attempt.kind] = [*groups.pop(attempt.kind, []), attempt]  # what came again is new again
    told = [(_told(group), group[0].verdict) for group in groups.values()] + [(printable.line(r), "") for r in remarks]
    kept = told[-most:]
    if len(kept) == len(told):
        return [text for text, _ in kept]
    kept = told[1 - most :]
    return [_counted([verdict for _, verdict in told[: 1 - most]]), *(text for text, _ in kept)]


def attempt(
    c: Candidate, hidden: Collection[str], gains: Mapping[str, float], known: tuple[str, float | None] | None = None
) -> Attempt:
    """`hidden`: names of held-out cases. `gains`: case -> ratio, as measured in this run; `known`: what is recorded of
    this very source on such a GPU, its verdict and ratio."""
    own = c.author == provenance.EMBEDDED  # then the move's name says all
    what = c.move if own or not c.rationale else f"{c.move} ({printable.line(c.rationale, 160)})"
    ratios = ", ".join(f"{case.split('/', 1)[-1]} {ratio:.3f}x" for case, ratio in gains.items())
    if known and known[1] and not ratios:
        ratios = f"recorded earlier on such a GPU: {known[0]}, {known[1]:.3f}x"
    return Attempt(what, c.verdict or "", c.stage or "", (c.why or NONE).for_model(hidden), ratios)


def _told(group: Sequence[Attempt]) -> str:
    last = group[-1]
    count = f", {len(group)} times" if len(group) > 1 else ""
    by_case = f" [{last.ratios}]" if last.ratios else ""
    return printable.line(f"{last.what}{count}: {last.verdict} in stage {last.stage}: {last.reason}{by_case}")


def _counted(verdicts: Sequence[str]) -> str:
    counts = {v: verdicts.count(v) for v in dict.fromkeys(filter(None, verdicts))}
    return f"before these: {', '.join(f'{n} {verdict}' for verdict, n in counts.items()) or 'nothing of use'}"
