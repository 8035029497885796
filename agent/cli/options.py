"""The options that several commands share, and what their help says of exit codes."""

from pathlib import Path
from typing import Annotated

import typer

EPILOG = (
    "Exit codes: 0 an accepted improvement (without a GPU: a completed ranking), 1 none found, 2 usage, 3 environment, "
    "4 budget spent with nothing judged, 5 a reply or a verdict is not there yet (--no-wait), 130 interrupted."
)
CHECK_EPILOG = (
    "Exit codes: 0 its results were compared, and are right (accepted, slower, no_change, checked), 1 something is "
    "wrong with it (wrong, race, deadlock, timeout, crashed, build_error, rejected, cheating), 2 usage, also when it "
    "changes the contract, 3 environment, 4 nothing here could tell (built: it compiles, and its results could not be "
    "checked; undecided; or no time was left), 5 a verdict is not there yet (--no-wait), 130 interrupted."
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
DeviceOption = Annotated[
    str | None,
    typer.Option(help="Compile for: h200, h100, a100, b200, rtx4090, rtx5090. Default: the GPU here, else h200."),
]
LongerOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Budget: minutes of wall clock. Default: 20, of which Triton's interpreter takes at most 2 for a kernel; "
        "minutes that are given here are its own, too, so that it gets through more configurations of a long list.",
    ),
]
MinutesOption = Annotated[float, typer.Option(min=0.0, help="Budget: minutes of wall clock, over all resumptions.")]
JudgeOption = Annotated[
    str,
    typer.Option(
        help="auto, gpu (fail without one), cpu (Triton's interpreter), or spool:DIR: a GPU elsewhere, where `python "
        "-m pgo_agent.sandbox.judge --spool DIR --target FILE` answers what is asked in that folder.",
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        metavar="0,1", help="GPUs of this machine, by index or UUID, as nvidia-smi lists them. Default: all visible."
    ),
]
DropWrongOption = Annotated[
    bool,
    typer.Option(
        "--drop-wrong",
        help="Go on where the fastest of the file's own configurations, which triton.autotune picks, is not right.",
    ),
]
CaseOption = Annotated[list[str] | None, typer.Option(help="Use only this public case; may be repeated.")]
SandboxOption = Annotated[str, typer.Option(envvar="PGO_AGENT_SANDBOX", help="auto, bubblewrap, landlock or none.")]
PythonOption = Annotated[
    str, typer.Option(help="Interpreter with your torch and triton, for tracer, compiler and judge.")
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
ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[ROLE=]NAME",
        help="Let a model propose, too: its NAME on a server (OPENAI_BASE_URL, OPENAI_API_KEY), relay:DIR (prompts and "
        "replies are files there), replay:FILE (a recording gives its replies again). embedded: none. May be repeated, "
        "as profiler=NAME and summarizer=NAME. Default: PGO_AGENT_MODEL, PGO_AGENT_PROFILER_MODEL, "
        "PGO_AGENT_SUMMARIZER_MODEL.",
    ),
]
InsightOption = Annotated[
    str,
    typer.Option("--profile", help="What of profiles the optimizer is told: all, counters (Nsight Compute's) or none."),
]
SeedOption = Annotated[
    int, typer.Option(min=0, help="Orders what nothing tells apart: source moves, and who proposes first.")
]
PromptTokensOption = Annotated[
    int, typer.Option(min=1, help="Budget: tokens of a prompt, by estimate; what matters least is left out.")
]
TokensOption = Annotated[
    int | None, typer.Option(min=0, help="Budget: tokens of all models, prompts and replies. Default: no limit.")
]
MoneyOption = Annotated[
    float | None,
    typer.Option(min=0.0, help="Budget: money for models, by the prices in ~/.config/pgo-agent/prices.toml."),
]
GpuSecondsOption = Annotated[
    float | None, typer.Option("--gpu-seconds", min=0.0, help="Budget: seconds of the GPU. Default: no limit.")
]
NoWaitOption = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Do not wait for answers in relay:DIR or spool:DIR: end with 5, and `resume` goes on with them.",
    ),
]
AtOnceOption = Annotated[
    int,
    typer.Option(
        "--at-once",
        min=1,
        help="Make so many runs at a time, each by a process with a workspace of its own in --store; they share builds "
        "and GPUs.",
    ),
]
WORKSPACE = Path(".pgo-agent")
