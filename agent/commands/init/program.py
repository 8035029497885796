"""Runs what a user already has that calls a kernel (a test, a benchmark, a line) in the box, and reads what was seen.

The program runs on fake CUDA tensors: no GPU is needed, and nothing is computed. The user's repository is copied into
the box. Relies on `sandbox/tracer/user_program.py`, which runs inside; its answer is untrusted and read by `seen.py`.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands.init.seen import Seen
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.errors import BadBundle, UsageFault
from pgo_agent.sandbox.isolation.box import Box, Ran
from pgo_agent.sandbox.packages_folder import NAMES, packages_folder, within
from pgo_agent.sandbox.temporary_folders import temporary_folder

SECONDS = 300.0
MOST_FILES, MOST_BYTES = 3000, 64 << 20
_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_SKIPPED = frozenset({"node_modules", "build", "dist", "__pycache__", *NAMES})
HINT = "for example: pgo-agent init FILE -- python test.py, -- pytest test.py::test_it, or --call 'f(torch.ones(8))'"


@dataclass(frozen=True)
class Program:
    """What to run: a `script`, a `module`, `pytest`, or statements (`call`), with its arguments."""

    kind: str
    args: tuple[str, ...]


def of_command(words: Sequence[str]) -> Program:
    """Return the program of a command line. Raises UsageFault for what is no Python program."""
    first, rest = Path(words[0]).name, list(words[1:])
    if first in ("pytest", "py.test"):
        return Program("pytest", tuple(rest))
    if first.startswith("python") and rest[:1] == ["-m"] and rest[1:2] == ["pytest"]:
        return Program("pytest", tuple(rest[2:]))
    if first.startswith("python") and rest[:1] == ["-m"] and len(rest) > 1:
        return Program("module", tuple(rest[1:]))
    if first.startswith("python") and rest and not rest[0].startswith("-"):
        return Program("script", tuple(rest))
    raise UsageFault(f"this is run by no Python: {shlex.join(words)}", HINT)


def texts(program: Program) -> Iterator[str]:
    """Give the texts of a program that are to be read beforehand: its statements, or the files that it names."""
    if program.kind == "call":
        yield from program.args
    for path in (Path(word.partition("::")[0]) for word in program.args if program.kind != "call"):
        if path.suffix == ".py" and path.is_file():
            yield path.read_text(errors="replace")


def watch(box: Box, device: str, program: Program, file: Path, launcher: str) -> tuple[Seen, Path]:
    """Run the program; return what it did with the kernels of `file`, and the folder that was copied into the box.

    `launcher`: the function to watch; empty: the one whose results are checked.

    Raises UsageFault when it launches none of them, with what ended it.
    """
    here, installed = Path.cwd().resolve(), packages_folder(file.resolve()) is not None
    root = repository(here / "_") if installed else repository(file)
    base = root if here.is_relative_to(root) else here if root.is_relative_to(here) else root
    with temporary_folder("init") as folder:
        (folder / "out").mkdir()
        _copy(base, folder / "repo")
        inside = f"repo/{file.resolve().relative_to(base)}" if not installed else str(file.resolve())
        cwd = f"repo/{here.relative_to(base)}" if here.is_relative_to(base) else "repo"
        (folder / cwd).mkdir(parents=True, exist_ok=True)
        request = {
            "device": device,
            "watched": [inside],
            "packages": [_package(file.resolve()) if installed else "repo"],
            "launcher": launcher,
            "cwd": cwd,
            "program": program.kind,
            "args": program.args,
        }
        seen, ran = _seen(box, folder, request)
        if seen is None:
            why = f"it ran for over {SECONDS:.0f} s" if ran.timed_out else ran.output.strip()[-1500:]
            raise UsageFault(f"the program left no answer: {why}", HINT)
    if not (seen.calls or seen.bare):
        raise _nothing(seen, file, ran)
    return seen, base


def _nothing(seen: Seen, file: Path, ran: Ran) -> UsageFault:
    """Return what to say of a program that launched nothing: what ended it comes first."""
    of = file.name if file.name != "__init__.py" else f"the package {file.parent.name}"
    noted = "".join(f"; {note}" for note in seen.notes)
    if not seen.error:
        return UsageFault(f"the program called no function of {of} that launches kernels{noted}", HINT)
    module = re.search(r"No module named '([^']+)'", seen.error)
    advice = f"install {module[1]} for the interpreter that --python names" if module else "mend it, and run it again"
    said = f"\n{ran.output.strip()[-1500:]}".rstrip()
    ended = f"the program ended before it called a function of {of} that launches kernels: {seen.error}"
    return UsageFault(f"{ended}{noted}{said}", advice)


def error_of(box: Box, device: str, statements: str, file: Path) -> str:
    """Run statements that use what a file defines, on stand-in tensors; return the error that ended them, if any."""
    with temporary_folder("init") as folder:
        (folder / "out").mkdir()
        (folder / "tried.py").write_text(file.read_text(encoding="utf-8"))
        request = {"device": device, "watched": ["tried.py"], "packages": [], "launcher": "", "cwd": "."}
        seen, ran = _seen(box, folder, request | {"program": "call", "args": [statements]})
        return seen.error if seen else ran.output.strip()[-300:] or "it left no answer"


def _seen(box: Box, folder: Path, request: Mapping[str, object]) -> tuple[Seen | None, Ran]:
    """Run what a request names in the box; return what was seen, or None where no answer can be read."""
    (folder / "request.json").write_text(json.dumps(request))
    ran = box.run("pgo_agent.sandbox.tracer.user_program", folder, SECONDS)
    try:
        return json_codec.from_json(Seen, validate.answer(folder / "out" / "result.json")), ran
    except (BadBundle, OSError, ValueError, TypeError, KeyError):
        return None, ran


def _package(file: Path) -> str:
    """Return the folder of the installed package that a file is part of."""
    below = within(file)
    return str(file.parents[len(below) - 2]) if len(below) > 1 else str(file.with_suffix(""))


def outside(file: str, base: Path) -> Path | None:
    """Return the file here that a file in the box was copied from; None if there is none."""
    path = base / file.partition("/repo/")[2] if "/repo/" in file else Path(file)
    return path if path.is_file() else None


def repository(file: Path) -> Path:
    """Return the folder of the repository that a file is part of; its own folder if it is of none."""
    folders = [p for p in file.resolve().parents if any((p / mark).exists() for mark in _ROOT)]
    return folders[0] if folders else file.resolve().parent


def _copy(root: Path, to: Path) -> None:
    """Copy the Python files of a folder. Raises UsageFault where there are too many of them."""
    to.mkdir()
    size = 0
    for n, path in enumerate(_python(root)):
        size += path.stat().st_size
        if n >= MOST_FILES or size > MOST_BYTES:
            raise UsageFault(f"{root} holds over {MOST_FILES} Python files, or {MOST_BYTES >> 20} MiB of them", HINT)
        there = to / path.relative_to(root)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(path.read_bytes())


def _python(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "pgo-init-")) or path.name in _SKIPPED or path.is_symlink():
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            yield from _python(path)
        elif path.suffix == ".py":
            yield path
