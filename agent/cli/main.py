"""The command line: one function for each command; those of records, sessions and evaluations lie beside it.

Heavy imports wait for their command.
"""

import atexit
import gc
from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent.cli import gate, runner, traces
from pgo_agent.agent.cli.evals import evals
from pgo_agent.agent.cli.init import init
from pgo_agent.agent.cli.mcp_server.command import mcp
from pgo_agent.agent.cli.options import (
    CHECK_EPILOG,
    EPILOG,
    INIT_EPILOG,
    WORKSPACE,
    CheckMinutesOption,
    HtmlOption,
    JsonOption,
    PassesOption,
    PerfettoOption,
    RunArgument,
    SecondsOption,
    StoreOption,
)
from pgo_agent.agent.cli.patches import patches
from pgo_agent.agent.cli.records import records
from pgo_agent.agent.cli.session.command import session
from pgo_agent.agent.cli.settings_options import with_changes, with_settings
from pgo_agent.agent.run.settings import Changes, Command, RunSettings, with_minutes
from pgo_agent.sandbox.isolation import lending

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    add_completion=True,
    help="Profile-guided optimizer for Triton kernels: every speedup is checked and measured before it is recorded.",
)


@app.command(epilog=EPILOG)
@with_settings(Command.OPTIMIZE)
def optimize(
    file: Annotated[
        Path | None, typer.Argument(help="The target: a kernel file with launcher, reference, inputs and cases.")
    ] = None,
    trace: traces.FromTrace = None,
    top: traces.Top = 5,
    *,
    asked: RunSettings,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what the run will take, by what former runs took.")
    ] = False,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Optimize a kernel: both baselines, then candidates that are built, checked and, on a GPU, measured."""
    from pgo_agent.agent.commands.optimize import expect, start

    if trace is not None:
        traces.optimize(trace, top, asked, store, json_lines)
    if file is None:
        raise typer.BadParameter("name a target, or a trace with --from-trace")
    if dry_run:
        from pgo_agent.agent.views import cost

        with runner.faults(json_lines), runner.opened(store, create=True) as record:
            cost.tell(expect(file, asked, record), asked, json_lines)
            raise typer.Exit
    runner.run(json_lines, store, True, lambda opened, emit: start(file, asked, opened, emit))


app.command(epilog=EPILOG)(session)
app.command()(traces.trace)


app.command(epilog=INIT_EPILOG)(init)


@app.command(epilog=CHECK_EPILOG)
@with_settings(Command.CHECK)
def check(
    candidate: Annotated[
        Path,
        typer.Argument(help="What to judge: a copy of the target with another kernel part, that part, or a .ttgir."),
    ],
    of: Annotated[
        Path | None,
        typer.Option(
            "--target",
            help="What it is a candidate for: a target file, or a kernel that ships: fa_fwd. With --against: by "
            "default the file itself.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="BASE",
            help="The gate of a pull request: is it the code of BASE, or right and no slower than that? A file, or "
            "git:REV: the same path in that revision.",
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", help="With --against: write a comment for a pull request, too; - prints it."),
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="With --against: write JUnit XML for CI, too.")] = None,
    minutes: CheckMinutesOption = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Judge one file as a candidate for a target: the whole gate, and nothing else is tried.

    It runs in the sandbox, or not at all. What it came to is recorded as any
    run is: show, diff and apply know it.

    With --against the code of both files is compared first, which takes
    seconds and no GPU. Where it differs, a GPU times both against one
    another, and BASE against itself: what is slower beyond that fails, with
    1. Without a GPU it is said whether the file is right, and not timed.
    """
    asked = with_minutes(asked, minutes)
    if base is not None:
        gate.run(gate.Wanted(candidate, base, of, markdown, junit), asked, store, json_lines)
    from pgo_agent.agent.commands import check as checking

    with runner.faults(json_lines):
        target = gate.target_of(of, markdown, junit)
    runner.run(json_lines, store, True, lambda opened, emit: checking.start(candidate, target, asked, opened, emit))


@app.command(epilog=EPILOG)
@with_changes(Command.RESUME)
def resume(
    run: RunArgument = "last",
    *,
    changes: Changes,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Go on with an interrupted or waiting run: nothing that was recorded is lost or done twice.

    Budgets, judge, GPUs and an interpreter that are given replace those of the run: another host, or another cluster,
    may go on with it. A check ends as `check` says.
    """
    from pgo_agent.agent.commands import optimize

    runner.run(json_lines, store, False, lambda opened, emit: optimize.resume(run, opened, emit, changes))


@app.command(epilog="Exit codes: 0 profiled, 2 usage, 3 environment.")
@with_settings(Command.PROFILE)
def profile(
    file: Annotated[Path, typer.Argument(help="The target: a kernel file, or a kernel that ships: fa_fwd.")],
    configuration: Annotated[
        str | None, typer.Option("--config", help="As listed by show: 'BLOCK_M=64 ...'. Default: the best known.")
    ] = None,
    code: Annotated[
        bool, typer.Option("--code", help="Its TTGIR as pseudo-code, too, with what each line costs beside it.")
    ] = False,
    backend: Annotated[str, typer.Option(help="nvidia, or amd: compiled for gfx950, without its GPU.")] = "nvidia",
    passes: PassesOption = None,
    seconds: SecondsOption = 60.0,
    html: HtmlOption = None,
    perfetto: PerfettoOption = None,
    candidate: Annotated[
        str | None,
        typer.Option("--candidate", metavar="RUN/ID", help="A candidate of a run of FILE in its place; TTGIR, too."),
    ] = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Say what a kernel costs and where: registers, occupancy, pipeline, loops, instructions by source line.

    The static pass reads that off the compiled code, on any machine. The pass
    timeline reads clocks inside of the kernel, counters are Nsight Compute's:
    both need a GPU. Asked again, the answer comes from the workspace.
    """
    from pgo_agent.agent.commands import profile as profiling
    from pgo_agent.agent.commands import profile_subject
    from pgo_agent.agent.profile.summarize import summarize
    from pgo_agent.agent.views.profile import output as report

    with runner.faults(json_lines):
        outlets = report.Outlets(json_lines, code, html, perfetto)
        outlets.check()
        wanted = profiling.parse_passes(passes)
        with runner.opened(store, create=True) as opened:
            try:
                subject = profile_subject.of(file, opened, candidate)
                result = profiling.profile(subject, asked, configuration, backend, opened, wanted, seconds)
            except KeyboardInterrupt:
                runner.interrupted("the same command; what was taken is kept")
            report.write(result, subject.source, outlets, opened.contents, {c.case: summarize(c) for c in result.cases})


@app.command()
def doctor(json_lines: JsonOption = False) -> None:
    """Say what this machine can do: sandboxes, compilers, GPU, and what to install for more."""
    from pgo_agent.agent.commands.doctor import examine

    with runner.faults(json_lines):
        raise typer.Exit(examine(json_lines))


app.command(epilog="Exit codes: 0 ended, 2 usage, 3 environment.")(mcp)
app.add_typer(patches)
app.add_typer(records)
app.add_typer(evals, name="eval")


def main() -> None:
    """The console script `pgo-agent`."""
    atexit.register(gc.freeze)  # half a second of a run's is the search for garbage in what it leaves to the system
    lending.borrow()
    app()


if __name__ == "__main__":
    main()
