"""What runs beside a GPU of a cluster, in an actor: the judge process of that GPU, its lock, and a store of bundles.

It is the same judge process as on the driver's machine (`gpu_judge.py`). Bundles come by content hash, and lie in one
folder of the host for all of its actors. A failure is an answer: nothing but data goes back to the driver. Relies on no
module of Ray, so that it can be tried without.
"""

import importlib.metadata
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from pgo_agent.sandbox.bundle.documents import Manifest
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault, Fault, TargetFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge import by_hash, gpus
from pgo_agent.sandbox.judge.gpu_judge import Ended, GpuJudge, NoStart
from pgo_agent.sandbox.judge.gpu_lock import GpuLock, folder
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.machine import NOWHERE
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.temporary_folders import folder_of_process

KINDS = (NoStart, TargetFault, UsageFault, EnvironmentFault)  # of faults, the most special first


class GpuHost:
    """One GPU. `python`: interpreter of the judge process; empty: this one's. `gpu`: of a host without nvidia-smi."""

    def __init__(self, python: str = "", gpu: Gpu | None = None) -> None:
        self.gpu = gpu or _visible()
        self.lock = GpuLock(self.gpu)
        self.judge: GpuJudge | None = None
        self.python = python
        self.contents = ContentStore(folder() / "cluster")
        self._home = folder_of_process("target")

    def about(self) -> dict[str, str]:
        """Return what and where this is."""
        version = importlib.metadata.version("pgo-agent")
        return asdict(self.gpu) | {"host": socket.gethostname(), "pid": str(os.getpid()), "version": version}

    def open(self, name: str, source: str, contract_name: str, contract: str) -> JsonObject:
        """Take a target, whose texts the person at the driver allowed, and start a judge process for it."""
        if self.judge is not None:
            self.judge.close()
        (self._home / name).write_text(source, encoding="utf-8")
        (self._home / contract_name).write_text(contract, encoding="utf-8")
        subject = Target(self._home / name, source, self._home / contract_name, contract)
        self.judge = GpuJudge(subject, self.python or sys.executable, self.gpu.uuid, lock=self.lock)
        return self.start()

    def start(self) -> JsonObject:
        """Start a judge process if there is none; answer as `answer`."""
        judge = self._judge()
        return self._said(lambda: judge.open().as_json())

    # files ------------------------------------------------------------------------------------------------------------

    def missing(self, files: Sequence[str]) -> list[str]:
        """Return the files that this host does not have."""
        return [f for f in files if not self._has(f)]

    def put(self, file: str, data: bytes) -> None:
        """Keep a file. Raises ValueError where its name is not its hash."""
        sha, _, suffix = file.partition("/")[2].partition(".")
        kept = self.contents.put(data, suffix) if not file.startswith(by_hash.BUNDLES) else self._bundle(data)
        if kept != sha:
            raise ValueError(f"{file} is not what its name says")

    def get(self, file: str) -> bytes:
        return by_hash.data(self.contents, file)

    def _bundle(self, data: bytes) -> str:
        manifest: Manifest = json.loads(data)
        return self.contents.put_bundle(manifest)

    def _has(self, file: str) -> bool:
        try:
            return bool(by_hash.data(self.contents, file))
        except (Fault, OSError):
            return False

    # the judge process ------------------------------------------------------------------------------------------------

    def answer(self, do: str, fields: JsonObject) -> JsonObject:
        """Ask the judge process. Return `answer`, `ended` or `fault` with what belongs to it, the seconds in which the
        GPU was held, and the environment."""
        asked = by_hash.located(fields, self.contents)
        if do == "timeline":
            asked["shelf"] = str(self.contents.root)
        return self._said(lambda: self._judge().answer(do, asked))

    def _said(self, call: Callable[[], JsonObject]) -> JsonObject:
        judge = self._judge()
        began = judge.busy
        try:
            said: JsonObject = {"answer": call()}
        except Ended as e:
            said = {"ended": {"stage": e.stage, "timed_out": e.timed_out, "detail": e.detail}}
        except Fault as e:
            kind = next((k.__name__ for k in KINDS if isinstance(e, k)), "EnvironmentFault")
            said = {"fault": {"type": kind, "message": e.message, "hint": e.hint}}
        environment = replace(judge.environment, host=socket.gethostname()) if judge.environment else NOWHERE
        return said | {"busy": judge.busy - began, "environment": environment.as_json()}

    def fresh(self) -> None:
        self._judge().fresh()

    def prepare(self, processes: int) -> None:
        self._judge().prepare(processes)

    def started(self) -> bool:
        return self.judge is not None and self.judge.started

    def close(self) -> None:
        """End the judge process, also while it answers."""
        if self.judge is not None:
            self.judge.close()

    def _judge(self) -> GpuJudge:
        if self.judge is None:
            raise RuntimeError("no target was opened")
        return self.judge

    # the lock ---------------------------------------------------------------------------------------------------------

    def taken(self) -> bool:
        return self.lock.taken()

    def left(self) -> None:
        self.lock.left()

    def free(self) -> None:
        self.lock.free()

    def holder(self) -> str:
        return f"{self.lock.holder} of {socket.gethostname()}"


def _visible() -> Gpu:
    """Return the GPU that the cluster gave to this actor: it alone is in CUDA_VISIBLE_DEVICES."""
    found = gpus.usable()
    if not found:
        raise EnvironmentFault(f"{socket.gethostname()} shows this actor no GPU", "check nvidia-smi there")
    return found[0]
