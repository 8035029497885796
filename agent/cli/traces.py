"""Commands about traces of tritonparse: `trace`, and runs for the kernels of one. Heavy imports wait for them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.run.settings import RunSettings

if TYPE_CHECKING:
    from pgo_agent.agent.commands.traces.optimize_traced import Series
    from pgo_agent.agent.run.events import Emit
    from pgo_agent.agent.run.record.store import Store

FromTrace = Annotated[
    Path | None,
    typer.Option("--from-trace", metavar="TRACE", help="Targets of the kernels in a trace that take most time."),
]
Top = Annotated[int, typer.Option(help="With --from-trace: so many kernels, under one budget.", min=1)]


def optimize(trace: Path, top: int, asked: RunSettings, store: Path, json_lines: bool) -> None:
    """Make the runs of a trace, and exit."""
    from pgo_agent.agent.commands.traces.optimize_traced import series

    made = list["Series"]()

    def go(record: "Store", emit: "Emit") -> int:
        made.append(series(trace, top, asked, record, emit))
        return made[0].go()

    runner.run(json_lines, store, True, go, lambda: made[0].tell())


def trace(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM", help="What to run: -- python train.py, -- pytest t.py.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the trace.")] = Path("trace"),
    force: Annotated[bool, typer.Option("--force", help="Write over a trace that is there.")] = False,
    python: Annotated[
        str, typer.Option(help="Interpreter with your torch and triton, and tritonparse.")
    ] = sys.executable,
) -> None:
    """Run a program on this machine's GPU, record what it launches, and rank its kernels.

    The program runs as it is, not in the sandbox. The trace is tritonparse's, which comes with the extra `trace`,
    with the GPU's time of each kernel by torch.profiler. `init --from-trace` and `optimize --from-trace` go on from
    there.
    """
    from pgo_agent.agent.commands.traces import record

    with runner.faults():
        record.start(program or [], output, force, python)
