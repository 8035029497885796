"""Options that several commands share and that are not settings of a run, and the help text about exit codes.

`settings_options.py` makes the options for the settings of a run.
"""

from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent.run.settings import RunSettings

EPILOG = (
    "Exit codes: 0 an accepted improvement (without a GPU: a completed ranking), 1 none found, 2 usage, 3 environment, "
    "4 budget spent with nothing judged, 5 a reply or a verdict is not there yet (--no-wait), 130 interrupted."
)
CHECK_EPILOG = (
    "Exit codes: 0 its results were compared, and are right (accepted, slower, no_change, checked), 1 something is "
    "wrong with it (wrong, race, deadlock, timeout, crashed, build_error, rejected, cheating), 2 usage, also when it "
    "changes the contract, 3 environment, 4 nothing here could tell (built: it compiles, and its results could not be "
    "checked; undecided; or no time was left), 5 a verdict is not there yet (--no-wait), 130 interrupted. With "
    "--against: 0 the same code, or right and not slower (without a GPU: right), 1 slower, too."
)
INIT_EPILOG = (
    "Exit codes: 0 written; with --check: its results were compared, and are right, 1 something is missing or wrong, "
    "2 usage, 3 environment, 4 with --check: it compiles, and nothing here could check its results, or time was short."
)

RunArgument = Annotated[str, typer.Argument(help="Id of the run, or the beginning of one, or 'last'.")]
StoreOption = Annotated[
    Path, typer.Option("--store", envvar="PGO_AGENT_STORE", help="Workspace folder: records and artefacts.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text: events as JSON lines, or one object.")]
CheckMinutesOption = Annotated[  # not the minutes of a search: they limit the interpreter, too
    float | None,
    typer.Option(
        min=0.0,
        help=f"Budget: minutes of wall clock. Default: {RunSettings.minutes:g}, of which Triton's interpreter takes at "
        "most 2 for a kernel; minutes that are given here are its own, too, so that it gets through more "
        "configurations of a long list.",
    ),
]
PassesOption = Annotated[
    str | None,
    typer.Option(help="Passes, as in static,timeline,counters: static needs no GPU and is always there. Default: all."),
]
SecondsOption = Annotated[float, typer.Option(min=0.0, help="Budget: seconds of the GPU for a profile.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Write it as a page, too: one file that loads nothing.")
]
MarkdownOption = Annotated[Path | None, typer.Option("--markdown", help="Write it as Markdown, too; - prints it.")]
PerfettoOption = Annotated[
    Path | None, typer.Option("--perfetto", help="Write its timeline as a trace for ui.perfetto.dev, too (GPU).")
]
AtOnceOption = Annotated[
    int,
    typer.Option(
        "--at-once",
        min=1,
        help="Make so many runs at a time, each by a process with a workspace of its own in --store (runs that share a "
        "baseline stay in one); they share builds and GPUs.",
    ),
]
SlurmOption = Annotated[
    str | None,
    typer.Option(
        "--slurm",
        metavar="NAME=VALUE,...",
        help="Make the runs by --at-once jobs of Slurm, with these options of sbatch: partition=gpu,gpus_per_node=1,"
        "timeout_min=240. --store must lie where all nodes see it.",
    ),
]
WORKSPACE = Path(".pgo-agent")
