"""Finds the file of a target by its path or the name of a shipped kernel, and refuses it if it changed."""

from importlib import resources
from pathlib import Path

from pgo_agent.agent.run.record.run import Run
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import TargetMoved


def locate(file: Path) -> Path:
    """Return the file, or the kernel of that name that ships with the project (`fa_fwd`, `kernels/fa_fwd.py`)."""
    if file.exists() or (file.parent.name not in ("", "kernels")):
        return file
    shipped = Path(str(resources.files("pgo_agent.kernels").joinpath(f"{file.stem}.py")))
    return shipped if shipped.is_file() else file


def unmoved(run: Run) -> target.Target:
    """Return the target of a run as it is now. Raises TargetMoved if it is not what the run began with."""
    current = target.read(Path(run.target))
    if current.digest != run.digest:
        raise TargetMoved(f"{run.target} changed since run {run.id} began", "start a new run, or restore the file")
    return current
