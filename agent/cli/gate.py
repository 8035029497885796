"""`check --against` on the command line: it prints the verdict, and writes the files for CI. Heavy imports wait."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.run.settings import RunSettings

if TYPE_CHECKING:
    from pgo_agent.agent.run.events import Emit
    from pgo_agent.agent.run.record.store import Store
    from pgo_agent.agent.run.regression import Result


@dataclass(frozen=True)
class Wanted:
    """What the command line asks."""

    file: Path
    base: str
    of: Path | None
    markdown: Path | None
    junit: Path | None


def run(wanted: Wanted, asked: RunSettings, store: Path, json_lines: bool) -> NoReturn:
    """Compare, and exit with the code of the verdict."""
    from pgo_agent.agent.commands import against
    from pgo_agent.agent.views.regression.outlets import Outlets
    from pgo_agent.sandbox.errors import EnvironmentFault, Fault

    outlets, told = Outlets(wanted.markdown, wanted.junit), list["Result"]()
    with runner.faults(json_lines):
        outlets.check(json_lines)

    def go(opened: "Store", emit: "Emit") -> int:
        try:
            ended = against.start(against.Asked(wanted.file, wanted.base, wanted.of), asked, opened, emit, told.append)
        except Fault as e:
            outlets.failed(str(wanted.file), wanted.base, e)
            raise
        for result in told:
            try:
                outlets.write(result)
            except Fault as e:  # the verdict is not lost with the file
                raise EnvironmentFault(f"{e.message}; {result.outcome}: {result.file} {result.said}", e.hint) from None
        return ended

    def tell() -> None:
        for result in told:
            outlets.show(result)

    runner.run(json_lines, store, True, go, tell, "the same command; what was built is kept")
    raise typer.Exit  # never reached: `run` exits


def target_of(of: Path | None, markdown: Path | None, junit: Path | None) -> Path:
    """Return the target of a check without --against. Raises UsageFault where options do not fit."""
    from pgo_agent.sandbox.errors import UsageFault

    if markdown or junit:
        raise UsageFault("--markdown and --junit are of --against", "add --against BASE, or leave them out")
    if of is None:
        raise UsageFault("check needs --target: what the file is a candidate for", "--target TARGET, or --against BASE")
    return of
