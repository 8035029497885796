"""The file of a target: found by its path or the name of a shipped kernel, and refused where it changed."""

from importlib import resources
from pathlib import Path

from pgo_agent.agent.run.record.run import Run
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import TargetMoved


def locate(file: Path) -> Path:
    """The file, or the kernel of that name that ships with the project (`fa_fwd`, `kernels/fa_fwd.py`)."""
    if file.exists() or (file.parent.name not in ("", "kernels")):
        return file
    shipped = Path(str(resources.files("pgo_agent.kernels").joinpath(f"{file.stem}.py")))
    return shipped if shipped.is_file() else file


def unmoved(run: Run) -> target.Target:
    """A run's target as it stands. Raises TargetMoved where it is not what the run began with."""
    found = target.read(Path(run.target))
    if found.digest != run.digest:
        raise TargetMoved(f"{run.target} changed since run {run.id} began", "start a new run, or restore the file")
    return found
