"""The graph of a traced kernel that PyTorch's compiler wrote: a reference that is independent of the kernel.

A launch's stack names the file of Inductor's cache that launched it. Where that is here and holds the graph fragment of
the kernel, `init --inductor` writes the target. It reads text and runs nothing of it.
"""

from pathlib import Path

from pgo_agent.agent.commands.init.inductor import command
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault


def holds(file: Path, kernel: str) -> bool:
    """Whether a file is here, and is of Inductor's cache, with the graph fragment of a kernel."""
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
    except (OSError, ValueError):
        return False
    return "async_compile.triton(" in text and kernel in text and "Graph fragment" in text


def write(file: Path, kernel: str, to: Path, settings: RunSettings, notes: list[str]) -> list[Path]:
    """Write the target of a kernel; none, with a note, where no reference can be made of its graph."""
    try:
        return [Path(t.file) for t in command.write(str(file), kernel, to, True, settings).targets]
    except UsageFault as e:
        notes.append(f"its graph, in {file}, gives no reference: {e.message}")
        return []
