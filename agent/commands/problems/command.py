"""`pgo-agent init PROBLEM`: writes a target for a problem that somebody else wrote, and prints what came of it.

It tells problems from files with kernels by what they define. The problem itself is never changed, and runs in the box.
"""

from pathlib import Path

from pgo_agent.agent.commands.init import command
from pgo_agent.agent.commands.problems import kernelbench, written
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.isolation import box


def recognised(file: str) -> bool:
    """Whether a file holds a problem. A file that is not there, or is no text, is left to who reads it next."""
    path = Path(file)
    return path.suffix == ".py" and path.is_file() and kernelbench.recognised(target.text(path), str(path))


def write(file: str, to: Path | None, force: bool, settings: RunSettings) -> Path:
    """Write the target of a problem, and print what it is; return its path.

    Raises UsageFault for a problem that does not run, and for an output that exists.
    """
    path = Path(file)
    to = to or Path(f"{path.stem}_target.py")
    command.refuse(to, path, force)
    problem = kernelbench.read(target.text(path))
    looked = written.look(box.choose(settings.sandbox, settings.python), problem)
    text = written.text(problem, looked, path.name)
    target.parse(text, str(to))
    command.save(text, to)
    _print(to, [f"{n} = {v}" for n, v in problem.sizes.items()], looked.weights, list(written.notes(problem, looked)))
    return to


def _print(to: Path, sizes: list[str], weights: tuple[str, ...], notes: list[str]) -> None:
    from pgo_agent.agent.views import summary

    out = summary.output()
    _, guessed = command.marks(to)
    lines = [
        "a problem of KernelBench's form: the kernel as shipped is PyTorch's own",
        f"sizes    {', '.join(sizes) or 'none that may change'}",
        f"weights  {', '.join(weights) or 'none'}",
        *(f"note: {note}" for note in notes),
        f"{to} is written: nothing is left to write, {len(guessed)} guessed lines to look at",
        f"then: pgo-agent init --check {to}",
    ]
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
