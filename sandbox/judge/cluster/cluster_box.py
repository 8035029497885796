"""The box on the hosts of a Ray cluster: traces and compilations as tasks, each with the sandbox of its own host.

A boxed process knows its folder and nothing else, so the folder travels: its files to a host, and what the process left
in `out` back. A host without a sandbox, or with another Triton, refuses, and the process runs here. A host that dies
meanwhile is a process that somebody killed: callers begin it again. Nothing of the workspace and no key leaves.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box, Ran
from pgo_agent.sandbox.temporary_folders import temporary_folder

LOST = Ran(-9, "its host is gone", timed_out=False, seconds=0.0)
GRACE = 120.0  # seconds for a place on a host, and the way there
PARTS = ("pgo_agent.sandbox.tracer", "pgo_agent.sandbox.compiler")  # what takes long: all else runs here


@dataclass(frozen=True)
class Boxed:
    """What a host is asked to run."""

    module: str
    args: tuple[str, ...]
    env: dict[str, str]
    seconds: float
    files: dict[str, bytes]  # of the folder, by their place in it
    isolates: bool  # whether it must be isolated
    triton: str  # version


@dataclass(frozen=True)
class ClusterBox(Box):
    """A Box whose long processes run on the hosts of a cluster; `kind` is that of this machine."""

    def run(
        self, module: str, folder: Path, seconds: float, args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Ran:
        """As Box.run."""
        if module not in PARTS:
            return super().run(module, folder, seconds, args, env)
        files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        triton = importlib.metadata.version("triton")
        asked = Boxed(module, tuple(args), dict(env or {}), seconds, files, self.isolates, triton)
        answer = _asked(asked)
        if answer is None:
            return super().run(module, folder, seconds, args, env)
        ran, left = answer
        put(folder / "out", left)
        return ran


def put(out: Path, files: Mapping[str, bytes]) -> None:
    """Write what a process left, below `out` alone: a host is believed as a judge, and no further."""
    for name, data in files.items():
        path = (out / name).resolve()
        if path.is_relative_to(out.resolve()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def run(asked: Boxed) -> dict[str, Any]:
    """Run a boxed process on this host; return how it ended and what it left, or why this host does not fit."""
    here = box.choose()
    triton = importlib.metadata.version("triton")
    if asked.isolates and not here.isolates:
        return {"unfit": "it has no sandbox"}
    if triton != asked.triton:
        return {"unfit": f"it has Triton {triton}"}
    with temporary_folder("box") as folder:
        for place, data in asked.files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(data)
        ran = here.run(asked.module, folder, asked.seconds, asked.args, asked.env)
        out = folder / "out"
        files = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if _plain(p)}
    return {"ran": asdict(ran), "files": files}


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _asked(asked: Boxed) -> tuple[Ran, dict[str, bytes]] | None:
    """Return how a host ran it; None where it must run here."""
    import ray

    name = asked.module.rpartition(".")[2]
    task: Any = ray.remote(run).options(num_cpus=1, max_retries=0, name=f"pgo-agent {name}")
    try:
        answer: dict[str, Any] = ray.get(task.remote(asked), timeout=asked.seconds + GRACE)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError):
        return LOST, {}
    except (ray.exceptions.RayTaskError, ray.exceptions.GetTimeoutError, ray.exceptions.RaySystemError):
        return None
    return None if "unfit" in answer else (Ran(**answer["ran"]), answer["files"])
