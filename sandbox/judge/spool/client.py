"""A run's side of a judge elsewhere: writes requests into a folder and reads answers, which it trusts as verdicts.

A request is named by its content, so a run that was killed, suspended or begun again finds its requests, and nothing
answered is judged again. Requests name bundles by hash; the bundles lie beside them. Answers are read as data of
bounded size. Relies on `folder.py`, `protocol.py` and the content store of a workspace; starts no process.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.devices import Device
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, Fault, TargetFault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge import by_hash
from pgo_agent.sandbox.judge.interface import Busy, Ended, Verdicts, always
from pgo_agent.sandbox.judge.machine import NOWHERE
from pgo_agent.sandbox.judge.questions import Hello, Question
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.folder import ANSWERS, REQUESTS, Folder, NotWhole, pause
from pgo_agent.sandbox.judge.spool.protocol import Answer, Request
from pgo_agent.sandbox.target import Target

_AGAIN = "`pgo-agent resume` asks again"
T = TypeVar("T")


class Unanswered(Exception):
    """Requests have no answer yet, and the run must not wait: it goes on with them when it is resumed."""

    def __init__(self, request: Path, answer: Path, why: str, how: str) -> None:
        super().__init__(f"{answer} {why}")
        self.request, self.reply, self.why, self.how = request, answer, why, how


class SpoolJudge(Verdicts):
    """A Judge that asks through `folder`. `wait`: wait for answers; else raise Unanswered."""

    elsewhere, here = True, False

    def __init__(self, folder: Path, device: Device, target: Target, wait: bool = True) -> None:
        self.folder, self.device, self.target, self.patient = Folder(folder), device, target, wait
        self.environment = NOWHERE
        self.busy = self.waited = 0.0  # GPU seconds of answers new to the run; a wait does not count
        self.seconds = 0.0  # of answers read since `scope` began
        self._open: dict[str, Request] = {}  # without an answer at the last look
        self._scope, self._process = "", 0

    def begin(
        self,
        run: str,
        contents: ContentStore,
        is_new: Callable[[str, float], bool],
        tell: Callable[..., None] = lambda _kind, **_: None,
        unbooked: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Begin one run with a hello request, so that an unfit machine is known before anything is built.

        `is_new`: whether an answer is new to the run, by its request and its GPU seconds. `tell` is called before a
        wait, which runs within `unbooked`. Raises UsageFault, EnvironmentFault.
        """
        self.run, self.contents, self._is_new, self._tell, self._unbooked = run, contents, is_new, tell, unbooked
        self.folder.make()
        self._hello = self._request(Hello())
        self._find_answer(self._hello)

    # asking -----------------------------------------------------------------------------------------------------------

    def ask(self, question: Question[T]) -> T:
        """As Judge.ask. In a `scope` it raises Unanswered at once; else it waits, if it may."""
        request = self._request(question)
        while (answer := self._find_answer(request)) is None:
            if self._scope:
                raise self._unanswered()
            self.wait()
        return question.read(self._read(answer))

    def queue(self, question: Question[object], fresh: int = 0) -> None:
        self._process += fresh
        request = self._request(question)
        self._process -= fresh
        if self._answer(request) is None:  # one that is there is booked when it is asked for
            self._find_answer(request)

    def fresh(self) -> None:
        self._process += 1

    def prepare(self, processes: int) -> None:
        """Do nothing: processes are the server's."""

    def close(self) -> None:
        """Do nothing: no process was started."""

    def turn(self) -> AbstractContextManager["SpoolJudge"]:
        """Do nothing: the server chooses the GPU."""
        return nullcontext(self)

    def together(
        self, work: Mapping[str, Callable[[], T]], more: Callable[[], bool] = always, each: int = 1
    ) -> Iterator[tuple[str, T]]:
        """As Judge.together; every piece asks before any of them waits.

        A piece that lacks an answer is begun again later, and soon if it raised Busy. It then finds the earlier
        answers: it must look into the store before it works, as every step of the loop does. Raises Unanswered when
        all pieces wait for answers and the run must not wait.
        """
        left, begun, looks = dict(work), set[str](), itertools.count()
        while left:
            busy = False
            for name, do in list(left.items()):
                if name not in begun and not more():
                    del left[name]
                    continue
                begun.add(name)
                try:
                    with self.scope(name):
                        result = do()
                except (Unanswered, Busy) as e:
                    busy |= isinstance(e, Busy)
                    continue
                del left[name]
                yield name, result
            if busy:
                pause(next(looks))
            elif left:
                self.wait()

    @contextmanager
    def scope(self, scope: str) -> Iterator[None]:
        """Ask without waiting, so that more can be asked first.

        A scope that is begun again asks the same requests and finds their answers. It counts its own processes.
        """
        outer = self._scope, self._process
        self._scope, self._process, self.seconds = scope, 0, 0.0
        try:
            yield
        finally:
            self._scope, self._process = outer

    def wait(self) -> None:
        """Wait until one of the open requests is answered. Raises Unanswered where the run must not wait."""
        if not self.patient:
            raise self._unanswered()
        with self._unbooked():
            self._tell("judge.waiting", folder=str(self.folder.root), requests=len(self._open), how=self.how)
            looks = itertools.count()
            while self._open and all(self._answer(r) is None for r in self._open.values()):
                self._find_answer(self._hello)  # the machine may turn out to be unfit
                pause(next(looks))
        self._open.clear()

    @property
    def by_hand(self) -> bool:
        return not self.patient

    @property
    def how(self) -> str:
        """The command that starts a server."""
        return f"python -m pgo_agent.sandbox.judge --spool {self.folder.root} --target {self.target.path.name}"

    def _unanswered(self) -> Unanswered:
        first = next(iter(self._open.values()))
        name = next((a.name for a in self.folder.requests() if a.sha == first.sha), "")
        more = f", and {len(self._open) - 1} more" if len(self._open) > 1 else ""
        request, answer = self.folder.root / REQUESTS / name, self.folder.root / ANSWERS / f"{first.sha}.json"
        return Unanswered(request, answer, f"is not there{more}", self.how)

    # requests and answers ---------------------------------------------------------------------------------------------

    def _request(self, question: Question[object]) -> Request:
        named = by_hash.fields(question)
        files = by_hash.files(self.contents, named)
        process = f"{self._scope} {self._process}" if self._process else ""
        return Request(self.run, self.target.digest, self.device.name, question.do, named, tuple(files), process)

    def _put(self, request: Request) -> None:
        for file in request.files:
            self.folder.put(file, by_hash.data(self.contents, file))
        self.folder.ask(request.as_bytes())

    def _find_answer(self, request: Request) -> Answer | None:
        """Return the answer, or ask and return None. A refused request is asked once more, and the refusal raised."""
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
        """Return the answer, or None. Raises EnvironmentFault for a file that is no answer."""
        try:
            result = protocol.answer(self.folder.answer(request.sha), request)
            for file in result.artefacts:
                self.folder.whole(file)
        except NotWhole:
            return None
        except BadBundle as e:
            path = self.folder.root / ANSWERS / f"{request.sha}.json"
            raise EnvironmentFault(f"{path} is no answer: {e}", f"remove it; {_AGAIN}") from None
        return result

    def _problem(self, request: Request, answer: Answer) -> EnvironmentFault | None:
        """Return why an answer is not usable: refused, or from another GPU. None: it is."""
        content, gpu = answer.said, answer.environment.gpu
        if answer.kind == "refused":
            return EnvironmentFault(
                f"refused in {self.folder.root}: {content['message']}", f"{content['hint']}; {_AGAIN}"
            )
        if request.do != protocol.HELLO or gpu == self.device.name:
            return None
        return EnvironmentFault(*protocol.mismatch(gpu, self.device.name))

    def _read(self, answer: Answer) -> JsonObject:
        """Return the content of an answer. Raises what a judge's `ask` raises."""
        self.environment, content = answer.environment, answer.said
        if answer.kind == "ended":
            raise Ended(content["stage"], content["timed_out"], content["detail"])
        if answer.kind == "fault":
            kinds: dict[str, type[Fault]] = {"TargetFault": TargetFault, "UsageFault": UsageFault}
            raise kinds.get(content["type"], EnvironmentFault)(content["message"], content["hint"])
        for file in answer.artefacts:
            self.contents.put(self.folder.get(file), RECORDS)
        return dict(content)
