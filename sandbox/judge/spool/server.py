"""The side that answers: `python -m pgo_agent.sandbox.judge --spool DIR --target FILE`, on the machine of the GPU.

Takes requests, the oldest first, asks a judge process of this machine (`gpu_judge.py`), and writes its answers. What is
in the folder is hostile: a request asks what `protocol.py` lets it, its bundles are checked by the judge process as all
are, and the target is this side's own file, allowed by its digest. A request that was begun and not answered is
answered from its start by the next. It decides nothing and imports nothing of the agent.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.store import RECORDS, ContentStore
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, Fault, UsageFault
from pgo_agent.sandbox.judge import gpus
from pgo_agent.sandbox.judge.gpu_judge import Ended, GpuJudge, bundle_ref
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.folder import Asked, Folder, NotWhole
from pgo_agent.sandbox.judge.spool.leases import Claims
from pgo_agent.sandbox.judge.spool.protocol import Answer, Request
from pgo_agent.sandbox.target import Target

POLL = 0.5  # seconds between looks
NONE = "none"  # as a name of a GPU: to try a folder out; everything that needs a GPU is refused
Turn = Callable[[], AbstractContextManager[Any]]  # around a request: nobody else uses the GPU
TAKEN = "somebody is at it, or was killed a moment ago"
ALLOW = "start it there with `--target FILE`, the same text as the run's"


class Held(Protocol):
    """The judge process of a GPU."""

    busy: float

    def open(self) -> dict[str, Any]: ...
    def ask(self, command: str, **fields: Any) -> dict[str, Any]: ...
    def fresh(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Refused:
    """Why a request is not answered here, and what to do."""

    message: str
    hint: str


class Worker:
    """Answers for one GPU. `judge`: makes the judge of a target."""

    def __init__(
        self, folder: Folder, targets: Mapping[str, Target], judge: Callable[[Target], Held], turn: Turn = nullcontext
    ) -> None:
        self.folder, self.targets, self._make, self._turn = folder, targets, judge, turn
        self.claims = Claims(folder)
        self._held: tuple[str, Held] | None = None  # digest of the target, and its judge
        self._process: tuple[str, ...] = ()  # whose requests its process answered
        self._whole: set[str] = set()  # requests with an answer that was looked at

    def serve(self, once: bool, say: Callable[[str], None]) -> None:
        """Answers what is there; then what comes, unless `once`. Raises Faults for what a person here must mend."""
        told: dict[str, str] = {}
        while True:
            waiting: dict[str, str] = {}
            found = [asked for asked in self._open() if self._in_turn(asked, waiting, say)]
            over = once and not found
            for name, why in sorted(waiting.items()):
                if told.get(name) != why if why != TAKEN else over:
                    say(f"{name[:15]} cannot be answered yet: {why}")
            told = waiting
            if over:
                return
            if not found:
                time.sleep(POLL)

    def close(self) -> None:
        if self._held:
            self._held[1].close()

    # one request ------------------------------------------------------------------------------------------------------

    def _open(self) -> list[Asked]:
        self._whole |= {sha for sha in self.folder.answered() - self._whole if self._has_answer(sha)}
        return [a for a in self.folder.requests() if a.sha not in self._whole]

    def _has_answer(self, sha: str) -> bool:
        """With every file that it names: one that lost some is given again, or who asked would wait forever."""
        try:
            for file in protocol.artefacts(self.folder.answer(sha)):
                self.folder.whole(file)
        except NotWhole:
            return False
        except BadBundle:
            return True  # somebody put it there: it is not for us to replace
        return True

    def _in_turn(self, asked: Asked, waiting: dict[str, str], say: Callable[[str], None]) -> bool:
        """`_answered`, with the GPU: what is claimed before waits for it, though another one may be free."""
        with self._turn():
            return not self._has_answer(asked.sha) and self._answered(asked, waiting, say)

    def _answered(self, asked: Asked, waiting: dict[str, str], say: Callable[[str], None]) -> bool:
        """Whether it was this one who answered; or why it cannot be yet."""
        try:
            request = self._request(asked)
        except NotWhole as e:
            waiting[asked.name] = str(e)
            return False
        with self.claims.claimed(asked.sha, self._has_answer) as ours:
            if not ours:
                if not self._has_answer(asked.sha):
                    waiting[asked.name] = TAKEN
                return False
            answer = self._refused(asked.sha, request) if isinstance(request, Refused) else self._answer(request)
            self.folder.give(asked.sha, answer.as_bytes())
        told = answer.said["message"] if answer.kind == "refused" else f"{answer.seconds:.1f} s"
        say(f"{asked.name[:15]} {'' if isinstance(request, Refused) else request.do} {answer.kind}: {told}")
        return True

    def _request(self, asked: Asked) -> Request | Refused:
        """What is asked, with all that it names there and whole. Raises NotWhole."""
        try:
            found = protocol.request(self.folder.request(asked))
            for file in found.files:
                self._there(file)
        except BadBundle as e:
            return Refused(f"this is no request: {e}", "let both sides run the same version")
        return found

    def _there(self, file: str) -> None:
        try:
            self.folder.whole(file)
        except NotWhole as e:
            raise NotWhole(f"{file} {e}") from None

    def _answer(self, request: Request) -> Answer:
        """Raises Faults of this machine; those of the target are an answer once it could be opened."""
        found = self.targets.get(request.target)
        if found is None:
            told = ", ".join(f"{t.name} {digest[:12]}" for digest, t in self.targets.items())
            return self._refused(
                request.sha, Refused(f"the target {request.target[:12]} is not allowed here, which is {told}", ALLOW)
            )
        judge = self._judge(request, found)
        began, environment = judge.busy, judge.open()
        if request.do != protocol.HELLO and environment["gpu"] != request.device:
            return self._refused(request.sha, Refused(*protocol.mismatch(environment["gpu"], request.device)))
        return self._judged(request, judge, environment, began)

    def _judge(self, request: Request, found: Target) -> Held:
        """The judge of its target, with a process that answered no other's requests where that matters."""
        if target.read(found.path).digest != found.digest:
            raise UsageFault(f"{found.path} changed since it was allowed", "start again, if its new text is allowed")
        if self._held and self._held[0] != found.digest:
            self._held[1].close()
            self._held = None
        held = self._held = self._held or (found.digest, self._make(found))
        process = (request.run, request.process) if request.process else ()
        if process != self._process:
            held[1].fresh()
            self._process = process
        return held[1]

    def _judged(self, request: Request, judge: Held, environment: Mapping[str, Any], began: float) -> Answer:
        with tempfile.TemporaryDirectory(prefix="pgo-spool-") as own:
            kind, said = self._said(request, judge, ContentStore(Path(own)))
            names = [d for r in said.get("repeats") or () for d in (r["headers"], r["records"])]
            kept = tuple(f"artefacts/{digest}.{RECORDS}" for digest in names)
            for digest, file in zip(names, kept, strict=True):
                self.folder.put(file, ContentStore(Path(own)).get(digest, RECORDS))
        return Answer(request.sha, kind, said, environment, round(judge.busy - began, 3), kept)

    def _said(self, request: Request, judge: Held, own: ContentStore) -> tuple[protocol.Kind, dict[str, Any]]:
        fields = located(request.fields, self.folder.contents)
        if request.do == "timeline":
            fields["shelf"] = str(own.root)
        try:
            return "answer", judge.ask(request.do, **fields)
        except Ended as e:
            return "ended", {"stage": e.stage, "timed_out": e.timed_out, "detail": e.detail[-8000:]}
        except UsageFault as e:
            return "fault", {"type": type(e).__name__, "message": e.message, "hint": e.hint}

    @staticmethod
    def _refused(sha: str, why: "Refused") -> Answer:
        return Answer(sha, "refused", {"message": why.message, "hint": why.hint}, {}, 0.0)


