"""`pgo-agent eval field`: targets for the kernels of public packages, and a plan for `eval nightly` that measures them.

The folder that is named holds `targets/`, `targets.jsonl` (a line for each kernel), `plan.toml` and `rows.jsonl`. What
is there is kept: the same command goes on, and with a GPU it measures.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pgo_agent.agent.run import judge_choice
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.evals.field.suite import FieldKernel
from pgo_agent.evals.field.targets import FieldTarget, make
from pgo_agent.evals.nightly import plan as nightly
from pgo_agent.evals.nightly import run as nightly_run
from pgo_agent.evals.nightly.row import Row
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.threads import threads

SUITE = "field"
ROWS, TARGETS = "rows.jsonl", "targets.jsonl"
MINUTES, GPU_SECONDS = 15.0, 300.0  # of the run of one kernel


def targets(
    kernels: Sequence[FieldKernel],
    folder: Path,
    at_once: int,
    check: bool,
    settings: RunSettings,
    tell: Callable[[FieldTarget], None] | None,
) -> list[FieldTarget]:
    """Make the targets that are not there yet, so many at once, and return all of `kernels`."""
    (folder / "targets").mkdir(parents=True, exist_ok=True)
    file = folder / TARGETS
    known = read(file)

    def one(kernel: FieldKernel) -> FieldTarget:
        made = make(kernel, (folder / "targets").resolve(), check, settings)
        if tell:
            tell(made)
        return made

    missing = [k for k in kernels if k.name not in known or known[k.name].version != k.version]
    with threads(at_once) as pool:
        for made in pool.map(one, missing):
            known[made.kernel] = made
            file.write_text("".join(json.dumps(t.as_json()) + "\n" for t in known.values()))
    return [known[k.name] for k in kernels]


def read(file: Path) -> dict[str, FieldTarget]:
    """Return kernel -> what is known of its target. Raises UsageFault for a line that is no target."""
    found = {}
    for n, line in enumerate(file.read_text().splitlines() if file.exists() else (), 1):
        try:
            fields = {name: value for name, value in json.loads(line).items() if name != "what"}
            made = json_codec.decoded(FieldTarget, fields)
        except (AttributeError, ValueError) as e:
            raise UsageFault(f"{file}, line {n}: it is no target: {e}", "`pgo-agent eval field` writes it") from None
        found[made.kernel] = made
    return found


def of_files(files: Iterable[Path]) -> list[FieldTarget]:
    """Return what several files hold; of a kernel in several, what the last one says. Raises UsageFault."""
    found: dict[str, FieldTarget] = {}
    for file in files:
        found |= read(file)
    return list(found.values())


def holds_targets(file: Path) -> bool:
    """Whether a file is one that `targets` wrote."""
    try:
        with file.open(encoding="utf-8") as lines:
            return lines.readline().startswith('{"what": "target"')
    except (OSError, UnicodeDecodeError):
        return False


def plan(
    made: Sequence[FieldTarget], folder: Path, optimizer: str, candidates: int, compile_reference: bool
) -> nightly.NightlyPlan:
    """Write the plan of a nightly of the targets that are ready; return it."""
    values = {
        "targets": [str((folder / "targets" / f"{t.kernel}.py").resolve()) for t in made if t.ready],
        "optimizers": [optimizer],
        "seeds": [1],
        "candidates": candidates,
        "patience": candidates,
        "minutes": MINUTES,
        "gpu_seconds": GPU_SECONDS,
        nightly.COMPILE: compile_reference,
        "suite": SUITE,
    }
    file = folder / "plan.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return nightly.read(file)


def measures(settings: RunSettings) -> bool:
    """Whether a GPU is used. Raises what `judge_choice.choose` raises."""
    gpu, _ = judge_choice.choose(settings)
    if gpu is None:
        return False
    gpu.close()
    return True


def rows(folder: Path) -> dict[str, Row]:
    """Return kernel -> the row of its run, of those that were measured."""
    file = folder / ROWS
    if not file.exists():
        return {}
    written = nightly_run.opened(file, nightly.read(folder / "plan.toml")).rows()
    return {r.kernel: r for r in written}
