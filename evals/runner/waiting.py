"""What the runs of a plan wait for that does not wait itself: questions to models, and requests to a judge elsewhere.

It reads what runs told when they were suspended, and the folders of their questions. It says nothing of what a run is
for: who hands questions on need not know.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.run.events import RunWaiting
from pgo_agent.sandbox.json_codec import Record
from rich.console import Console
from rich.table import Table

MODEL, JUDGE = "a model", "the judge"


@dataclass(frozen=True)
class Waits(Record):
    """What one run waits for."""

    run: str
    asked: str  # MODEL or JUDGE
    files: tuple[str, ...]  # questions without an answer; of a judge the first
    how: str = ""  # the command that answers, on the machine of the GPU


def of(run: str, told: RunWaiting) -> Waits:
    if told.how:
        return Waits(run, JUDGE, (told.request,), told.how)
    return asked(run, Path(told.request).parent)


def asked(run: str, folder: Path) -> Waits:
    """Return the questions to a model in a folder that have no answer."""
    every = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    questions = sorted(n for n in every if n.endswith("-request.md"))
    open_ones = (n for n in questions if n.replace("-request.md", "-reply.md") not in every)
    return Waits(run, MODEL, tuple(str(folder / n) for n in open_ones))


def show(waiting: Sequence[Waits], out: Console) -> None:
    """Print a row for each question to a model, whose file is all that who answers needs, and what judges need."""
    questions = [(w.run, file) for w in waiting if w.asked == MODEL for file in w.files]
    if questions:
        drawn = Table("run", "file of its question", title="Questions to a model", title_justify="left")
        drawn.columns[-1].overflow = "fold"
        for row in questions:
            drawn.add_row(*row)
        out.print(drawn)
    for line in _for_judges(waiting):
        out.print(line, markup=False, soft_wrap=True)


def _for_judges(waiting: Iterable[Waits]) -> list[str]:
    """Return a line for each folder of a judge elsewhere, with the command that answers all runs that wait there."""
    asked: dict[str, list[str]] = {}
    for how in (w.how for w in waiting if w.asked == JUDGE):
        start, _, target = how.rpartition(" --target ")
        asked.setdefault(start, []).append(target)
    return [
        f"{len(targets)} runs wait for the judge; on the machine of the GPU: {start} --once "
        + " ".join(f"--target {t}" for t in dict.fromkeys(targets))
        for start, targets in asked.items()
    ]
