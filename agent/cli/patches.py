"""The commands that make a patch of what a run found. Heavy imports wait for their command."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


@patches.command(epilog="Exit codes: 0 written, 2 usage, or nothing that may be exported, 3 environment.")
def export(
    of: Annotated[str, typer.Argument(metavar="RUN[/CANDIDATE]", help="Default: the winner of the last run.")] = "last",
    form: Annotated[
        str, typer.Option("--as", help="module, launches, flashinfer, hf-kernels or kernelbench.")
    ] = "module",
    to: Annotated[Path, typer.Option("--to", help="A new folder.")] = Path("exported"),
    dispatch: Annotated[
        bool, typer.Option("--dispatch", help="What `dispatch RUN` has proven, with its guards.")
    ] = False,
    store: StoreOption = WORKSPACE,
) -> None:
    """Write a candidate as a module that needs torch and triton alone, or in the form that another project loads.

    Only what was accepted leaves, or what was checked without a GPU, which is then said in the file. Where functions
    came from, and the licence of the package that has them, stands in it, too.
    """
    from pgo_agent.agent.commands.export import command

    with runner.faults(), runner.opened(store) as opened:
        chosen, files = command.write(opened, of, form, to, dispatch)
        for line in chosen.said:
            print(line)
        for file in files:
            print(f"{file} written")


@patches.command(
    epilog="Exit codes: 0 the outputs are the same and it is not slower, 1 other outputs, or slower, 2 usage, or a "
    "program that fails, 3 environment."
)
def prove(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM", help="Your program: -- python infer.py")],
    run: Annotated[str, typer.Option(help="The patch: what `apply --to-source` would write of this run.")] = "last",
    candidate: Annotated[str | None, typer.Option(help="An accepted candidate of it; default: the winner.")] = None,
    patched: Annotated[
        list[str] | None,
        typer.Option(
            "--patched",
            metavar="MODULE=FILE",
            help="The patch: FILE in place of a module's, or of a file's; or the folder of an export --as launches.",
        ),
    ] = None,
    outputs: Annotated[str, typer.Option(help="The program's variable of what it computed.")] = "outputs",
    seconds: Annotated[
        str, typer.Option(help="The program's variable of the seconds of its steps; without it, all of it is timed.")
    ] = "seconds",
    turns: Annotated[int, typer.Option(min=1, help="Turns of four processes: without, with, with, without.")] = 6,
    minutes: Annotated[float, typer.Option(min=0.0, help="Budget: minutes of wall clock.")] = 60.0,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Say what a patch gains your whole program: with and without it, in turns, in fresh processes.

    Your program sets `outputs` (a tensor or a dict of them) and, if it likes, `seconds` (a list, of each step) at its
    top level. Outputs are compared; of times there is an interval, and what the program differs from itself by.
    """
    from pgo_agent.agent.commands.proving import command
    from pgo_agent.agent.commands.proving.turns import Program
    from pgo_agent.agent.views import proved as view

    def tell(text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    with runner.faults(json_lines):
        if patched:
            patch = command.of_files(patched)
        else:
            with runner.opened(store) as opened:
                patch = command.of_run(opened, run, candidate)
        result, ended = command.prove(Program(tuple(program), outputs, seconds), patch, turns, minutes, tell)
        if json_lines:
            print(json.dumps(result.as_json()))
        else:
            view.show(result)
        raise typer.Exit(int(ended))
