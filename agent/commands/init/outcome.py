"""What `pgo-agent init` came to, in one form for all that it reads: printed for a person, or as one JSON object."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pgo_agent.agent.commands.init import render
from pgo_agent.sandbox import target


@dataclass(frozen=True)
class WrittenTarget:
    """A target that was written."""

    file: str
    about: tuple[str, ...]  # what it is of, a line each
    to_write: tuple[str, ...]  # its lines that nobody can guess, with their numbers
    guessed: tuple[str, ...]  # its lines that may be wrong
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What `init --json` prints."""

    targets: tuple[WrittenTarget, ...]
    about: tuple[str, ...] = ()  # what was found in the file that was read, a line each
    notes: tuple[str, ...] = ()


def written(path: Path, about: Sequence[str], notes: Sequence[str] = ()) -> WrittenTarget:
    """Return what there is to say of a target. Raises TargetFault for missing names."""
    to_write, guessed = marks(path)
    return WrittenTarget(str(path), tuple(about), tuple(to_write), tuple(guessed), tuple(notes))


def marks(path: Path) -> tuple[list[str], list[str]]:
    """Return the lines of a target to write, and those that were guessed. Raises TargetFault for missing names."""
    subject = target.read(path)
    lines = list(enumerate(target.text(subject.contract_path).splitlines(), 1))
    if subject.sidecar:
        lines += list(enumerate(subject.source.splitlines(), 1))
    marked = [[f"line {n}: {line.strip()}" for n, line in lines if f"  {mark}" in line] for mark in render.MARKS]
    return marked[0], marked[1]


def tell(outcome: Outcome, json_lines: bool) -> None:
    """Print it on stdout."""
    if json_lines:
        print(json.dumps(asdict(outcome)))
        return
    from pgo_agent.agent.views import summary

    out = summary.output()
    for line in (*outcome.about, *(x for t in outcome.targets for x in _lines(t)), *_notes(outcome.notes)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(t: WrittenTarget) -> list[str]:
    said = f"{len(t.to_write)} lines to write, {len(t.guessed)} guessed ones to look at"
    return [
        *t.about,
        *_notes(t.notes),
        f"{t.file} is written: {said}",
        *(f"  {line}" for line in t.to_write),
        f"then: pgo-agent init --check {t.file}",
    ]


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"note: {n}" for n in notes]
