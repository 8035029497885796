"""A judge elsewhere, as a run sees it: what it asks is put into a folder, and what is there is believed as a verdict.

A request is named by what it asks, so a run that is killed, suspended or begun again finds its own requests, and what
was answered is never judged again. Requests carry hashes; the bundles that they name lie beside them. Answers are read
as data of bounded size. Relies on `folder.py` and `protocol.py`; it starts no process and knows of no workspace but the
content store that it is given.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore, canonical
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, Fault, TargetFault, UsageFault
from pgo_agent.sandbox.judge.interface import Busy, Ended, Verdicts, always
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.folder import ANSWERS, BUNDLES, REQUESTS, Folder, NotWhole
from pgo_agent.sandbox.judge.spool.protocol import Answer, Request
from pgo_agent.sandbox.target import Target

POLL = 0.5  # seconds between looks
TAKEN = {"cubin"}  # of what a build left, what a judge reads
_AGAIN = "`pgo-agent resume` asks again"
T = TypeVar("T")


class Unanswered(Exception):
    """Requests have no answer yet, and nobody is to wait: the run goes on with them when it is resumed."""

    def __init__(self, request: Path, answer: Path, why: str, how: str) -> None:
        super().__init__(f"{answer} {why}")
        self.request, self.reply, self.why, self.how = request, answer, why, how


class SpoolJudge(Verdicts):
    """Asks through `folder`. `wait`: for answers; if not, Unanswered is raised."""

    elsewhere = True

    def __init__(self, folder: Path, device: Device, target: Target, wait: bool = True) -> None:
        self.folder, self.device, self.target, self.patient = Folder(folder), device, target, wait
        self.environment: dict[str, Any] = {}
        self.busy = self.waited = 0.0  # GPU seconds of the answers that were new to the run; `wait` is unbooked
        self.seconds = 0.0  # of those that were read since `scope` began
        self._open: dict[str, Request] = {}  # asked, and not answered at the last look
        self._scope, self._process = "", 0

    def begin(
        self,
        run: str,
        contents: ContentStore,
        is_new: Callable[[str, float], bool],
        tell: Callable[..., None] = lambda _kind, **_: None,
        unbooked: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """For one run: says that it is there, so that a machine that is no good is known before anything is built.

        `is_new`: whether the run did not know an answer, by its request and its GPU seconds. `tell` is told of waiting;
        `unbooked` is around it. Raises UsageFault, EnvironmentFault.
        """
        self.run, self.contents, self._is_new, self._tell, self._unbooked = run, contents, is_new, tell, unbooked
        self.folder.make()
        self._hello = self._request(protocol.HELLO, {})
        self._found(self._hello)

    # asking -----------------------------------------------------------------------------------------------------------

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """As AnyJudge.ask. In a `scope` it raises Unanswered at once; else it waits, if it may."""
        request = self._request(command, fields)
        while (answer := self._found(request)) is None:
            if self._scope:
                raise self._unanswered()
            self.wait()
        return self._read(answer)

    def queue(self, command: str, **fields: Any) -> None:
        self._found(self._request(command, fields))

    def fresh(self) -> None:
        self._process += 1

    def prepare(self, processes: int) -> None:
        """The answering side does, or does not."""

    def close(self) -> None:
        """There is nothing to end."""

    def turn(self) -> AbstractContextManager["SpoolJudge"]:
        """Which of its GPUs it takes is the answering side's to say."""
        return nullcontext(self)

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        """As AnyJudge.together; everything is asked before anybody waits for one answer.

        A piece of work that lacks an answer is begun again once one is there, and finds what was answered before: it
        must look into the store before it works, as every step of the loop does; one that raises Busy, soon. Raises
        Unanswered when all that is left waits for answers and nobody is to wait.
        """
        left, begun = dict(work), set[str]()
        while left:
            busy = False
            for name, do in list(left.items()):
                if name not in begun and not more():
                    del left[name]
                    continue
                begun.add(name)
                try:
                    with self.scope(name):
                        found = do()
                except (Unanswered, Busy) as e:
                    busy |= isinstance(e, Busy)
                    continue
                del left[name]
                yield name, found
            if busy:
                time.sleep(POLL)
            elif left:
                self.wait()

    @contextmanager
    def scope(self, scope: str) -> Iterator[None]:
        """What is asked in here does not wait, so that more can be asked before anybody does.

        The same scope begun again asks the same: it finds what was answered meanwhile. Processes are its own.
        """
        kept = self._scope, self._process
        self._scope, self._process, self.seconds = scope, 0, 0.0
        try:
            yield
        finally:
            self._scope, self._process = kept

    def wait(self) -> None:
        """Until one of the open requests is answered. Raises Unanswered where nobody is to wait."""
        if not self.patient:
            raise self._unanswered()
        with self._unbooked():
            self._tell("judge.waiting", folder=str(self.folder.root), requests=len(self._open), how=self.how)
            while self._open and all(self._answer(r) is None for r in self._open.values()):
                self._found(self._hello)  # the machine may have turned out to be no good
                time.sleep(POLL)
        self._open.clear()

    @property
    def by_hand(self) -> bool:
        return not self.patient

    @property
    def how(self) -> str:
        """The command that answers."""
        return f"python -m pgo_agent.sandbox.judge --spool {self.folder.root} --target {self.target.path.name}"

    def _unanswered(self) -> Unanswered:
        first = next(iter(self._open.values()))
        name = next((a.name for a in self.folder.requests() if a.sha == first.sha), "")
        more = f", and {len(self._open) - 1} more" if len(self._open) > 1 else ""
        request, answer = self.folder.root / REQUESTS / name, self.folder.root / ANSWERS / f"{first.sha}.json"
        return Unanswered(request, answer, f"is not there{more}", self.how)

    # requests and answers ---------------------------------------------------------------------------------------------

    def _request(self, command: str, fields: dict[str, Any]) -> Request:
        named = _named({k: v for k, v in fields.items() if k != "shelf"})
        files = sorted({f for bundle in protocol.bundles(named) for f in self._files(bundle)})
        process = f"{self._scope} {self._process}" if self._process else ""
        return Request(self.run, self.target.digest, self.device.name, command, named, tuple(files), process)

    def _files(self, bundle: str) -> Iterator[str]:
        yield f"bundles/{bundle}.json"
        for kernel in self.contents.manifest(bundle)["kernels"].values():
            yield from (f"artefacts/{sha}.{suffix}" for suffix, sha in kernel["files"].items() if suffix in TAKEN)

    def _put(self, request: Request) -> None:
        for file in request.files:
            self.folder.put(file, self._data(file))
        self.folder.ask(request.as_bytes())

    def _data(self, file: str) -> bytes:
        """Raises EnvironmentFault for what the content store lost."""
        sha, _, suffix = file.partition("/")[2].partition(".")
        return canonical(self.contents.manifest(sha)) if file.startswith(BUNDLES) else self.contents.get(sha, suffix)

    def _found(self, request: Request) -> Answer | None:
        """The answer; None where there is none: then it is asked. What was refused is asked once more, and raised."""
        while (answer := self._answer(request)) is not None:
            problem = self._problem(request, answer)
            if problem is None:
                self._book(answer)
                return answer
            request = request.once_more()
            if request.sha not in {a.sha for a in self.folder.requests()}:
                self._put(request)
                raise problem
        if request.sha not in self._open:
            self._put(request)
            self._open[request.sha] = request
        return None

    def _book(self, answer: Answer) -> None:
        self._open.pop(answer.request, None)
        self.seconds += answer.seconds
        if self._is_new(answer.request, answer.seconds):
            self.busy += answer.seconds

    def _answer(self, request: Request) -> Answer | None:
        """Raises EnvironmentFault for what is there and is no answer."""
        try:
            found = protocol.answer(self.folder.answer(request.sha), request)
            for file in found.artefacts:
                self.folder.whole(file)
        except NotWhole:
            return None
        except BadBundle as e:
            path = self.folder.root / ANSWERS / f"{request.sha}.json"
            raise EnvironmentFault(f"{path} is no answer: {e}", f"remove it; {_AGAIN}") from None
        return found

    def _problem(self, request: Request, answer: Answer) -> EnvironmentFault | None:
        """Why an answer says nothing of what was asked."""
        said, gpu = answer.said, answer.environment.get("gpu")
        if answer.kind == "refused":
            return EnvironmentFault(f"refused in {self.folder.root}: {said['message']}", f"{said['hint']}; {_AGAIN}")
        if request.do != protocol.HELLO or gpu == self.device.name:
            return None
        return EnvironmentFault(*protocol.mismatch(gpu, self.device.name))

    def _read(self, answer: Answer) -> dict[str, Any]:
        """What was answered. Raises what asking a judge raises."""
        self.environment, said = dict(answer.environment), answer.said
        if answer.kind == "ended":
            raise Ended(said["stage"], said["timed_out"], said["detail"])
        if answer.kind == "fault":
            kinds: dict[str, type[Fault]] = {"TargetFault": TargetFault, "UsageFault": UsageFault}
            raise kinds.get(said["type"], EnvironmentFault)(said["message"], said["hint"])
        for file in answer.artefacts:
            self.contents.put(self.folder.get(file), RECORDS)
        return dict(said)


def _named(x: Any) -> Any:
    """Fields with bundles by their hash alone, in place of where they lie."""
    if isinstance(x, dict):
        return {k: v["id"] if k == "bundle" and isinstance(v, dict) else _named(v) for k, v in x.items()}
    return [_named(v) for v in x] if isinstance(x, list | tuple) else x
