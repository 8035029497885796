"""The commands below `pgo-agent eval`: they test the project itself. Heavy imports wait for their command."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import WORKSPACE, AtOnceOption, JsonOption, SlurmOption, StoreOption
from pgo_agent.agent.cli.settings_options import with_settings
from pgo_agent.agent.run.settings import BUDGETS, OPTIONS, Command, RunSettings

ABLATION_EPILOG = """
A plan, say plan.toml:

    metric = "anytime"            # or final; without a GPU: right

    targets = ["kernels/fa_fwd.py", "kernels/gemm.py"]

    insights = ["none", "all"]    # also: bound, counters, another; the others are compared with the first

    models = ["embedded"]         # or names as --model takes them; relay:DIR has a folder in DIR for each run

    seeds = [1, 2, 3, 4, 5]

    candidates = 16

    patience = 16

    minutes = 10

For models, as evals/ablation-model.toml: the metric best is the best accepted ratio to the tuned baseline after each
generation; generations, width, prompt_tokens and gpu_seconds may be said. With a model nobody else proposes, runs of a
target share its baseline and profile, and their prompts differ in the profile alone. With --no-wait every run goes as
far as it gets, and what they all wait for is told in a table.

Exit codes: 0 every run has its result, 2 usage, 3 environment, 5 a reply is not there yet (--no-wait), 130 interrupted.
"""

_LIMITS = "\n\n".join(f"    {name} = {o.example:g}" for name, o in OPTIONS.items() if o.example is not None)
_MODEL_BUDGETS = ", ".join(name for name, budget in BUDGETS.items() if budget.of_models)

NIGHTLY_EPILOG = f"""
A plan, as evals/nightly.toml is one:

    targets = ["fa_fwd", "gemm"]  # kernel files, or kernels that ship

    optimizers = ["embedded"]     # or as --model takes them: NAME, relay:DIR, replay:{{kernel}}.jsonl

    seeds = [1, 2, 3]

    # what a run may take, as options of `optimize`; and, for models: {_MODEL_BUDGETS}

{_LIMITS}

Exit codes: 0 every run has its row, 2 usage, 3 environment (also: no GPU), 5 a reply is missing, 130 interrupted.
"""

evals = typer.Typer(no_args_is_help=True, help="Put the project itself to the test.")


@evals.command(
    "gate",
    epilog="Exit codes: 0 no bad candidate was admitted and no honest one refused, 1 one was, 2 usage, 3 environment.",
)
@with_settings(Command.EVAL)
def eval_gate(
    entries: Annotated[
        list[str] | None,
        typer.Argument(help="Only entries with one of these in their name, as cheats/, or of this target, as gemm."),
    ] = None,
    *,
    asked: RunSettings,
    json_lines: JsonOption = False,
) -> None:
    """Put the corpora through the gate: cheats, wrong kernels and races must be refused, honest variants must not.

    What only a GPU can tell is said to be undecided where there is none. Nothing is recorded in a workspace.
    """
    from pgo_agent.evals.gate import report as gate_report

    with runner.faults(json_lines):
        raise typer.Exit(gate_report.main(entries or [], asked, json_lines))


@evals.command(
    "mutants",
    epilog="Exit codes: 0 every mutant that is called right is explained, 1 one is not, 2 usage, 3 environment.",
)
@with_settings(Command.EVAL)
def eval_mutants(
    part: Annotated[
        str | None,
        typer.Argument(help="Only bases with this in their name, or of this target; NAME: is that one alone."),
    ] = None,
    operators: Annotated[str, typer.Option(help="Only these kinds of change, as mask,loop.")] = "",
    sample: Annotated[int | None, typer.Option(min=1, help="So many mutants, of each base as many.")] = None,
    seed: Annotated[int, typer.Option(help="Which sample.")] = 0,
    results: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where results go, as JSON lines: what it holds is known.")
    ] = None,
    *,
    asked: RunSettings,
    json_lines: JsonOption = False,
) -> None:
    """Change one thing in kernels that are right, and ask the gate: none of those mutants may be called right.

    The kernels are the targets, the honest entries of the corpora, and the TTGIR of some. A mutant of the same code as
    its base is none; one that changes no result for another reason was read, and is explained. On a GPU the judge
    judges.
    """
    from pgo_agent.evals.mutants import command

    with runner.faults(json_lines):
        names = [n.strip() for n in operators.split(",") if n.strip()]
        raise typer.Exit(command.main(part, names, sample, seed, asked, results, json_lines))


@evals.command("ablation", epilog=ABLATION_EPILOG)
@with_settings(Command.PLAN)
def eval_ablation(
    plan: Annotated[Path, typer.Argument(help="A TOML file: metric, targets, arms, seeds and budget.")],
    results: Annotated[Path, typer.Option("--output", "-o", help="Where each run's result goes, as JSON lines.")],
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Tell what it will take of a GPU, by recorded runs, and make no run.")
    ] = False,
    beside: Annotated[
        Path | None,
        typer.Option(help="Rows of an earlier pgo-agent: tell how its arms of the same names compare, too."),
    ] = None,
    at_once: AtOnceOption = 1,
    slurm: SlurmOption = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Ask what profiles are worth: the same targets, budget and seeds, with the optimizer told more or less of them.

    The plan is fixed before the runs: results of another one are refused. The same command goes on where it was ended,
    and shows what came of it once all runs have ended, with a GPU or without.
    """
    from pgo_agent.evals.ablation import report, run
    from pgo_agent.evals.ablation.plan import read

    with runner.faults(json_lines):
        written = run.Results(results, read(plan))
        if estimate:
            raise typer.Exit(report.estimated(written.plan, json_lines))
        shared = run.shared(written, slurm)
        earlier = {"earlier": run.opened(beside)} if beside else {}
    _run_plan(run, report, written, asked, store, json_lines, at_once, slurm, shared, earlier)


