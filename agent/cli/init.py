"""The command that writes targets, and checks them. Heavy imports wait for what was asked."""

from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import WORKSPACE, CheckMinutesOption, JsonOption, StoreOption
from pgo_agent.agent.cli.settings_options import with_settings
from pgo_agent.agent.run.settings import Command, RunSettings, with_minutes


@with_settings(Command.INIT)
def init(
    file: Annotated[
        str,
        typer.Argument(
            help="A file with kernels, an installed module (liger_kernel.ops.rope), or a problem of KernelBench or "
            "flashinfer-bench."
        ),
    ] = "",
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PROGRAM]", help="What calls it: -- python test.py, or -- pytest test.py::test_it."),
    ] = None,
    call: Annotated[
        str | None, typer.Option("--call", help="Python statements that call it: 'softmax(torch.randn(8, 8))'.")
    ] = None,
    launcher: Annotated[
        str | None, typer.Option(help="The function that launches; needed where there are several.")
    ] = None,
    inductor: Annotated[
        bool,
        typer.Option(
            "--inductor",
            help="FILE is what TORCH_LOGS=output_code printed, or a file of /tmp/torchinductor_*: a target for each "
            "kernel that PyTorch's compiler wrote.",
        ),
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: NAME_target.py, here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--from-trace", metavar="TRACE", help="A trace of tritonparse: lists its kernels, or takes one."),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="With --from-trace and --inductor: the kernel to write a target for.")
    ] = None,
    workloads: Annotated[
        Path | None, typer.Option(help="Of a flashinfer-bench definition: its workloads, which become cases.")
    ] = None,
    solution: Annotated[
        Path | None, typer.Option(help="Of a flashinfer-bench definition: a solution, which becomes the kernel.")
    ] = None,
    check_: Annotated[bool, typer.Option("--check", help="FILE is a target: say what it lacks, then try it.")] = False,
    minutes: CheckMinutesOption = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Write a target for your kernel: guesses are marked, and what nobody can guess is left to you.

    With a program or --call, that runs in the sandbox on stand-in tensors, without a GPU, and every launch is seen:
    arguments, shapes, results, and what your own check compares with. Without, the file is read and not run. With
    --from-trace the launches that a model made are listed, or one of its kernels becomes a target. With
    --check a target is put through the gate as it is, and it is said how much of it was checked.
    """
    from pgo_agent.agent.commands.init import command, outcome

    with runner.faults(json_lines):
        if trace is not None:
            from pgo_agent.agent.commands.traces import command as traces

            traces.start(trace, kernel, output, force, asked, json_lines)
            raise typer.Exit
        if not file:
            raise typer.BadParameter("name a file with Triton kernels, or a trace with --from-trace")
        if inductor:
            from pgo_agent.agent.commands.init.inductor import command as inductor_code

            outcome.tell(inductor_code.write(file, kernel, output, force, asked), json_lines)
            raise typer.Exit
        if program or call is not None:
            from pgo_agent.agent.commands.init import capture

            made = capture.write(file, program or [], call, launcher, output, force, asked)
            outcome.tell(made, json_lines)
            raise typer.Exit
        if not check_:
            from pgo_agent.agent.commands.problems import command as problems

            if problems.recognised(file):
                outcome.tell(problems.write(file, workloads, solution, output, force, asked), json_lines)
                raise typer.Exit
            outcome.tell(command.write(file, launcher, output, force).outcome, json_lines)
            raise typer.Exit
        if not command.ready(Path(file)):
            raise typer.Exit(1)
    from pgo_agent.agent.commands import check as checking

    asked = with_minutes(asked, minutes)
    runner.run(json_lines, store, True, lambda o, emit: checking.start(Path(file), Path(file), asked, o, emit))
