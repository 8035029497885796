"""The GPUs of a Ray cluster as one judge: `GpuPool` over actors. Hosts may go, come back and join while a run goes on.

What a pool of this machine does holds here, too: a piece of work has one GPU at a time, a hang is blamed on a command
or a GPU, and nothing is answered twice. A GPU whose host is gone is left out, and its question goes to another. GPUs of
another model or driver than the first are left out, so that all times of a run are of one kind of machine.
"""

import importlib.metadata
import os
import signal
import threading
import time
from collections.abc import Callable, Container, Sequence
from typing import Any, ClassVar

from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.cluster.gpu_host import GpuHost
from pgo_agent.sandbox.judge.cluster.ray_cluster import ANY, Cluster, Node, listens
from pgo_agent.sandbox.judge.cluster.remote_gpu import Files, Lost, RemoteGpu
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.target import Target

FIRST_SECONDS = 60.0  # for the first actor: its host imports what it needs
PATIENCE = 60.0  # seconds without a GPU after which a run ends; hosts may come back meanwhile
LOOK = 2.0  # seconds between looks for hosts
HEADLESS = 40.0  # seconds without the cluster's head after which a run stops: Ray kills its process after 60
Arguments = Callable[[Node, int], Sequence[object]]


def plain(_node: Node, _number: int) -> Sequence[object]:
    """Return what an actor is made with: nothing, for it finds its GPU."""
    return ()


