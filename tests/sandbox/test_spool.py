"""A spool between real processes: what is asked is answered once, whole, and by nobody who should not.

Workers are `python -m pgo_agent.sandbox.judge --spool` on this machine: without a GPU they open the target in a judge
process and refuse what needs one. The folder is broken as copies by hand, kills and strangers break it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.bundle.shelf import Shelf
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.spool import claims, wire
from pgo_agent.sandbox.judge.spool.claims import Claims
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered
from pgo_agent.sandbox.judge.spool.folder import (
    ANSWERS,
    ARTEFACTS,
    BUNDLES,
    CLAIMS,
    FOLDERS,
    REQUESTS,
    Folder,
    NotWhole,
)
from pgo_agent.sandbox.judge.spool.wire import Answer, Request

from tests.sandbox.processes import alive, below
from tests.sandbox.test_pool import QUICK, end, wait_for, write

H200 = devices.find("h200")
SLOW = f"{QUICK}\nimport time\ntime.sleep(SECONDS)\n"
PICK = {"CASES/one": {"bundle": "0" * 64, "choice": "default"}}


@pytest.fixture
def spool(tmp_path: Path) -> "Spool":
    return Spool(tmp_path, write(tmp_path))


class Spool:
    """A folder, a target, and who asks and answers there."""

    def __init__(self, place: Path, subject: Path) -> None:
        self.root, self.subject, self.shelf = place / "spool", subject, Shelf(place / "shelf")
        self.folder = Folder(self.root)

    def judge(self, subject: Path | None = None) -> SpoolJudge:
        judge = SpoolJudge(self.root, H200, target.read(subject or self.subject), wait=False)
        self.begin(judge)
        return judge

    def begin(self, judge: SpoolJudge) -> None:
        """As a run does that begins or is resumed."""
        judge.begin("subject-1", self.shelf, lambda *_: True)

    def command(self, *args: str, gpus: str = "none", subject: Path | None = None) -> list[str]:
        named = ["--spool", str(self.root), "--target", str(subject or self.subject), "--gpus", gpus, *args]
        return [sys.executable, "-B", "-m", "pgo_agent.sandbox.judge", *named]

    def once(self, **kwargs: Any) -> "subprocess.CompletedProcess[str]":
        """A worker that answers what is there."""
        return subprocess.run(
            self.command("--once", **kwargs), capture_output=True, text=True, check=False, timeout=300
        )

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
        request = Request(run, digest, H200.name, wire.HELLO, {}, ())
        self.folder.make()
        self.folder.ask(request.as_bytes())
        return request

    def asked(self, request: Request) -> Path:
        (found,) = (a for a in self.folder.requests() if a.sha == request.sha)
        return self.root / REQUESTS / found.name

    def answer(self, request: Request) -> Answer | None:
        try:
            return wire.answer(self.folder.answer(request.sha), request)
        except NotWhole:
            return None

    def bundle(self) -> str:
        """A bundle on the shelf with one artefact, which nobody looks into before it is whole."""
        cubin = self.shelf.put(b"what a compiler made", "cubin")
        return self.shelf.put_bundle({"kernels": {"k": {"files": {"cubin": cubin}}}})


# answers --------------------------------------------------------------------------------------------------------------


def test_hello_is_answered_with_what_the_judge_process_says_of_its_machine(spool: Spool) -> None:
    request = spool.hello("subject-1")
    done = spool.once()
    answer = spool.answer(request)
    assert done.returncode == 0, done.stderr
    assert answer is not None and (answer.kind, answer.environment["gpu"]) == ("answer", None)
    assert "torch" in answer.environment and answer.seconds > 0


def test_a_machine_without_the_gpu_that_was_compiled_for_is_an_error_that_says_so(spool: Spool) -> None:
    spool.judge()
    spool.once()
    with pytest.raises(EnvironmentFault, match="has no GPU, and the run compiles for NVIDIA H200"):
        spool.judge()


def test_what_needs_a_gpu_is_refused_where_there_is_none(spool: Spool) -> None:
    judge = spool.judge()
    with pytest.raises(Unanswered):
        judge.ask("peaks", case="CASES/one")
    done = spool.once()
    assert "peaks refused: the machine that answers has no GPU" in done.stderr
    with pytest.raises(EnvironmentFault, match="refused"):
        judge.ask("peaks", case="CASES/one")


def test_another_target_is_refused_and_the_answer_names_what_is_allowed(spool: Spool) -> None:
    request = spool.hello("subject-1")
    other = spool.unknown()
    spool.once(subject=other)
    answer = spool.answer(request)
    assert answer is not None and answer.kind == "refused"
    assert f"is not allowed here, which is unknown {target.read(other).digest[:12]}" in answer.said["message"]


def test_what_was_refused_is_asked_once_more_and_answered_where_it_is_allowed(spool: Spool) -> None:
    judge = spool.judge()
    other = spool.unknown()
    spool.once(subject=other)
    for _ in range(2):  # the second time it waits for the new answer
        with pytest.raises((EnvironmentFault, Unanswered)) as problem:
            spool.begin(judge)
            judge.wait()
    assert problem.type is Unanswered
    assert [a.number for a in spool.folder.requests()] == [1, 2]
    spool.once()
    with pytest.raises(EnvironmentFault, match="has no GPU"):
        spool.begin(judge)


def test_a_target_that_cannot_be_imported_there_ends_the_worker_and_answers_nothing(spool: Spool) -> None:
    spool.subject.write_text(spool.subject.read_text() + "import a_module_that_is_nowhere\n")
    request = spool.hello("subject-1")
    done = spool.once()
    assert done.returncode == 2 and "a_module_that_is_nowhere" in done.stderr
    assert spool.answer(request) is None and not spool.folder.read(CLAIMS, f"{request.sha}.json")


def test_a_target_that_changes_under_a_worker_ends_it_before_it_judges_by_the_new_text(spool: Spool) -> None:
    with spool.working() as worker:
        assert wait_for(lambda: spool.root.is_dir(), 60)
        request = spool.hello("subject-1")
        assert wait_for(lambda: spool.answer(request) is not None, 120)
        spool.subject.write_text(spool.subject.read_text() + "# changed\n")
        late = Request("subject-2", request.target, H200.name, wire.HELLO, {}, ())
        spool.folder.ask(late.as_bytes())
        assert worker.wait(60) == 2
    assert spool.answer(late) is None


def test_a_second_worker_finds_nothing_left_to_answer(spool: Spool) -> None:
    request = spool.stranger()
    spool.once()
    first = (spool.root / ANSWERS / f"{request.sha}.json").read_bytes()
    assert spool.once().stderr == ""
    assert (spool.root / ANSWERS / f"{request.sha}.json").read_bytes() == first


def test_a_worker_without_a_gpu_says_so_and_does_not_begin(spool: Spool) -> None:
    command = [a for a in spool.command("--once") if a not in ("--gpus", "none")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    )
    assert (done.returncode, "no GPU is visible here" in done.stderr) == (3, True)


def test_a_worker_brings_neither_the_agent_nor_torch_into_its_process() -> None:
    code = "import sys, pgo_agent.sandbox.judge.spool.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {"torch", "numpy"} & loaded
    assert not [m for m in loaded if m.startswith("pgo_agent.agent")]


# several workers, and their deaths ------------------------------------------------------------------------------------


def test_two_workers_share_a_folder_and_answer_everything_once(spool: Spool) -> None:
    requests = [spool.stranger(f"stranger-{i}") for i in range(24)]
    both = [
        subprocess.Popen(spool.command("--once"), stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    said = [line for worker in both for line in worker.communicate(timeout=300)[1].splitlines()]
    answered = sorted(line.split()[2] for line in said if "cannot be answered yet" not in line)
    assert answered == sorted(spool.asked(r).name[:15] for r in requests)
    assert all(spool.answer(r) for r in requests)


def test_one_command_serves_several_gpus_by_a_process_for_each(spool: Spool) -> None:
    requests = [spool.stranger(f"stranger-{i}") for i in range(2)]
    done = spool.once(gpus="none,none")
    assert (done.returncode, all(spool.answer(r) for r in requests)) == (0, True), done.stderr


def begun(spool: Spool, request: Request, worker: "subprocess.Popen[str]") -> bool:
    """Whether a worker has claimed a request and its judge process is there."""
    return wait_for(lambda: bool(spool.folder.read(CLAIMS, f"{request.sha}.json")) and len(below(worker.pid)) > 0, 120)


def test_a_worker_that_is_killed_loses_its_claim_and_the_next_one_answers_from_the_start(spool: Spool) -> None:
    spool.subject.write_text(SLOW.replace("SECONDS", "1").replace("DTYPE", "float32"))
    request = spool.hello("subject-1")
    with spool.working() as worker:
        assert begun(spool, request, worker)
        worker.kill()
        worker.wait()
    assert spool.answer(request) is None
    assert not Claims(spool.folder).held(request.sha)
    spool.once()
    assert spool.answer(request) is not None


@pytest.mark.parametrize(("told", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_worker_that_is_told_to_end_takes_its_judge_and_its_claim_with_it(
    spool: Spool, told: signal.Signals, code: int
) -> None:
    spool.subject.write_text(SLOW.replace("SECONDS", "600").replace("DTYPE", "float32"))
    request = spool.hello("subject-1")
    with spool.working() as worker:
        assert begun(spool, request, worker)
        judge = below(worker.pid)
        worker.send_signal(told)
        assert worker.wait(60) == code
        assert wait_for(lambda: not judge & alive().keys(), 10)
    assert spool.folder.read(CLAIMS, f"{request.sha}.json") is None and spool.answer(request) is None


def claim_of_another_machine(spool: Spool, request: Request, age: float) -> Path:
    path = spool.root / CLAIMS / f"{request.sha}.json"
    path.write_text(json.dumps({"host": "other", "pid": 1, "boot": "another boot", "began": "1", "token": "t"}))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_is_answered_while_another_looks_at_it_is_not_answered_again(spool: Spool) -> None:
    request, done = spool.stranger(), list[bool]()
    with ExitStack() as working:
        working.enter_context(Claims(spool.folder).claimed(request.sha, lambda _: False))

        def answered(_: str) -> bool:
            """As it was when the question was put: the other one gives its answer, and lets go, a moment after."""
            before = bool(done)
            done.append(True)
            working.close()
            return before

        with Claims(spool.folder).claimed(request.sha, answered) as ours:
            assert not ours


def test_who_works_on_another_machine_is_not_disturbed(spool: Spool) -> None:
    request = spool.stranger()
    claim_of_another_machine(spool, request, 0)
    assert Claims(spool.folder).held(request.sha)
    with Claims(spool.folder).claimed(request.sha, lambda _: False) as ours:
        assert not ours


def test_a_claim_that_nobody_renews_counts_no_more(spool: Spool) -> None:
    request = spool.stranger()
    path = claim_of_another_machine(spool, request, claims.STALE + 60)
    with Claims(spool.folder).claimed(request.sha, lambda _: False) as ours:
        assert ours and json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


# copies by hand -------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_copied_there_and_back_is_one_folder(spool: Spool, tmp_path: Path) -> None:
    judge = spool.judge()
    there = Spool(tmp_path / "there", spool.subject)
    shutil.copytree(spool.root, there.root)
    there.once()
    shutil.copytree(there.root, spool.root, dirs_exist_ok=True)
    with pytest.raises(EnvironmentFault, match="has no GPU"):
        spool.begin(judge)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_half_a_request_is_none_until_the_rest_is_there(spool: Spool, keep: float) -> None:
    request = spool.stranger()
    path, whole = spool.asked(request), request.as_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    done = spool.once()
    assert "000001" in done.stderr and "cannot be answered yet: is not whole" in done.stderr
    assert spool.answer(request) is None
    path.write_bytes(whole)
    spool.once()
    assert spool.answer(request) is not None


@pytest.mark.parametrize("folder", [BUNDLES, ARTEFACTS])
@pytest.mark.parametrize("left", [None, b"", b"half"])
def test_a_request_waits_for_all_that_it_names(spool: Spool, folder: str, left: bytes | None) -> None:
    unknown = spool.unknown()
    judge, side = spool.judge(subject=unknown), {"CASES/one": {"bundle": {"id": spool.bundle()}, "choice": "default"}}
    with pytest.raises(Unanswered):
        judge.ask("final", sides={"shipped": side}, cases=["CASES/one"])
    (file,) = (spool.root / folder).iterdir()
    whole = file.read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    said = spool.once().stderr
    assert f"{folder}/{file.name} is not {'whole' if left is not None else 'there'}" in said
    assert len(spool.folder.answered()) == 1  # hello
    file.write_bytes(whole)
    assert "final refused: the target" in spool.once().stderr


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_half_an_answer_is_none_until_the_rest_is_there(spool: Spool, keep: float) -> None:
    unknown = spool.unknown()
    judge = spool.judge(unknown)
    spool.once()
    (path,) = (spool.root / ANSWERS).iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(Unanswered):
        judge.wait()
    path.write_bytes(whole)
    with pytest.raises(EnvironmentFault, match="is not allowed here"):
        spool.judge(unknown)


def test_half_an_answer_on_the_answering_side_is_answered_again(spool: Spool) -> None:
    request = spool.stranger()
    spool.once()
    path = spool.root / ANSWERS / f"{request.sha}.json"
    path.write_bytes(path.read_bytes()[:-9])
    spool.once()
    assert spool.answer(request) is not None


# strangers ------------------------------------------------------------------------------------------------------------


def put(spool: Spool, **changes: Any) -> str:
    """A request with other fields, under its right name; gives what it is called."""
    said = json.loads(spool.stranger().as_bytes()) | changes
    data = json.dumps(said).encode()
    spool.folder.ask(data)
    return next(a.sha for a in spool.folder.requests() if spool.folder.request(a) == data)


HOSTILE = {
    "a command that opens paths": {"do": "open", "fields": {"path": "/etc/passwd"}},
    "a candidate's source": {"do": "check", "fields": {"source": "import os"}},
    "an attribute of the judge": {"do": "__init__", "fields": {}},
    "a path for a bundle": {"do": "peaks", "fields": {"case": "a", "bundle": {"manifest": "/etc/passwd"}}},
    "a bundle of another folder": {"files": ["../../etc/passwd"]},
    "a shelf to write on": {"do": "peaks", "fields": {"case": "a", "shelf": "/tmp"}},
    "no fields": {"do": "race", "fields": {}},
    "a bundle that is not brought": {"do": "final", "fields": {"sides": {"shipped": PICK}, "cases": ["CASES/one"]}},
    "unguarded launches": {
        "do": "race",
        "fields": {"bundle": "0" * 64, "case": "a", "choice": "b", "stress": True, "unguarded": True},
    },
    "endless launches": {
        "do": "timeline",
        "fields": {"case": "a", "kernel": "0" * 64, "repeats": 1 << 40, "blocks": 1, "instrumented": 1, "plain": 1},
    },
    "another version": {"schema": 99},
    "a name of a megabyte": {"run": "x" * (1 << 20)},
    "lists in lists": {"fields": {"a": [[[[[[[[]]]]]]]]}},
}


def test_what_is_no_request_is_refused_and_the_next_one_is_answered(spool: Spool) -> None:
    names = {what: put(spool, **changes) for what, changes in HOSTILE.items()}
    (spool.root / REQUESTS / "000000-not-a-request.json").write_text("{}")
    done = spool.once()
    assert done.returncode == 0, done.stderr
    for what, sha in names.items():
        said = json.loads(spool.folder.answer(sha))
        assert said["kind"] == "refused" and "this is no request" in said["said"]["message"], what
    assert "is not allowed here" in json.loads(spool.folder.answer(spool.stranger().sha))["said"]["message"]


def test_a_deeply_nested_request_ends_no_worker(spool: Spool) -> None:
    spool.folder.make()
    spool.folder.ask(b'{"a":' * 100_000)
    assert "this is no request: not JSON" in spool.once().stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_is_a_link_is_not_followed(spool: Spool, tmp_path: Path, folder: str) -> None:
    spool.stranger()
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(spool.root / folder)
    (spool.root / folder).symlink_to(tmp_path / "elsewhere")
    spool.once()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_request_that_is_a_link_a_pipe_or_too_large_is_never_read(spool: Spool, tmp_path: Path) -> None:
    requests = [spool.stranger(f"stranger-{i}") for i in range(3)]
    link, pipe, large = (spool.asked(r) for r in requests)
    for path in (link, pipe, large):
        path.rename(tmp_path / path.name)
    link.symlink_to(tmp_path / link.name)
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(1 << 40)
    assert spool.once().stderr.count("this is no request") == 3


@pytest.mark.parametrize("how", ["link", "pipe", "folder"])
def test_an_answer_that_is_no_plain_file_is_an_error_and_is_not_read(spool: Spool, tmp_path: Path, how: str) -> None:
    unknown = spool.unknown()
    spool.judge(unknown)
    spool.once()
    (path,) = (spool.root / ANSWERS).iterdir()
    path.rename(tmp_path / "kept")
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(tmp_path / "kept"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[how]()
    with pytest.raises(EnvironmentFault, match="is no plain file"):
        spool.judge(unknown)
