"""`skill install`: writes the skill for coding agents into the folder where an agent looks for skills."""

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

NAME = "pgo-agent"
CLAUDE, CODEX = Path(".claude/skills"), Path(".agents/skills")
EXECUTABLE = ".py"


def install(folder: Path, force: bool) -> list[Path]:
    """Write the skill as a folder in `folder`, and return its files. Files that are alike are left as they are.

    Raises UsageFault where another text is in the way, EnvironmentFault where nothing can be written.
    """
    files = {folder / NAME / place: text for place, text in _files()}
    differing = [p for p, text in files.items() if p.exists() and p.read_bytes() != text]
    if differing and not force:
        raise UsageFault(f"{differing[0]} is there and differs", "give --force to write over it, or another --dir")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            path.chmod(0o755 if path.suffix == EXECUTABLE else 0o644)
        except OSError as e:
            raise EnvironmentFault(f"cannot write {path}: {e.strerror}", "make the folder writable") from None
    return list(files)


def _files() -> Iterator[tuple[str, bytes]]:
    yield from _under(resources.files("pgo_agent.skills").joinpath(NAME), "")


def _under(folder: Traversable, place: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _under(entry, f"{place}{entry.name}/")
        elif entry.is_file():
            yield f"{place}{entry.name}", entry.read_bytes()
