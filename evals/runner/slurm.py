"""Makes the runs of a plan by jobs of a Slurm cluster: each is this very command, with a workspace of its own.

As `parallel.py`, with submitit in place of processes of this machine. The workspace must lie where all nodes see it:
which job makes which run is settled by the file of results. A job that is preempted, or whose time is over, leaves its
run to the others, or to this command when it is given again.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.run.events import Emit, Event, Phase
from pgo_agent.agent.run.record.store import Store
from pgo_agent.evals.runner.parallel import FOLDER
from pgo_agent.evals.runner.results import Results
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

LOOK = 2.0  # seconds between looks at the jobs
GENERAL = frozenset({"timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node", "name"})
HINT = "write it as --slurm partition=gpu,gpus_per_node=1,timeout_min=240; cluster=local tries it on this machine"


def parameters(text: str) -> dict[str, str | int]:
    """Return what a job asks for. `text`: NAME=VALUE,...; names of sbatch's options, or submitit's general ones.

    Raises UsageFault for another form.
    """
    result: dict[str, str | int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise UsageFault(f"--slurm: '{part}' is no NAME=VALUE", HINT)
        full = name if name in GENERAL or name == "cluster" else f"slurm_{name}"
        result[full] = int(value) if value.strip().isdigit() else value.strip()
    return result


def run(count: int, how: Mapping[str, str | int], results: Results[Any], store: Store, emit: Emit) -> Exit:
    """Make every run that has no result yet, by at most `count` jobs. Gives DONE, or why a run has none.

    Raises EnvironmentFault where submitit or Slurm is missing. After Ctrl-C the jobs are cancelled.
    """
    count = min(count, len(results.missing))
    executor = _executor(store.root / "slurm", dict(how))
    places = [_workspace(store, str(n + 1)) for n in range(count)]
    with store.active(f"of {count} jobs"):
        jobs = [executor.submit(make, _words(place), str(Path.cwd())) for place in places]
        emit(Event(Phase("runs", doing=f"{count} jobs make the runs of {results.file}: {', '.join(_ids(jobs))}")))
        try:
            codes = [_code(job) for job in _ended(jobs, emit)]
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
    results.read_again()
    if not results.missing:
        return Exit.DONE
    return next((Exit(c) for c in codes if c in [*Exit] and c), Exit.ENVIRONMENT)


def make(words: list[str], folder: str) -> int:
    """Run the command in a folder and return its exit status: what a job does."""
    return subprocess.run(
        [sys.executable, "-m", "pgo_agent.agent.cli.main", *words], cwd=folder, check=False
    ).returncode


def _words(workspace: Path) -> list[str]:
    return [*sys.argv[1:], "--slurm", "", "--at-once", "1", "--store", str(workspace)]  # the last of an option counts


def _workspace(store: Store, name: str) -> Path:
    place = (store.root / FOLDER / name).resolve()
    store.contents.lend(place)
    return place


def _executor(folder: Path, how: dict[str, str | int]) -> Any:
    try:
        import submitit
    except ImportError:
        raise EnvironmentFault(
            "--slurm needs submitit, which is not installed", "pip install 'pgo-agent[slurm]'"
        ) from None
    cluster = how.pop("cluster", "slurm")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=str(cluster))
        executor.update_parameters(**({"name": "pgo-agent"} | how))
    except RuntimeError as e:
        raise EnvironmentFault(f"no Slurm here: {e}", "run it on a login node, where `sbatch` is; or " + HINT) from None
    except (TypeError, NameError, ValueError) as e:
        raise UsageFault(f"--slurm: {e}", HINT) from None
    return executor


def _ids(jobs: list[Any]) -> list[str]:
    return [str(job.job_id) for job in jobs]


def _ended(jobs: list[Any], emit: Emit) -> list[Any]:
    """Wait for all jobs, and say whenever one changes its state."""
    said: dict[str, str] = {}
    while True:
        states = {str(job.job_id): str(job.state) for job in jobs}
        if states != said:
            emit(Event(Phase("runs", doing=f"jobs: {', '.join(f'{i} {s.lower()}' for i, s in states.items())}")))
            said = states
        if all(job.done() for job in jobs):
            return jobs
        time.sleep(LOOK)


def _code(job: Any) -> int:
    """Return the exit status of a job's command; that of the environment where it left none."""
    try:
        return int(job.result())
    except Exception:  # submitit's own: killed, preempted, or its node failed; the log says which
        return int(Exit.ENVIRONMENT)
