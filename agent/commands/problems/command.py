"""`pgo-agent init PROBLEM`: writes a target for a problem that somebody else wrote, and prints what came of it.

It tells problems from files with kernels by what they define. The problem itself is never changed, and what it holds
runs in the box alone.
"""

from pathlib import Path

from pgo_agent.agent.commands.init import command, outcome, program
from pgo_agent.agent.commands.init.outcome import Outcome
from pgo_agent.agent.commands.problems import definition, definition_target, kernelbench, written
from pgo_agent.agent.run.settings import DEFAULT_DEVICE, RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.trace_and_compile import trace
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.bundle.torch_ops import OPS
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.temporary_folders import temporary_folder

SAID = 300  # characters of an error
# Operators that a model calls here in place of one kernel which PyTorch has on a GPU: as a baseline they would be slow.
ATTENTION = "scaled_dot_product_attention, which a GPU runs as one kernel, and this machine as several"
SPLIT = {"aten._safe_softmax.default": ATTENTION}
COUNTED = """
for case in (*CASES.values(), *SMALL.values(), *HELD_OUT.values()):
    flops(case)
"""


def recognised(file: str) -> bool:
    """Whether a file holds a problem. A file that is not there, or is no text, is left to who reads it next."""
    path = Path(file)
    if not path.is_file():
        return False
    if path.suffix == ".json":
        return definition.recognised(target.text(path))
    return path.suffix == ".py" and kernelbench.recognised(target.text(path), str(path))


def write(
    file: str, workloads: Path | None, solution: Path | None, to: Path | None, force: bool, settings: RunSettings
) -> Outcome:
    """Write the target of a problem.

    Raises UsageFault for a problem that does not run, and for an output that exists.
    """
    path = Path(file)
    to = to or Path(f"{path.stem}_target.py")
    command.refuse(to, path, force)
    if path.suffix == ".json":
        lines, notes = _definition(path, workloads, solution, to, settings), list[str]()
    elif workloads or solution:
        raise UsageFault("--workloads and --solution belong to a definition of flashinfer-bench", "name its JSON file")
    else:
        lines, notes = _model(path, to, settings)
    return Outcome((outcome.written(to, lines, notes),))


def _model(path: Path, to: Path, settings: RunSettings) -> tuple[list[str], list[str]]:
    problem = kernelbench.read(target.text(path))
    inside, device = box.choose(settings.sandbox, settings.python), devices.find(settings.device or DEFAULT_DEVICE)
    looked = written.look(inside, problem)
    _save(written.text(problem, looked, path.name), to)
    if why := _unheld(inside, device, to):
        to.unlink()
        hint = "put the part of the model that you want into a file of its own, in the same form, and give that"
        raise UsageFault(f"no plan can hold what the model does: {why}", hint)
    sizes = ", ".join(f"{n} = {v}" for n, v in problem.sizes.items())
    lines = [
        "a problem of KernelBench's form: the kernel as shipped is PyTorch's own",
        f"sizes    {sizes or 'none that may change'}",
        f"weights  {', '.join(looked.weights) or 'none'}",
    ]
    return lines, [*written.notes(problem, looked)]


def _definition(
    path: Path, workloads: Path | None, solution: Path | None, to: Path, settings: RunSettings
) -> list[str]:
    of = definition.definition(path)
    listed = definition.workloads(workloads, of) if workloads else []
    solved = definition.solution(solution, of) if solution else None
    _save(definition_target.text(of, listed, solved, path), to)
    inside, device = box.choose(settings.sandbox, settings.python), devices.find(settings.device or DEFAULT_DEVICE)
    to_write, _ = outcome.marks(to)
    if not to_write and (why := program.error_of(inside, device.key, COUNTED, to)):
        _save(definition_target.text(of, listed, solved, path, " ".join(why.split())[:60]), to)
    if not (to_write or solved) and (asks := _unheld(inside, device, to)):
        to.unlink()
        raise UsageFault(
            f"no plan can hold the reference of {of.name} as a kernel: {asks}", "give a --solution in Triton"
        )
    by = f"of the solution {solved.name}" if solved else "PyTorch's own: the reference"
    return [
        f"a definition of flashinfer-bench: the kernel as shipped is {by}",
        f"axes     {', '.join(n if v is None else f'{n} = {v}' for n, v in of.axes.items())}",
        f"cases    {f'{len(listed)} workloads' if listed else 'guessed, for no --workloads are given'}",
    ]


def _unheld(inside: box.Box, device: devices.Device, to: Path) -> str:
    """Return why the launcher of a target cannot be recorded as a plan; empty where it can."""
    subject = target.read(to)
    with temporary_folder("problem") as folder:
        found = trace(inside, ContentStore(folder), subject, device, subject.source, {"SMALL": None}, 1)
    if "error" in found:
        return str(found["error"]["message"])
    entries = [e for by_case in found["traced"].get("SMALL", {}).values() for e in by_case]
    if failed := next((e["error"] for e in entries if "error" in e), None):
        return str(failed["message"])[:SAID]
    ops = {str(s["op"]) for e in entries for s in e["plan"]["steps"] if "op" in s} - OPS
    return next(
        (SPLIT.get(op, f"it calls {op}, which is not on the list of torch operators") for op in sorted(ops)), ""
    )


def _save(text: str, to: Path) -> None:
    target.parse(text, str(to))
    command.save(text, to)
