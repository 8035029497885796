"""The commands below `pgo-agent eval`: they test the project itself. Heavy imports wait for their command."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent import shell
from pgo_agent.agent.options import (
    WORKSPACE,
    DeviceOption,
    GpusOption,
    JsonOption,
    JudgeOption,
    NoWaitOption,
    PythonOption,
    SandboxOption,
    StoreOption,
)

A_PLAN = """
A plan, say plan.toml:

    metric = "anytime"            # or final; without a GPU: right

    targets = ["kernels/fa_fwd.py", "kernels/gemm.py"]

    insights = ["none", "all"]    # or counters; the others are compared with the first

    models = ["embedded"]         # or names as --model takes them

    seeds = [1, 2, 3, 4, 5]

    candidates = 16

    patience = 16

    minutes = 10

Exit codes: 0 every run has its result, 2 usage, 3 environment, 5 a reply is not there yet (--no-wait), 130 interrupted.
"""

evals = typer.Typer(no_args_is_help=True, help="Put the project itself to the test.")


@evals.command(
    "gate",
    epilog="Exit codes: 0 no bad candidate was admitted and no honest one refused, 1 one was, 2 usage, 3 environment.",
)
def eval_gate(
    entries: Annotated[
        str | None, typer.Argument(help="Only entries with this in their name, as cheats/, or of this target, as gemm.")
    ] = None,
    device: DeviceOption = None,
    judge: JudgeOption = "auto",
    gpus: GpusOption = None,
    sandbox: SandboxOption = "auto",
    python: PythonOption = sys.executable,
    json_lines: JsonOption = False,
) -> None:
    """Put the corpora through the gate: cheats, wrong kernels and races must be refused, honest variants must not.

    What only a GPU can tell is said to be undecided where there is none. Nothing is recorded in a workspace.
    """
    from pgo_agent.agent.session import Wishes
    from pgo_agent.evals import gate

    with shell.faults():
        wishes = Wishes(device, sandbox=sandbox, judge=judge, python=python, gpus=gpus)
        raise typer.Exit(gate.main(entries, wishes, json_lines))


@evals.command("ablation", epilog=A_PLAN)
def eval_ablation(
    plan: Annotated[Path, typer.Argument(help="A TOML file: metric, targets, arms, seeds and budget.")],
    results: Annotated[Path, typer.Option("--output", "-o", help="Where each run's result goes, as JSON lines.")],
    device: DeviceOption = None,
    judge: JudgeOption = "auto",
    gpus: GpusOption = None,
    no_wait: NoWaitOption = False,
    sandbox: SandboxOption = "auto",
    python: PythonOption = sys.executable,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Ask what profiles are worth: the same targets, budget and seeds, with the optimizer told more or less of them.

    The plan is fixed before the runs: results of another one are refused. The same command goes on where it was ended.
    """
    from pgo_agent.agent.session import Wishes
    from pgo_agent.evals.ablation import report, running
    from pgo_agent.evals.ablation.plan import read

    wishes = Wishes(device, sandbox=sandbox, judge=judge, python=python, gpus=gpus, wait=not no_wait)
    with shell.faults():
        written = running.Results(results, read(plan))
        running.check(written, wishes)
    shell.run(
        json_lines,
        store,
        True,
        lambda opened, emit: report.told(written, json_lines, running.run(written, wishes, opened, emit)),
        lambda: report.show(written),
        "this very command",
    )
