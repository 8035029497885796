"""`pgo-agent init FILE`: writes the skeleton from the text of a file; `--check` lists what a target lacks.

Relies on `check.py` to put a target through the gate as its own candidate. It never changes the file that it reads.
"""

import importlib.machinery
import sys
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands.init import infer as guessing
from pgo_agent.agent.commands.init import outcome, render
from pgo_agent.agent.commands.init import scan as reading
from pgo_agent.agent.commands.init.outcome import Outcome
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault


@dataclass(frozen=True)
class Written:
    """What was written, and what was found and guessed for it."""

    path: Path
    kernels: tuple[str, ...]
    launcher: str
    tensors: dict[str, str]  # name -> shape
    plain: dict[str, object]  # name -> value, None: to write
    outputs: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """Return what was found and guessed, to be printed."""
        facts = {
            "kernels": ", ".join(self.kernels),
            "launcher": self.launcher,
            "tensors": ", ".join(f"{n} {shape}" for n, shape in self.tensors.items()) or "none found",
            "values": ", ".join(f"{n} = {'?' if v is None else v}" for n, v in self.plain.items()) or "none",
            "results": ", ".join(self.outputs) or "none found",
        }
        about = [f"{name:9} {text}" for name, text in facts.items()]
        return Outcome((outcome.written(self.path, about, self.notes),))


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


def ready(path: Path) -> bool:
    """Return whether nothing is left to write; prints on stderr what is."""
    to_write, guessed = outcome.marks(path)
    for line in to_write:
        print(f"to write: {path}, {line}", file=sys.stderr)
    if guessed and not to_write:
        print(
            f"{len(guessed)} lines of {path} are still marked as guessed: delete the marks of those that you looked at",
            file=sys.stderr,
        )
    return not to_write
