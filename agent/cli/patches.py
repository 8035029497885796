"""The commands that make a patch of what a run found. Heavy imports wait for their command."""

from typing import TYPE_CHECKING

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import WORKSPACE, CheckMinutesOption, JsonOption, RunArgument, StoreOption
from pgo_agent.agent.cli.settings_options import with_settings
from pgo_agent.agent.run.settings import Command, RunSettings, with_minutes

if TYPE_CHECKING:
    from pgo_agent.agent.run.dispatch import Proof
    from pgo_agent.agent.run.events import Emit
    from pgo_agent.agent.run.record.store import Store

patches = typer.Typer()


@patches.command(
    epilog="Exit codes: 0 proven, 1 slower or wrong somewhere, 2 usage, or no region is left, 3 environment, "
    "4 nothing here could tell (no GPU), 130 interrupted."
)
@with_settings(Command.DISPATCH)
def dispatch(
    run: RunArgument = "last",
    minutes: CheckMinutesOption = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Put a run's winners behind guards in one launcher, and prove it: right everywhere, nowhere slower.

    A guard asks for shapes, strides, dtypes and the GPU of the cases that a winner won; elsewhere the original runs.
    Cases around the edges of each guard are judged, too, and what guards take on the host is measured and counts.
    `apply RUN --dispatch` writes what was proven.
    """
    from pgo_agent.agent.commands.dispatch import command
    from pgo_agent.agent.views import dispatch as view

    told = list["Proof"]()

    def go(opened: "Store", emit: "Emit") -> int:
        proof, ended = command.start(run, with_minutes(asked, minutes), opened, emit)
        told.append(proof)
        return ended

    runner.run(json_lines, store, False, go, lambda: view.show(told[0]), "the same command; what was built is kept")
