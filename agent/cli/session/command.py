"""The command `session`. Heavy imports wait until there is a terminal."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import WORKSPACE, StoreOption
from pgo_agent.agent.cli.settings_options import with_settings
from pgo_agent.agent.run.settings import Command, RunSettings


@with_settings(Command.SESSION)
def session(
    what: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A target, or a run to go on with, or 'last'.")],
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
) -> None:
    """Optimize at the terminal: watch a run live, and steer it.

    Ctrl-C pauses and loses nothing. A run that is continued keeps its options: /budget changes its budgets.
    """
    with runner.faults():
        runner.must_be_a_terminal(f"without one: {_without_terminal(what)}")
    from pgo_agent.agent.cli.session import start

    with runner.faults(), runner.opened(store, create=True) as opened:
        raise typer.Exit(start.start(what, asked, opened))


def _without_terminal(what: str) -> str:
    """Return the command that does the same without a session."""
    from pgo_agent.agent.run.target_file import locate

    begins = Path(what).suffix == ".py" or locate(Path(what)).exists()
    return f"pgo-agent {'optimize' if begins else 'resume'} {shlex.quote(what)}"
