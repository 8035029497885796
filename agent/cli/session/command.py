"""The command `session`. Heavy imports wait until there is a terminal."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import (
    WORKSPACE,
    CaseOption,
    DeviceOption,
    DropWrongOption,
    GpuSecondsOption,
    GpusOption,
    InsightOption,
    JudgeOption,
    ModelOption,
    MoneyOption,
    PromptTokensOption,
    PythonOption,
    SandboxOption,
    SeedOption,
    StoreOption,
    TokensOption,
)
from pgo_agent.agent.run.settings import PROMPT_TOKENS


def session(
    what: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A target, or a run to go on with, or 'last'.")],
    device: DeviceOption = None,
    candidates: Annotated[int | None, typer.Option(min=1, help="Budget: candidates. Default: 12.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Budget: minutes of wall clock. Default: 20.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Candidates of one generation.")] = None,
    patience: Annotated[int, typer.Option(min=1, help="Generations without a win before the run ends.")] = 3,
    judge: JudgeOption = "auto",
    gpus: GpusOption = None,
    case: CaseOption = None,
    drop_wrong: DropWrongOption = False,
    sandbox: SandboxOption = "auto",
    model: ModelOption = None,
    tokens: TokensOption = None,
    money: MoneyOption = None,
    gpu_seconds: GpuSecondsOption = None,
    insight: InsightOption = "all",
    seed: SeedOption = 0,
    prompt_tokens: PromptTokensOption = PROMPT_TOKENS,
    python: PythonOption = sys.executable,
    store: StoreOption = WORKSPACE,
) -> None:
    """Optimize at the terminal: watch a run live, and steer it.

    Ctrl-C pauses and loses nothing. A run that is continued keeps its options: /budget changes its budgets.
    """
    with runner.faults():
        runner.must_be_a_terminal(f"without one: {_without_terminal(what)}")
    from pgo_agent.agent.cli.session import start
    from pgo_agent.agent.run.settings import RunSettings

    wishes = RunSettings(
        device, candidates or 12, width, 20.0 if minutes is None else minutes, patience, sandbox, judge
    )
    wishes = replace(wishes, cases=tuple(case or ()), python=python, models=tuple(model or ()), insight=insight)
    wishes = replace(wishes, tokens=tokens, money=money, gpu_seconds=gpu_seconds, seed=seed)
    wishes = replace(wishes, prompt_tokens=prompt_tokens, gpus=gpus, drop_wrong=drop_wrong)
    with runner.faults(), runner.opened(store, create=True) as opened:
        raise typer.Exit(start.start(what, wishes, opened))


def _without_terminal(what: str) -> str:
    """The command that does the same."""
    from pgo_agent.agent.run.target_file import locate

    begins = Path(what).suffix == ".py" or locate(Path(what)).exists()
    return f"pgo-agent {'optimize' if begins else 'resume'} {shlex.quote(what)}"
