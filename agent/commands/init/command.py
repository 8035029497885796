"""`pgo-agent init`: writes the skeleton and prints what it found and guessed; `--check` lists what a target lacks.

Relies on `check.py` to put a target through the gate as its own candidate. It never changes the file that it reads.
"""

import importlib.machinery
import sys
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands.init import infer as guessing
from pgo_agent.agent.commands.init import render
from pgo_agent.agent.commands.init import scan as reading
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault


@dataclass(frozen=True)
class Written:
    """What `init` wrote, for a person to read."""

    path: Path
    kernels: tuple[str, ...]
    launcher: str
    tensors: dict[str, str]  # name -> shape
    plain: dict[str, object]  # name -> value, None: to write
    outputs: tuple[str, ...]
    notes: tuple[str, ...]


def write(file: str, launcher: str | None, to: Path | None, force: bool) -> Written:
    """Write the skeleton for a kernel in a file, or in an installed module by its dotted name.

    Raises UsageFault for an output that exists, and what `scan.read` raises; EnvironmentFault when it cannot be
    written.
    """
    path = located(file)
    scanned = reading.read(path, launcher)
    guesses = guessing.guess(scanned)
    to = to or Path(f"{path.stem}_target.py")
    refuse(to, path, force)
    text = render.write(scanned, guesses)
    target.parse(text, str(to))
    save(text, to)
    return Written(
        to,
        tuple(scanned.kernels),
        scanned.launcher.name,
        {a.name: f"({', '.join(a.dims)})" for a in guesses.arguments if a.dims is not None},
        {a.name: a.value for a in guesses.arguments if a.dims is None},
        tuple(o.name for o in guesses.outputs if o.reachable),
        tuple(_notes(scanned, guesses)),
    )


def refuse(to: Path, path: Path, force: bool) -> None:
    """Raise UsageFault for an output that exists, or that is `path` itself, which is read."""
    if to.resolve() == path.resolve():
        raise UsageFault(f"{to} is the file that is read, which is never changed", "name another file with -o")
    if to.exists() and not force:
        raise UsageFault(f"{to} is there already", "name another file with -o, or --force to write over it")


def save(text: str, to: Path) -> None:
    """Write a skeleton. Raises EnvironmentFault when it cannot be written."""
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as e:
        raise EnvironmentFault(f"cannot write {to}: {e.strerror}", "name another file with -o") from None


def located(file: str) -> Path:
    """Return a file, or the source of an installed module such as `liger_kernel.ops.rms_norm`; nothing is imported."""
    path = Path(file)
    if path.exists() or not all(part.isidentifier() for part in file.split(".")):
        return path
    where: list[str] | None = sys.path
    for part in file.split("."):  # each by itself: a folder without __init__.py asks for those that it lies in
        spec = importlib.machinery.PathFinder.find_spec(part, where)
        if spec is None:
            return path
        where = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec and spec.origin else path


def _notes(scanned: reading.ScannedFile, guesses: guessing.Guesses) -> list[str]:
    notes = [
        f"{n} only lies beside the file: the sandbox does not show it; copy what you need"
        for n in render.beside(scanned)
    ]
    if guesses.left_out:
        notes.append(f"left at their defaults: {', '.join(guesses.left_out)}")
    if guesses.changed:
        notes.append(f"the launch writes into its arguments {', '.join(guesses.changed)}: IN_PLACE names them")
    if guesses.dropped and scanned.launcher.name != "kernel":
        notes.append(
            f"returned as well, but not seen to come of what is stored to: {', '.join(guesses.dropped)}: not compared"
        )
    if guesses.unread:
        notes.append(
            f"only a run tells what configurations set {', '.join(guesses.unread)} to: name the values in LAUNCH_SPACE"
        )
    if not guesses.outputs:
        notes.append("nothing was found that the kernels store to: say what kernel() returns")
    return notes


def marks(path: Path) -> tuple[list[str], list[str]]:
    """Return the lines of a target to write, and those that were guessed. Raises TargetFault for missing names."""
    subject = target.read(path)
    lines = list(enumerate(target.text(subject.contract_path).splitlines(), 1))
    if subject.sidecar:
        lines += list(enumerate(subject.source.splitlines(), 1))
    marked = [[f"line {n}: {line.strip()}" for n, line in lines if f"  {mark}" in line] for mark in render.MARKS]
    return marked[0], marked[1]


def print_summary(written: Written) -> None:
    """Print what was found and guessed, and what comes next."""
    from pgo_agent.agent.views import summary

    out = summary.output()
    facts = {
        "kernels": ", ".join(written.kernels),
        "launcher": written.launcher,
        "tensors": ", ".join(f"{n} {shape}" for n, shape in written.tensors.items()) or "none found",
        "values": ", ".join(f"{n} = {'?' if v is None else v}" for n, v in written.plain.items()) or "none",
        "results": ", ".join(written.outputs) or "none found",
    }
    for name, text in facts.items():
        out.print(f"{name:9} {text}", markup=False, highlight=False, soft_wrap=True)
    for note in written.notes:
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    to_write, guessed = marks(written.path)
    out.print(
        f"{written.path} is written: {len(to_write)} lines to write, {len(guessed)} guessed ones to look at:",
        soft_wrap=True,
    )
    for line in to_write:
        out.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"then: pgo-agent init --check {written.path}", markup=False, highlight=False, soft_wrap=True)


def ready(path: Path) -> bool:
    """Return whether nothing is left to write; prints on stderr what is."""
    to_write, guessed = marks(path)
    for line in to_write:
        print(f"to write: {path}, {line}", file=sys.stderr)
    if guessed and not to_write:
        print(
            f"{len(guessed)} lines of {path} are still marked as guessed: delete the marks of those that you looked at",
            file=sys.stderr,
        )
    return not to_write