class ClusterPool(GpuPool):
    """A Judge on a cluster. `model`: of the GPUs to take; empty: that of the first one that answers. `most`: of them;
    None: all."""

    here: ClassVar[bool] = False

    def __init__(
        self,
        cluster: Cluster,
        target: Target,
        model: str = "",
        arguments: Arguments = plain,
        most: int | None = None,
    ) -> None:
        """Raises EnvironmentFault where no GPU answers."""
        super().__init__([])
        self.cluster, self.subject, self.model, self.most, self._arguments = cluster, target, model, most, arguments
        self._starting: dict[Any, tuple[str, Any]] = {}  # what an actor says of itself, once -> its name, its handle
        self._asked: dict[str, int] = {}  # node -> actors that were started there
        self._files: Files | None = None
        self._empty_since: float | None = None
        self._said: list[tuple[str, dict[str, object]]] = []  # events that wait until no lock is held
        self.left_out: dict[str, str] = {}  # GPU -> why
        self._look(FIRST_SECONDS)
        if not self._left:
            self.close()
            raise EnvironmentFault(*_none(cluster, self.left_out))
        threading.Thread(target=self._watch, daemon=True).start()
        if head := cluster.head:
            threading.Thread(target=self._watch_head, args=(head,), daemon=True).start()

    def begin(self, tell: Callable[..., None], keep: Callable[[Gpu, str], None], quarantined: Container[str]) -> None:
        super().begin(tell, keep, quarantined)
        self._flush()

    def store(self, contents: ContentStore) -> None:
        """Take the content store of the run, whose files go to the hosts."""
        self._files = Files(contents)
        for judge in self._members():
            judge.files = self._files

    def close(self) -> None:
        super().close()
        for _, handle in self._starting.values():
            RemoteGpu(handle, {"host": "", "uuid": "", "index": "", "model": ""}, self.subject).close()

    # hosts ------------------------------------------------------------------------------------------------------------

    def _watch_head(self, address: str) -> None:
        """Stop the run, as Ctrl-C does, when the head is gone: Ray would end this process, and tell nothing of it."""
        heard = time.monotonic()
        while not self._closed and time.monotonic() < heard + HEADLESS:
            time.sleep(LOOK)
            heard = time.monotonic() if listens(address) else heard
        if not self._closed:
            gone = f"the head of the cluster, {address}, is gone for {HEADLESS:.0f} s: the run stops"
            self._tell("warning", text=f"{gone}; `pgo-agent resume` goes on, with another --judge if it stays away")
            os.kill(os.getpid(), signal.SIGINT)

    def _watch(self) -> None:
        while not self._closed:
            time.sleep(LOOK)
            try:
                self._look(0.0)
            except Exception as e:  # the head may be gone for a while
                self.left_out["the head"] = f"{type(e).__name__}: {e}"[:200]
            self._flush()
            with self._changed:
                self._changed.notify_all()  # whoever waits for a GPU may have waited long enough

    def _look(self, seconds: float) -> None:
        """Start actors for GPUs that have none, and take in those that answer; wait `seconds` at most for the first."""
        for node, number in self._wanted(self.cluster.nodes()):
            name = f"pgo-agent judge: GPU {number} of {node.host} ({id(self):x}.{sum(self._asked.values())})"
            handle = self.cluster.actor(GpuHost, node, name, self._arguments(node, number))
            self._starting[handle.about.remote()] = name, handle
            self._asked[node.id] = number + 1
        deadline = time.monotonic() + seconds
        while True:
            for ref in self.cluster.answered(list(self._starting), 0.2):
                self._join(ref, *self._starting.pop(ref))
            if self._left or not self._starting or time.monotonic() >= deadline:
                return

    def _wanted(self, nodes: Sequence[Node]) -> list[tuple[Node, int]]:
        """Return the GPUs to start actors for: all that have none, or as many as may be taken, wherever one is free."""
        if self.most is None:
            return [(n, i) for n in nodes for i in range(self._asked.get(n.id, 0), n.gpus)]
        free, asked = self.most - len(self._left) - len(self._starting), self._asked.get(ANY.id, 0)
        return [(ANY, asked + i) for i in range(max(0, free) if nodes else 0)]

    def _join(self, ref: Any, name: str, handle: Any) -> None:
        try:
            about = dict(self.cluster.get(ref))
        except Exception as e:  # whatever its host lacks
            self.left_out[name] = _cause(e)
            self._say("warning", text=f"{name} is left out: {self.left_out[name]}")
            return
        where = f"GPU {about['index']} of {about['host']}"
        if why := self._unfit(about):
            self.left_out[where] = why
            self._say("warning", text=f"{where} is left out: {why}")
            RemoteGpu(handle, about, self.subject).close()
            return
        self.model = self.model or about["model"]
        judge = RemoteGpu(handle, about, self.subject)
        judge.files = self._files
        with self._changed:
            self.all = (*self.all, judge)
            self._left.append(judge)
            self._changed.notify_all()

    def _unfit(self, about: dict[str, str]) -> str:
        if self.model and about["model"] != self.model:
            return f"it is an {about['model']}, and this run is for {self.model}"
        here = importlib.metadata.version("pgo-agent")
        return f"pgo-agent {about['version']} is there, {here} here" if about["version"] != here else ""

    # what else may happen ---------------------------------------------------------------------------------------------

    def _first(self, free: Sequence[Any]) -> Any:
        for judge in free:
            try:
                if found := super()._first([judge]):
                    return found
            except Lost as e:  # while nobody asked it
                self._left.remove(judge)
                self._say("gpu.quarantined", index=judge.lock.gpu.index, uuid=judge.lock.gpu.uuid, why=e.message,
                          left=len(self._left))  # fmt: skip
        return None

    def _free(self) -> list[Any]:
        if self._left or self._closed:
            self._empty_since = None
            return super()._free()
        self._empty_since = self._empty_since or time.monotonic()
        return [] if time.monotonic() - self._empty_since < PATIENCE else super()._free()

    def _members(self) -> list[RemoteGpu]:
        return [j for j in self.all if isinstance(j, RemoteGpu)]

    def _say(self, kind: str, **fields: object) -> None:
        self._said.append((kind, fields))

    def _flush(self) -> None:
        while self._said:
            kind, fields = self._said.pop(0)
            self._tell(kind, **fields)

    @property
    def target(self) -> Target:
        return self.subject

    @target.setter
    def target(self, target: Target) -> None:
        self.subject = target
        for judge in self._members():
            judge.target = target


def _none(cluster: Cluster, left_out: dict[str, str]) -> tuple[str, str]:
    why = "; ".join(f"{g}: {w}" for g, w in left_out.items())
    if why:
        return f"no GPU of the cluster can judge: {why}", "install what is missing there, or take another cluster"
    if not cluster.nodes():
        return f"the cluster at {cluster.address} has no GPU", "`ray status` lists what it has; --judge cpu needs none"
    return "no GPU of the cluster is free: its actors do not start", "`ray status` says who holds them"


def _cause(e: BaseException) -> str:
    """Return why an actor did not start, in a line."""
    text = " ".join(str(getattr(e, "cause", None) or e).split())
    if "No module named" in text:
        module = text.split("No module named", 1)[1].split()[0].strip("'\"")
        return f"{module} is not installed there: install it on every host, or name it in the job's runtime_env"
    return text[-300:]
