"""The side that answers: `python -m pgo_agent.sandbox.judge --spool DIR --target FILE`, on the machine of the GPU.

Takes the oldest request, asks a judge process of this machine (`gpu_judge.py`), and writes the answer. The folder is
hostile: `protocol.py` limits requests, the judge process checks bundles as always, and the target is a local file,
allowed by its digest. A request that was begun and not answered is begun again by the next server. Decides nothing and
imports nothing of the agent.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import BadBundle, EnvironmentFault, Fault, UsageFault
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge import by_hash, gpus
from pgo_agent.sandbox.judge.gpu_judge import Ended, GpuJudge
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.machine import NOWHERE, Environment
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.folder import Asked, Folder, NotWhole, pause
from pgo_agent.sandbox.judge.spool.leases import Claims
from pgo_agent.sandbox.judge.spool.protocol import Answer, Request
from pgo_agent.sandbox.target import Target
from pgo_agent.sandbox.temporary_folders import temporary_folder

NONE = "none"  # name of no GPU, to test a folder: requests that need a GPU are refused
Turn = Callable[[], AbstractContextManager[Any]]  # holds the GPU during a request
TAKEN = "somebody is at it, or was killed a moment ago"
ALLOW = "start it there with `--target FILE`, the same text as the run's"


class Held(Protocol):
    """The judge process of a GPU."""

    busy: float

    def open(self) -> Environment: ...
    def answer(self, command: str, fields: JsonObject) -> JsonObject: ...
    def fresh(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Refused:
    """Why a request is refused, and what to do."""

    message: str
    hint: str


class Worker:
    """Answers requests on one GPU. `judge`: makes the judge of a target."""

    def __init__(
        self, folder: Folder, targets: Mapping[str, Target], judge: Callable[[Target], Held], turn: Turn = nullcontext
    ) -> None:
        self.folder, self.targets, self._make, self._turn = folder, targets, judge, turn
        self.claims = Claims(folder)
        self._held: tuple[str, Held] | None = None  # digest of the target, and its judge
        self._process: tuple[str, ...] = ()  # whose requests its process answered
        self._whole: set[str] = set()  # requests with a checked answer

    def serve(self, once: bool, say: Callable[[str], None]) -> None:
        """Answer all requests, then new ones unless `once`. Raises Faults that a person here must fix."""
        reported: dict[str, str] = {}
        looks = 0
        while True:
            waiting: dict[str, str] = {}
            answered = [asked for asked in self._open() if self._in_turn(asked, waiting, say)]
            over = once and not answered
            for name, why in sorted(waiting.items()):
                if reported.get(name) != why if why != TAKEN else over:
                    say(f"{name[:15]} cannot be answered yet: {why}")
            reported = waiting
            if over:
                return
            if not answered:
                pause(looks)
            looks = 0 if answered else looks + 1

    def close(self) -> None:
        if self._held:
            self._held[1].close()

    # one request ------------------------------------------------------------------------------------------------------

    def _open(self) -> list[Asked]:
        self._whole |= {sha for sha in self.folder.answered() - self._whole if self._has_answer(sha)}
        return [a for a in self.folder.requests() if a.sha not in self._whole]

    def _has_answer(self, sha: str) -> bool:
        """Whether a request has an answer with all its files; one without is answered again."""
        try:
            for file in protocol.artefacts(self.folder.answer(sha)):
                self.folder.whole(file)
        except NotWhole:
            return False
        except BadBundle:
            return True  # not ours to replace
        return True

    def _in_turn(self, asked: Asked, waiting: dict[str, str], say: Callable[[str], None]) -> bool:
        """`_answered` with the GPU held: a claim made before that would wait for this GPU while others are free."""
        with self._turn():
            return not self._has_answer(asked.sha) and self._answered(asked, waiting, say)

    def _answered(self, asked: Asked, waiting: dict[str, str], say: Callable[[str], None]) -> bool:
        """Answer a request; return whether it was answered here, or note in `waiting` why not yet."""
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
        outcome = answer.said["message"] if answer.kind == "refused" else f"{answer.seconds:.1f} s"
        say(f"{asked.name[:15]} {'' if isinstance(request, Refused) else request.do} {answer.kind}: {outcome}")
        return True

    def _request(self, asked: Asked) -> Request | Refused:
        """Read a request and check that all its files are whole. Raises NotWhole."""
        try:
            result = protocol.request(self.folder.request(asked))
            for file in result.files:
                self._there(file)
        except BadBundle as e:
            return Refused(f"this is no request: {e}", "let both sides run the same version")
        return result

    def _there(self, file: str) -> None:
        try:
            self.folder.whole(file)
        except NotWhole as e:
            raise NotWhole(f"{file} {e}") from None

    def _answer(self, request: Request) -> Answer:
        """Answer a request. Raises Faults of this machine; those of an opened target become answers."""
        chosen = self.targets.get(request.target)
        if chosen is None:
            allowed = ", ".join(f"{t.name} {digest[:12]}" for digest, t in self.targets.items())
            return self._refused(
                request.sha, Refused(f"the target {request.target[:12]} is not allowed here, which is {allowed}", ALLOW)
            )
        judge = self._judge(request, chosen)
        began, environment = judge.busy, judge.open()
        if request.do != protocol.HELLO and environment.gpu != request.device:
            return self._refused(request.sha, Refused(*protocol.mismatch(environment.gpu, request.device)))
        return self._judged(request, judge, environment, began)

    def _judge(self, request: Request, chosen: Target) -> Held:
        """Return the judge of a target, with a new process where the request names another one."""
        if target.read(chosen.path).digest != chosen.digest:
            raise UsageFault(f"{chosen.path} changed since it was allowed", "start again, if its new text is allowed")
        if self._held and self._held[0] != chosen.digest:
            self._held[1].close()
            self._held = None
        held = self._held = self._held or (chosen.digest, self._make(chosen))
        process = (request.run, request.process) if request.process else ()
        if process != self._process:
            held[1].fresh()
            self._process = process
        return held[1]

    def _judged(self, request: Request, judge: Held, environment: Environment, began: float) -> Answer:
        with temporary_folder("spool") as folder:
            kind, content = self._ask(request, judge, ContentStore(folder))
            files = tuple(by_hash.records(content))
            for file in files:
                self.folder.put(file, by_hash.data(ContentStore(folder), file))
        return Answer(request.sha, kind, content, environment, round(judge.busy - began, 3), files)

    def _ask(self, request: Request, judge: Held, contents: ContentStore) -> tuple[protocol.Kind, JsonObject]:
        fields = by_hash.located(request.fields, self.folder.contents)
        if request.do == "timeline":
            fields["shelf"] = str(contents.root)
        try:
            return "answer", judge.answer(request.do, fields)
        except Ended as e:
            return "ended", {"stage": e.stage, "timed_out": e.timed_out, "detail": e.detail[-8000:]}
        except UsageFault as e:
            return "fault", {"type": type(e).__name__, "message": e.message, "hint": e.hint}

    @staticmethod
    def _refused(sha: str, why: "Refused") -> Answer:
        return Answer(sha, "refused", {"message": why.message, "hint": why.hint}, NOWHERE, 0.0)


# the command ----------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Run the server; return the exit code: 0 done or told to end, 2 usage, 3 environment, 130 interrupted."""
    args = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        folder, targets = Folder(args.spool), {t.digest: t for t in map(target.read, args.target)}
        folder.make()
        devices = _wanted(args.gpus)
        return _serve_gpus(devices, arguments) if len(devices) > 1 else _serve_gpu(devices[0], folder, targets, args)
    except Fault as e:
        print(f"error: {e}", file=sys.stderr, flush=True)
        return 2 if isinstance(e, UsageFault) else 3
    except KeyboardInterrupt:
        return 130