@evals.command("nightly", epilog=NIGHTLY_EPILOG)
@with_settings(Command.PLAN)
def eval_nightly(
    plan: Annotated[Path, typer.Argument(help="A TOML file: targets, optimizers, seeds and budget.")],
    rows: Annotated[Path, typer.Option("--output", "-o", help="Where each run's row goes, as JSON lines.")],
    at_once: AtOnceOption = 1,
    slurm: SlurmOption = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Measure what the optimizer comes to: every target by every optimizer and seed, under one budget, on a GPU.

    A row holds its raw samples and what made them; a run that fails has its row, and counts as 1. The same command goes
    on where it was ended. `eval site` shows rows, `eval compare` finds what became slower.
    """
    from pgo_agent.evals.nightly import report, run
    from pgo_agent.evals.nightly.plan import read

    with runner.faults(json_lines):
        night = run.opened(rows, read(plan))
    _run_plan(run, report, night, asked, store, json_lines, at_once, slurm)


def _run_plan(
    running: Any,
    report: Any,
    results: Any,
    asked: RunSettings,
    store: Path,
    json_lines: bool,
    at_once: int,
    slurm: str | None = None,
    shared: bool = False,
    told: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Make the runs of a plan. `running` and `report` are the modules of its evaluation. `shared`: in one workspace.
    `told`: what the report takes beside the results.

    When every run has its result already, the results are shown on any machine.
    """
    from pgo_agent.evals.runner import parallel
    from pgo_agent.evals.runner import slurm as jobs

    with runner.faults(json_lines):
        how = jobs.parameters(slurm) if slurm else {}
        if results.missing and not slurm:  # a job's node has the GPU
            running.check(results, asked)

    def go(opened: Any, emit: Any) -> int:
        if slurm and results.missing:
            code = jobs.run(at_once, how, results, opened, emit)
        elif at_once > 1 and len(results.missing) > 1:
            code = parallel.run(at_once, results, opened, emit, json_lines, shared)
        else:
            code = running.run(results, asked, opened, emit)
        return int(report.finish(results, json_lines, code, **told))

    runner.run(
        json_lines,
        store,
        True,
        go,
        lambda: report.show(results, **told),
        "this very command",
    )


@evals.command(
    "field",
    epilog="Exit codes: 0 every kernel reached a target, 1 one did not, 2 usage, 3 environment, 130 interrupted.",
)
@with_settings(Command.PLAN)
def eval_field(
    names: Annotated[
        list[str] | None, typer.Argument(help="Only kernels with one of these in their name, or of this package.")
    ] = None,
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where targets, plan and rows go.")] = Path("field"),
    optimizer: Annotated[str, typer.Option(help="Who proposes: embedded, or as --model takes it.")] = "embedded",
    candidates: Annotated[int, typer.Option(min=1, help="Of each kernel, on a GPU.")] = 16,
    compile_reference: Annotated[
        bool, typer.Option(help="On a GPU, time torch.compile of each reference beside its kernel.")
    ] = True,
    check: Annotated[bool, typer.Option(help="Put each target through the gate without a GPU.")] = True,
    at_once: AtOnceOption = 1,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
    json_lines: JsonOption = False,
) -> None:
    """Take kernels of public packages from an ordinary program that calls them to a target, and to a gain.

    The packages are named in evals/field/requirements.txt; what is not installed is said to be. Without a GPU targets
    are made and checked; with one they are optimized, too, each run with its row, as `eval nightly` makes it. The same
    command goes on where it was ended.
    """
    from pgo_agent.evals.field import report, run, suite
    from pgo_agent.evals.nightly import run as nightly

    with runner.faults(json_lines):
        kernels = suite.read(names or [])
        if not optimizer.startswith("replay:"):  # a recording is of a target, and they come first
            nightly.check_optimizer(optimizer, "")
        made = run.targets(kernels, folder, at_once, check, asked, None if json_lines else report.tell)
        shown = report.FieldReport(made, folder)
        if not (shown.ready and run.measures(asked)):
            raise typer.Exit(shown.end(json_lines))
        plan = run.plan(shown.ready, folder, optimizer, candidates, compile_reference)
        night = nightly.opened(folder / run.ROWS, plan)
    _run_plan(nightly, shown, night, asked, store, json_lines, at_once)


@evals.command(
    "problems",
    epilog="Exit codes: 0 every problem became a target that is right, 1 one did not, 2 usage, 3 environment.",
)
@with_settings(Command.PLAN)
def eval_problems(
    names: Annotated[list[str] | None, typer.Argument(help="Only problems with one of these in their name.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file for the rows.")] = None,
    *,
    asked: RunSettings,
) -> None:
    """Take models in KernelBench's form to targets, and have judged what PyTorch's compiler writes for them.

    No GPU is used, and nothing is measured. The problems are in evals/problems/.
    """
    from pgo_agent.evals.problems import run

    with runner.faults():
        raise typer.Exit(run.main(names or [], output, asked.sandbox))


@evals.command(
    "compare", epilog="Exit codes: 0 nothing became slower, 1 something did, or fails now, 2 usage, 3 environment."
)
def eval_compare(
    before: Annotated[Path, typer.Argument(help="Rows, as `eval nightly` writes them.")],
    after: Annotated[Path, typer.Argument(help="Later rows.")],
    effect: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least part by which something must be slower, to count.")
    ] = 0.02,
    everything: Annotated[bool, typer.Option("--all", help="Show cases without a difference, too.")] = False,
    json_lines: JsonOption = False,
) -> None:
    """Find what became slower between two files of rows.

    Code that did not change is not tested. Of the rest, raw samples are compared by Mann and Whitney's test, each round
    divided by a side whose code is the same in both, with Holm's correction for all that is tested.
    """
    from pgo_agent.evals.regressions import report

    with runner.faults(json_lines):
        raise typer.Exit(report.main(before, after, effect, everything, json_lines))


@evals.command("site", epilog="Exit codes: 0 written, 2 usage, 3 environment.")
def eval_site(
    rows: Annotated[
        list[Path], typer.Argument(help="Files of rows, as in evals/results; of `eval field` targets.jsonl, too.")
    ],
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where the pages and results.json go.")],
) -> None:
    """Write the leaderboard of rows as pages that open from a file: no server, no scripts, nothing loaded.

    An overview, a page for each kernel with its trend, searches, winner and evidence, kernels of public packages in a
    section of their own, the gate's rates, and the timer against itself; results.json has the same for programs.
    """
    from pgo_agent.evals.leaderboard import site

    with runner.faults():
        raise typer.Exit(site.main(rows, folder))