def located(x: Any, contents: ContentStore) -> Any:
    """A request's fields as the judge process takes them: bundles by where they lie here."""
    if isinstance(x, dict):
        named = {k: bundle_ref(contents, v) for k, v in x.items() if k == "bundle" and isinstance(v, str)}
        return {k: located(v, contents) for k, v in x.items()} | named
    return [located(v, contents) for v in x] if isinstance(x, list) else x


# the command ----------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Gives the exit code: 0 done or told to end, 2 usage, 3 environment, 130 interrupted."""
    args = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        folder, targets = Folder(args.spool), {t.digest: t for t in map(target.read, args.target)}
        folder.make()
        found = _wanted(args.gpus)
        return _each(found, arguments) if len(found) > 1 else _one(found[0], folder, targets, args)
    except Fault as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        return 2 if isinstance(e, UsageFault) else 3
    except KeyboardInterrupt:
        return 130


def _wanted(names: str | None) -> list[Gpu | None]:
    """At least one. Raises UsageFault, EnvironmentFault."""
    listed = (names or "").split(",")
    found: list[Gpu | None] = [*gpus.usable(names)] if set(listed) != {NONE} else [None for _ in listed]
    if not found:
        raise EnvironmentFault("no GPU is visible here", f"check nvidia-smi; --gpus {NONE} tries out the folder")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pgo_agent.sandbox.judge",
        description="Answers on this machine's GPUs what runs with `--judge spool:DIR` ask. Whoever may write into DIR "
        "may launch kernels here, and is believed as a judge there.",
        epilog="Exit codes: 0 told to end, or nothing left (--once), 2 usage, 3 environment, 130 interrupted.",
    )
    parser.add_argument("--spool", type=Path, required=True, metavar="DIR", help="The folder of requests and answers.")
    allowed = "A target that may be judged here, of the very text that the run has. May be repeated."
    parser.add_argument("--target", type=Path, required=True, action="append", metavar="FILE", help=allowed)
    parser.add_argument("--once", action="store_true", help="Answer what is there, and end.")
    named = f"By index or UUID, as nvidia-smi lists them. Default: all visible. {NONE}: refuse what needs one."
    parser.add_argument("--gpus", metavar="0,1", help=named)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _one(gpu: Gpu | None, folder: Folder, targets: Mapping[str, Target], args: argparse.Namespace) -> int:
    if args.child:
        from pgo_agent.sandbox.judge.__main__ import end_with

        end_with(os.getppid())

    def say(text: str) -> None:
        print(f"gpu {gpu.index if gpu else NONE}: {text}", file=sys.stderr, flush=True)

    lock = GpuLock(gpu) if gpu else None
    alone = turns(lock, say) if lock else nullcontext
    uuid = gpu.uuid if gpu else None
    worker = Worker(folder, targets, lambda found: GpuJudge(found, gpu=uuid, lock=lock), alone)
    if not args.once:
        say(f"answers in {folder.root} for {', '.join(t.name for t in targets.values())}; Ctrl-C ends it")
    with closing(worker):
        worker.serve(args.once, say)
    return 0


def turns(lock: GpuLock, say: Callable[[str], None]) -> Turn:
    """The turns of a worker; whom it waits for is said once for each holder."""
    told = set[str]()

    def tell(_: Gpu, holder: str) -> None:
        if holder not in told:
            told.add(holder)
            say(f"waits: {holder} uses it")

    return lambda: lock.turn(tell)


def _each(found: Sequence[Gpu | None], arguments: Sequence[str]) -> int:
    """A process for each GPU, all with this one's arguments; the worst of how they end."""
    command = [sys.executable, "-B", "-m", "pgo_agent.sandbox.judge", *arguments, "--child", "--gpus"]
    running = [subprocess.Popen([*command, gpu.uuid if gpu else NONE]) for gpu in found]
    try:
        return max(process.wait() for process in running)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