def _wanted(names: str | None) -> list[Gpu | None]:
    """Return at least one GPU, or None for each `none`. Raises UsageFault, EnvironmentFault."""
    listed = (names or "").split(",")
    devices: list[Gpu | None] = [*gpus.usable(names)] if set(listed) != {NONE} else [None for _ in listed]
    if not devices:
        raise EnvironmentFault("no GPU is visible here", f"check nvidia-smi; --gpus {NONE} tries out the folder")
    return devices


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


def _serve_gpu(gpu: Gpu | None, folder: Folder, targets: Mapping[str, Target], args: argparse.Namespace) -> int:
    if args.child:
        from pgo_agent.sandbox.judge.__main__ import end_with

        end_with(os.getppid())

    def say(text: str) -> None:
        print(f"gpu {gpu.index if gpu else NONE}: {text}", file=sys.stderr, flush=True)

    lock = GpuLock(gpu) if gpu else None
    alone = turns(lock, say) if lock else nullcontext
    uuid = gpu.uuid if gpu else None
    worker = Worker(folder, targets, lambda chosen: GpuJudge(chosen, gpu=uuid, lock=lock), alone)
    if not args.once:
        say(f"answers in {folder.root} for {', '.join(t.name for t in targets.values())}; Ctrl-C ends it")
    with closing(worker):
        worker.serve(args.once, say)
    return 0


def turns(lock: GpuLock, say: Callable[[str], None]) -> Turn:
    """Return the turns of a worker; each holder that it waits for is reported once."""
    reported = set[str]()

    def tell(_: Gpu, holder: str) -> None:
        if holder not in reported:
            reported.add(holder)
            say(f"waits: {holder} uses it")

    return lambda: lock.turn(tell)


def _serve_gpus(devices: Sequence[Gpu | None], arguments: Sequence[str]) -> int:
    """Run a process for each GPU with this one's arguments; return the largest exit code."""
    command = [sys.executable, "-B", "-m", "pgo_agent.sandbox.judge", *arguments, "--child", "--gpus"]
    running = [subprocess.Popen([*command, gpu.uuid if gpu else NONE]) for gpu in devices]
    try:
        return max(process.wait() for process in running)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
