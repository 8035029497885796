"""A spool between real processes, as tests use it: the folder, who asks there, and the workers that answer.

Workers are `python -m pgo_agent.sandbox.judge --spool` on this machine: without a GPU they open the target in a judge
process and refuse what needs one.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.client import SpoolJudge
from pgo_agent.sandbox.judge.spool.folder import (
    REQUESTS,
    Folder,
    NotWhole,
)
from pgo_agent.sandbox.judge.spool.protocol import Answer, Request

from tests.agent.command_line import Done, pgo
from tests.sandbox import spool_worker
from tests.sandbox.judge.test_gpu_judge import end
from tests.sandbox.processes import alive, below

H200 = devices.find("h200")


class Spool:
    """A folder, a target, and who asks and answers there."""

    def __init__(self, place: Path, subject: Path) -> None:
        self.root, self.subject, self.contents = place / "spool", subject, ContentStore(place / "shelf")
        self.folder = Folder(self.root)

    def judge(self, subject: Path | None = None) -> SpoolJudge:
        judge = SpoolJudge(self.root, H200, target.read(subject or self.subject), wait=False)
        self.begin(judge)
        return judge

    def begin(self, judge: SpoolJudge) -> None:
        """As a run does that begins or is resumed."""
        judge.begin("subject-1", self.contents, lambda *_: True)

    def arguments(self, *args: str, gpus: str = "none", subject: Path | None = None) -> list[str]:
        return ["--spool", str(self.root), "--target", str(subject or self.subject), "--gpus", gpus, *args]

    def command(self, *args: str, **kwargs: Any) -> list[str]:
        return [sys.executable, "-B", "-m", "pgo_agent.sandbox.judge", *self.arguments(*args, **kwargs)]

    def once(self, **kwargs: Any) -> Done:
        """A worker that answers what is there."""
        return pgo(*self.arguments("--once", **kwargs), cwd=self.root.parent, program=spool_worker.__name__)

    @contextmanager
    def working(self, *args: str, **kwargs: Any) -> Iterator["subprocess.Popen[str]"]:
        """A worker that waits for more, killed with what it started in the end."""
        worker = subprocess.Popen(self.command(*args, **kwargs), stderr=subprocess.PIPE, text=True)
        try:
            yield worker
        finally:
            started = below(worker.pid)
            worker.kill()
            worker.communicate()
            end(started & alive().keys())

    def hello(self, run: str) -> Request:
        """What a run says when it is there; it is asked."""
        return self._asks(run, target.read(self.subject).digest)

    def stranger(self, run: str = "stranger-1") -> Request:
        """The same of a target that nobody allowed: it is refused without a judge process."""
        return self._asks(run, "0" * 64)

    def unknown(self) -> Path:
        """A target that no worker here allows."""
        path = self.subject.with_name("unknown.py")
        path.write_text(f"{self.subject.read_text()}# another text\n")
        return path

    def _asks(self, run: str, digest: str) -> Request:
        request = Request(run, digest, H200.name, protocol.HELLO, {}, ())
        self.folder.make()
        self.folder.ask(request.as_bytes())
        return request

    def asked(self, request: Request) -> Path:
        (found,) = (a for a in self.folder.requests() if a.sha == request.sha)
        return self.root / REQUESTS / found.name

    def answer(self, request: Request) -> Answer | None:
        try:
            return protocol.answer(self.folder.answer(request.sha), request)
        except NotWhole:
            return None

    def bundle(self) -> str:
        """A bundle in the content store with one artefact, which nobody looks into before it is whole."""
        cubin = self.contents.put(b"what a compiler made", "cubin")
        return self.contents.put_bundle({"kernels": {"k": {"files": {"cubin": cubin}}}})
