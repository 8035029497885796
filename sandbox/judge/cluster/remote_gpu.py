"""The driver's end of one GPU of a cluster: what `pool.py` asks of a judge, answered by an actor beside that GPU.

Relies on `gpu_host.py`, which the actor holds. A host that is gone is a judge that does not start: the pool then moves
the question to another GPU. Files are put into Ray's object store once, and fetched once for each host.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, TypeVar

from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault, Fault, TargetFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge import by_hash
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.interface import Ended, NoStart, Verdicts, always
from pgo_agent.sandbox.judge.machine import NOWHERE, Environment
from pgo_agent.sandbox.judge.questions import Question
from pgo_agent.sandbox.target import Target

SECONDS = 30.0  # for what an actor answers at once; a network may be cut for so long
FAULTS: dict[str, type[Fault]] = {
    "NoStart": NoStart,
    "TargetFault": TargetFault,
    "UsageFault": UsageFault,
    "EnvironmentFault": EnvironmentFault,
}
T = TypeVar("T")


class Lost(NoStart):
    """The host of a GPU, or its actor, is gone."""


class Files:
    """What was put into the object store: each file once, for all GPUs of a run."""

    def __init__(self, contents: ContentStore) -> None:
        self.contents = contents
        self._refs: dict[str, Any] = {}
        self._one = threading.Lock()

    def ref(self, file: str) -> Any:
        import ray

        with self._one:
            if file not in self._refs:
                self._refs[file] = ray.put(by_hash.data(self.contents, file))
            return self._refs[file]


class RemoteLock:
    """The lock of a GPU on another host, as `gpu_lock.py` has it."""

    def __init__(self, gpu: Gpu, call: Callable[..., Any]) -> None:
        self.gpu, self._call = gpu, call

    def taken(self) -> bool:
        return bool(self._call("taken"))

    def left(self) -> None:
        with contextlib.suppress(Lost):
            self._call("left")

    def free(self) -> None:
        with contextlib.suppress(Lost):  # then its lock went with it
            self._call("free")

    @property
    def holder(self) -> str:
        return str(self._call("holder"))


class RemoteGpu(Verdicts):
    """A judge on one GPU of a cluster. `actor`: the handle of its GpuHost; `about`: what that says of itself."""

    elsewhere: ClassVar[bool] = False
    here: ClassVar[bool] = False
    by_hand: ClassVar[bool] = False

    def __init__(self, actor: Any, about: Mapping[str, str], target: Target) -> None:
        self.actor, self.host, self.target = actor, about["host"], target
        self.lock = RemoteLock(Gpu(about["uuid"], about["index"], about["model"]), self._call)
        self.environment = NOWHERE
        self.busy = self.waited = self._began = 0.0
        self.files: Files | None = None  # of the run, once that begins
        self.started = False
        self.python = ""
        self.gpu: str | None = about["uuid"]
        self._sent = set[str]()  # files that its host has

    # commands ---------------------------------------------------------------------------------------------------------

    def ask(self, question: Question[T]) -> T:
        """As Judge.ask. Raises Lost where the host is gone."""
        self.open()
        named = by_hash.fields(question)
        self._send(named)
        answer = self._read(self._call("answer", question.do, named, seconds=None))
        self._fetch(answer)
        return question.read(answer)

    def open(self) -> Environment:
        """Start a judge process for the target. Raises as `ask`."""
        if not self.started:
            t = self.target
            texts = (t.path.name, t.source, t.contract_path.name, t.contract)
            self._read(self._call("open", *texts, seconds=None))
            self.started = True
        elif not self._call("started"):
            self._read(self._call("start", seconds=None))
        return self.environment

    def fresh(self) -> None:
        if self.started:
            with contextlib.suppress(Lost):  # then `ask` says so, and the question moves to another GPU
                self._call("fresh")

    def prepare(self, processes: int) -> None:
        """Do nothing: a host starts processes when they are needed."""

    def close(self) -> None:
        """End the judge process and the actor. It may answer a question meanwhile."""
        import ray

        with contextlib.suppress(Exception):
            ray.get(self.actor.close.remote(), timeout=5)
        with contextlib.suppress(Exception):
            ray.kill(self.actor)

    # what the pool asks beside ----------------------------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator["RemoteGpu"]:
        yield self

    def occupied(self) -> AbstractContextManager[None]:
        return nullcontext()

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        for name, do in work.items():
            if not more():
                return
            self._began = self.busy
            yield name, do()

    def queue(self, question: Question[object], fresh: int = 0) -> None:
        """Do nothing: commands are asked in order."""

    @property
    def seconds(self) -> float:
        return self.busy - self._began

    # on the way -------------------------------------------------------------------------------------------------------

    def _send(self, named: JsonObject) -> None:
        if not any(True for _ in by_hash.bundles(named)):
            return
        if self.files is None:
            raise RuntimeError("no run has begun")
        wanted = [f for f in by_hash.files(self.files.contents, named) if f not in self._sent]
        for file in self._call("missing", wanted) if wanted else ():
            self._call("put", file, self.files.ref(file))
        self._sent.update(wanted)

    def _fetch(self, answer: JsonObject) -> None:
        for file in by_hash.records(answer):
            data = self._call("get", file)
            if self.files is not None:
                self.files.contents.put(data, RECORDS)

    def _read(self, said: JsonObject) -> JsonObject:
        """Return the answer. Raises Ended and Faults as the judge process did."""
        self.busy += float(str(said["busy"]))
        found = Environment.from_json(_object(said["environment"]))
        self.environment = found or self.environment
        if "ended" in said:
            e = _object(said["ended"])
            raise Ended(str(e["stage"]), bool(e["timed_out"]), str(e["detail"]))
        if "fault" in said:
            f = _object(said["fault"])
            raise FAULTS[str(f["type"])](f"{f['message']} (on {self.host})", str(f["hint"]))
        return _object(said["answer"])

    def _call(self, method: str, *args: Any, seconds: float | None = SECONDS) -> Any:
        """Call the actor. Raises Lost where it is gone, or answers nothing for `seconds`, and EnvironmentFault for what
        it fails at."""
        import ray

        try:
            return ray.get(getattr(self.actor, method).remote(*args), timeout=seconds)
        except ray.exceptions.RayTaskError as e:
            said = " ".join(str(e.cause).split())[-300:]
            raise EnvironmentFault(f"{self.host} failed: {said}", "`pgo-agent resume` asks again") from None
        except (ray.exceptions.RayError, ConnectionError) as e:
            why = "it does not answer" if isinstance(e, ray.exceptions.GetTimeoutError) else "its actor ended"
            raise Lost(f"the GPU {self.lock.gpu.index} of {self.host} is gone: {why}", "see `ray status`") from None


def _object(x: object) -> JsonObject:
    return dict(x) if isinstance(x, dict) else {}
