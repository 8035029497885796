"""A spool between real processes: what is asked is answered once, whole, and by nobody who should not."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.questions import Peaks
from pgo_agent.sandbox.judge.spool import leases, protocol
from pgo_agent.sandbox.judge.spool.client import Unanswered
from pgo_agent.sandbox.judge.spool.folder import (
    ANSWERS,
    CLAIMS,
)
from pgo_agent.sandbox.judge.spool.leases import Claims
from pgo_agent.sandbox.judge.spool.protocol import Request

from tests.sandbox.judge.test_gpu_judge import QUICK, wait_for, write
from tests.sandbox.processes import alive, below
from tests.sandbox.spooling import H200, Spool

SLOW = f"{QUICK}\nimport time\ntime.sleep(SECONDS)\n"


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, write(tmp_path))


# answers --------------------------------------------------------------------------------------------------------------


def test_hello_is_answered_with_what_the_judge_process_says_of_its_machine(spool: Spool) -> None:
    request = spool.hello("subject-1")
    done = spool.once()
    answer = spool.answer(request)
    assert done.code == 0, done.err
    assert answer is not None and (answer.kind, answer.environment.gpu) == ("answer", None)
    assert answer.environment.torch and answer.seconds > 0


def test_a_machine_without_the_gpu_that_was_compiled_for_is_an_error_that_says_so(spool: Spool) -> None:
    spool.judge()
    spool.once()
    with pytest.raises(EnvironmentFault, match="has no GPU, and the run compiles for NVIDIA H200"):
        spool.judge()


def test_what_needs_a_gpu_is_refused_where_there_is_none(spool: Spool) -> None:
    judge = spool.judge()
    with pytest.raises(Unanswered):
        judge.ask(Peaks("CASES/one"))
    done = spool.once()
    assert "peaks refused: the machine that answers has no GPU" in done.err
    with pytest.raises(EnvironmentFault, match="refused"):
        judge.ask(Peaks("CASES/one"))


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
    assert done.code == 2 and "a_module_that_is_nowhere" in done.err
    assert spool.answer(request) is None and not spool.folder.read(CLAIMS, f"{request.sha}.json")


@pytest.mark.long
def test_a_target_that_changes_under_a_worker_ends_it_before_it_judges_by_the_new_text(spool: Spool) -> None:
    with spool.working() as worker:
        assert wait_for(lambda: spool.root.is_dir(), 60)
        request = spool.hello("subject-1")
        assert wait_for(lambda: spool.answer(request) is not None, 120)
        spool.subject.write_text(spool.subject.read_text() + "# changed\n")
        late = Request("subject-2", request.target, H200.name, protocol.HELLO, {}, ())
        spool.folder.ask(late.as_bytes())
        assert worker.wait(60) == 2
    assert spool.answer(late) is None


def test_a_second_worker_finds_nothing_left_to_answer(spool: Spool) -> None:
    request = spool.stranger()
    spool.once()
    first = (spool.root / ANSWERS / f"{request.sha}.json").read_bytes()
    assert spool.once().err == ""
    assert (spool.root / ANSWERS / f"{request.sha}.json").read_bytes() == first


def test_a_worker_without_a_gpu_says_so_and_does_not_begin(spool: Spool) -> None:
    command = [a for a in spool.command("--once") if a not in ("--gpus", "none")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    )
    assert (done.returncode, "no GPU is visible here" in done.stderr) == (3, True)


def test_a_worker_brings_neither_the_agent_nor_torch_into_its_process() -> None:
    code = "import sys, pgo_agent.sandbox.judge.spool.server; print(*sys.modules)"
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
    assert (done.code, all(spool.answer(r) for r in requests)) == (0, True), done.err


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
    path = claim_of_another_machine(spool, request, leases.STALE + 60)
    with Claims(spool.folder).claimed(request.sha, lambda _: False) as ours:
        assert ours and json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()
