"""`pgo-agent eval nightly`: makes the runs of a plan on a GPU, and writes a row of each as it ends.

Relies on `evals/runner/` for the runs and their file. A night is of one commit, and of a GPU: without one nothing would
be measured, so nothing is begun. A run whose target fails has its row, too; what the machine or a server of models is
at fault for ends the night, and the same command goes on.
"""

from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.exit_codes import Exit
from pgo_agent.agent.llm.models import named
from pgo_agent.agent.llm.models.types import Asker
from pgo_agent.agent.run import judge_choice, target_file
from pgo_agent.agent.run.events import Emit
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.agent.version import commit_of, short
from pgo_agent.evals.nightly import from_run, row
from pgo_agent.evals.nightly.plan import NightlyPlan, NightlyRun, model
from pgo_agent.evals.runner import results as planned
from pgo_agent.evals.runner import run as running
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject

MISSING = "no GPU is used here: a nightly is made of measurements, and nothing would be measured"


@dataclass(frozen=True)
class Rows(planned.Results[NightlyRun]):
    """The file of rows of one night."""

    plan: NightlyPlan

    def rows(self) -> list[row.Row]:
        """Return the rows of the runs that have ended, in the order of the plan."""
        return [row.parse(line, self.file.name) for w in self.plan.runs if (line := self.ended(w))]


def opened(file: Path, plan: NightlyPlan) -> Rows:
    commit = commit_of()
    return Rows(file, plan, "a nightly", {"commit": commit}, row.problem)


def check(rows: Rows, settings: RunSettings) -> None:
    """Check all that can be checked before hours of a GPU are spent.

    Raises UsageFault for a target or an optimizer that cannot be one, and for rows of another plan, commit, text of a
    target, or GPU; EnvironmentFault without a GPU.
    """
    _one_commit(rows)
    for name in rows.plan.targets:
        subject = target.read(target_file.locate(Path(name)))
        _one_text(rows, name, subject.digest)
        for optimizer in rows.plan.optimizers:
            check_optimizer(optimizer, name, subject)
    gpu, device = judge_choice.choose(settings)
    if gpu is None:
        raise EnvironmentFault(MISSING, "take a machine with one, or name one elsewhere with --judge spool:DIR")
    gpu.close()
    if gpus := {r.gpu for r in rows.rows()} - {device.name}:
        problem = f"{rows.file} was begun on {', '.join(sorted(gpus))}, and this is {device.name}"
        raise UsageFault(problem, f"a night is of one GPU: {planned.OTHER_FILE}")


def check_optimizer(optimizer: str, name: str, subject: target.Target | None = None) -> None:
    """Raise UsageFault where an optimizer cannot be one: no key for its server, no folder for a relay."""
    asker = Asker("", subject.name if subject else "", subject.digest if subject else "", lambda *_, **__: None)
    named(model(optimizer, name), asker)


def _one_commit(rows: Rows) -> None:
    begun, current = str(rows.lines[0].get("commit") if rows.lines else rows.head["commit"]), str(rows.head["commit"])
    if begun != current:
        problem = f"{rows.file} was begun at commit {short(begun)}, and this is {short(current)}"
        raise UsageFault(problem, f"a night is of one commit: check that one out again, or {planned.OTHER_FILE}")


def _one_text(rows: Rows, name: str, digest: str) -> None:
    if any(r.digest != digest for r in rows.rows() if r.kernel == Path(name).stem):
        problem = f"{name} was edited since {rows.file} was begun"
        raise UsageFault(problem, f"a night is of one text of each target: put it back, or {planned.OTHER_FILE}")


def run(rows: Rows, settings: RunSettings, store: Store, emit: Emit) -> Exit:
    """Make every run that has no row yet. Gives WAITING when a reply or a verdict is not there yet, else DONE.

    Raises what runs raise, but for what a target is at fault for.
    """

    def describe(opened: Store, finished: Run, wanted: NightlyRun) -> JsonObject:
        line = from_run.of(opened, finished, rows.plan, wanted).as_json()
        return {name: value for name, value in line.items() if name not in ("what", "run", *wanted.named)}

    return running.run(rows, settings, store, emit, describe, failures=True)
