"""The attempts of a run, as one line for each kind of outcome, newest last: attempts that ended alike share a line.

Reasons are in the form that models may see. It reads candidates only.
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

    what: str  # its move, and a model's own sentence about it
    verdict: str
    stage: str
    reason: str  # as a model may see it
    ratios: str  # speedup over its incumbent by case, or what is recorded; empty: unknown

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """Equal for attempts that end alike."""
        return self.what, self.verdict, self.stage, _NUMBER.sub("", self.reason)


def lines(attempts: Iterable[Attempt], remarks: Sequence[str] = (), most: int = MOST) -> list[str]:
    """Return at most `most` lines, newest last; the first counts the older attempts that are left out."""
    groups: dict[tuple[str, str, str, str], list[Attempt]] = {}
    for attempt in attempts:
        groups[attempt.kind] = [*groups.pop(attempt.kind, []), attempt]  # what came again is new again
    described = [(_describe(group), group[0].verdict) for group in groups.values()] + [
        (printable.line(r), "") for r in remarks
    ]
    newest = described[-most:]
    if len(newest) == len(described):
        return [text for text, _ in newest]
    newest = described[1 - most :]
    return [_counted([verdict for _, verdict in described[: 1 - most]]), *(text for text, _ in newest)]


def attempt(
    c: Candidate, hidden: Collection[str], gains: Mapping[str, float], recorded: tuple[str, float | None] | None = None
) -> Attempt:
    """Return a candidate as an attempt. `hidden`: names of held-out cases. `gains`: case -> ratio measured in this run.
    `recorded`: verdict and ratio of this very source on such a GPU."""
    embedded = c.author == provenance.EMBEDDED  # then the move's name says all
    what = c.move if embedded or not c.rationale else f"{c.move} ({printable.line(c.rationale, 160)})"
    ratios = ", ".join(f"{case.split('/', 1)[-1]} {ratio:.3f}x" for case, ratio in gains.items())
    if recorded and recorded[1] and not ratios:
        ratios = f"recorded earlier on such a GPU: {recorded[0]}, {recorded[1]:.3f}x"
    return Attempt(what, c.verdict or "", c.stage or "", (c.why or NONE).for_model(hidden), ratios)


def _describe(group: Sequence[Attempt]) -> str:
    last = group[-1]
    count = f", {len(group)} times" if len(group) > 1 else ""
    by_case = f" [{last.ratios}]" if last.ratios else ""
    return printable.line(f"{last.what}{count}: {last.verdict} in stage {last.stage}: {last.reason}{by_case}")


def _counted(verdicts: Sequence[str]) -> str:
    counts = {v: verdicts.count(v) for v in dict.fromkeys(filter(None, verdicts))}
    return f"before these: {', '.join(f'{n} {verdict}' for verdict, n in counts.items()) or 'nothing of use'}"
