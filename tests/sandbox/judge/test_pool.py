"""The judges of several GPUs, with real judge processes and locks: what is spread, what waits, what is quarantined.

The processes are those of `tests/agent/made_up_process.py`: where a GPU is, they hang as they are told.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.profile import pass_runner
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.gpus import Gpu
from pgo_agent.sandbox.judge.interface import Ended
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.questions import Hello, Peaks, Race
from pgo_agent.sandbox.judge.references import BundleRef
from pgo_agent.sandbox.profile.kernel_profile import PassName

from tests.agent.many import Machine, overlapping
from tests.sandbox.judge.test_gpu_lock import HOLDER

BUSY = 0.4  # seconds of a command, where it matters
ENV = {"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": "/usr/bin:/bin"}
RACE = Race(BundleRef("", "", ""), "CASES/1m", "", stress=False)


class Told:
    """What a pool tells of."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.kept: list[tuple[str, str]] = []

    def event(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind} | fields)

    def quarantined(self, gpu: Gpu, why: str) -> None:
        self.kept.append((gpu.uuid, why))


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[GpuPool, Machine, Told]]]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made: list[GpuPool] = []

    def make(gpus: int, quarantined: tuple[str, ...] = (), **control: Any) -> tuple[GpuPool, Machine, Told]:
        machine, told = Machine(tmp_path / f"machine{len(made)}", gpus), Told()
        machine.control(**control)
        judges = machine.judges()
        judges.begin(told.event, told.quarantined, quarantined)
        made.append(judges)
        return judges, machine, told

    yield make
    for judges in made:
        judges.close()


def hello(judges: GpuPool) -> str:
    """Asks for nothing, and gives the GPU that answered."""
    judges.ask(Hello())
    return str(judges.environment.uuid)


# spreading ------------------------------------------------------------------------------------------------------------


def test_pieces_of_work_are_on_all_gpus_at_once_and_each_gpu_answers_one_at_a_time(
    pool: Callable[..., Any],
) -> None:
    judges, machine, _ = pool(3, seconds=BUSY)
    found = dict(judges.together({str(i): lambda: hello(judges) for i in range(9)}, each=2))
    assert set(found.values()) == {"GPU-0", "GPU-1", "GPU-2"} and len(found) == 9
    asked = machine.asked()
    assert overlapping(asked) == []
    assert any(a["began"] < b["ended"] and b["began"] < a["ended"] for a in asked for b in asked if a["gpu"] < b["gpu"])


def test_what_is_asked_within_a_turn_is_asked_of_one_process(pool: Callable[..., Any]) -> None:
    judges, machine, _ = pool(2, seconds=0.05)

    def piece() -> None:
        with judges.turn():
            for _ in range(3):
                hello(judges)

    list(judges.together({str(i): piece for i in range(6)}, each=3))
    asked = sorted((a for a in machine.asked() if a["do"] == "hello"), key=lambda a: a["began"])
    of_gpu = [[a["process"] for a in asked if a["gpu"] == f"GPU-{i}"] for i in range(2)]
    assert overlapping(asked) == [] and all(len(set(processes)) == 1 for processes in of_gpu)


def test_processes_that_were_made_ready_on_every_gpu_are_those_that_answer(pool: Callable[..., Any]) -> None:
    judges, machine, _ = pool(2, seconds=BUSY)
    judges.prepare(1)
    ready = {int(p) for p in subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True).stdout.split()}
    list(judges.together({str(i): lambda: hello(judges) for i in range(2)}))
    asked = machine.asked()
    assert {a["gpu"] for a in asked} == {"GPU-0", "GPU-1"} and {a["process"] for a in asked} <= ready


def test_no_piece_is_begun_any_more_when_there_is_to_be_none(pool: Callable[..., Any]) -> None:
    judges, _, _ = pool(2)
    done: list[str] = []

    def more() -> bool:
        return len(done) < 3

    for name, _ in judges.together({str(i): lambda: hello(judges) for i in range(20)}, more):
        done.append(name)
    assert 3 <= len(done) <= 5


def test_a_piece_that_fails_ends_the_work_after_those_that_were_begun(pool: Callable[..., Any]) -> None:
    judges, _, _ = pool(2, seconds=BUSY)

    def fails() -> str:
        raise ValueError("not this one")

    found = judges.together({"a": lambda: hello(judges), "b": fails, "c": lambda: hello(judges)})
    assert next(found)[0] == "a"
    with pytest.raises(ValueError, match="not this one"):
        next(found)


def test_seconds_are_those_of_the_gpus_and_a_pieces_own(pool: Callable[..., Any]) -> None:
    judges, _, _ = pool(1, seconds=BUSY / 2)

    def piece() -> float:
        hello(judges)
        return float(judges.seconds)

    first, second = dict(judges.together({"a": piece, "b": piece})).values()
    assert first >= 3 * BUSY / 2 and BUSY / 2 <= second < first  # open and hello were for the first
    assert judges.busy == pytest.approx(first + second)


# waiting --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process on GPU-0."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True, env={"XDG_RUNTIME_DIR": str(tmp_path)} | ENV
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "holds \n"
        yield process
        process.kill()


def test_a_gpu_of_another_process_is_waited_for_and_that_costs_nothing_of_the_run(
    pool: Callable[..., Any], holder: "subprocess.Popen[str]"
) -> None:
    judges, _, told = pool(1)
    threading.Timer(0.6, holder.kill).start()
    began = time.monotonic()
    assert hello(judges) == "GPU-0"
    spent = time.monotonic() - began
    assert judges.waited >= 0.5 and spent - judges.waited == pytest.approx(judges.busy, abs=2)
    (event,) = told.events
    assert event == {"type": "gpu.waiting", "index": "0", "uuid": "GPU-0", "holder": f"process {holder.pid}"}


def test_a_piece_that_waits_for_another_one_does_not_count_as_work(
    pool: Callable[..., Any], holder: "subprocess.Popen[str]"
) -> None:
    """Of two passes the second is not begun before it is known what the first one took, and that waits for a GPU."""
    judges, _, _ = pool(1)
    purse = pass_runner.GpuBudget(judges, left=1.2 * pass_runner.FIRST[PassName.COUNTERS])
    threading.Timer(1.0, holder.kill).start()

    def piece() -> str:
        return purse.timed(PassName.COUNTERS, lambda: hello(judges))

    assert dict(judges.together({"a": piece, "b": piece}, each=2)) == {"a": "GPU-0", "b": "GPU-0"}
    assert judges.waited >= 0.8


def test_while_it_is_told_that_a_gpu_is_waited_for_others_may_ask_how_long_and_pass_in_the_line(
    pool: Callable[..., Any], holder: "subprocess.Popen[str]"
) -> None:
    """Whoever books the time of a run does so while others tell of it: six runs on two H100s stood still for ever."""
    judges, _, told = pool(1)
    went: list[str] = []

    def pass_by() -> None:
        went.append(f"waited {judges.waited >= 0}")
        holder.kill()
        with GpuLock(Gpu("GPU-0", "0", "made up")).turn(lambda *_: None):
            went.append("passed")

    def slowly(*_: Any, **__: Any) -> None:
        other = threading.Thread(target=pass_by, daemon=True)
        other.start()
        other.join(10)
        told.event("told")

    judges.begin(slowly, told.quarantined, ())
    assert hello(judges) == "GPU-0"
    assert went == ["waited True", "passed"] and len(told.events) == 1


def test_the_other_gpus_are_used_meanwhile_and_then_nothing_was_waited_for(
    pool: Callable[..., Any], holder: "subprocess.Popen[str]"
) -> None:
    judges, _, told = pool(2)
    found = dict(judges.together({str(i): lambda: hello(judges) for i in range(4)}))
    assert set(found.values()) == {"GPU-1"}
    assert judges.waited < 1 and holder.poll() is None
    assert {e["uuid"] for e in told.events} <= {"GPU-0"}


def test_two_pools_never_use_a_gpu_at_once_and_both_come_to_an_end(pool: Callable[..., Any]) -> None:
    (one, first, _), (two, second, _) = pool(2, seconds=0.1), pool(2, seconds=0.1)
    work = [threading.Thread(target=all_of, args=(judges,)) for judges in (one, two)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    asked = [*first.asked(), *second.asked()]
    assert sum(a["do"] == "hello" for a in asked) >= 12 and overlapping(asked) == []


def all_of(judges: GpuPool) -> None:
    list(judges.together({str(i): lambda: hello(judges) for i in range(6)}))


# quarantine -----------------------------------------------------------------------------------------------------------


def test_a_command_that_hangs_on_a_healthy_gpu_is_to_blame_itself(pool: Callable[..., Any]) -> None:
    judges, machine, told = pool(2, deadline=0.5, hangs={"GPU-0": ["race"], "GPU-1": ["race"]})
    for _ in range(2):  # however often
        assert judges.verdict(RACE).verdict == "timeout"
    assert (told.kept, told.events) == ([], [])
    assert {a["gpu"] for a in machine.asked()} == {"GPU-0"}  # not tried on another one


def test_a_gpu_that_hangs_twice_is_quarantined_and_its_work_moves_to_the_others(pool: Callable[..., Any]) -> None:
    judges, _, told = pool(2, deadline=0.5, hangs={"GPU-0": ["open"]})
    found = dict(judges.together({str(i): lambda: hello(judges) for i in range(4)}))
    assert len(found) == 4 and set(found.values()) == {"GPU-1"}
    ((uuid, why),) = told.kept
    (event,) = (e for e in told.events if e["type"] == "gpu.quarantined")
    assert uuid == "GPU-0" and "no answer before the deadline" in why
    assert (event["uuid"], event["index"], event["left"], event["why"]) == ("GPU-0", "0", 1, why)


def test_a_gpu_that_hangs_in_a_command_and_then_in_its_known_computation_moves_the_command(
    pool: Callable[..., Any],
) -> None:
    judges, machine, told = pool(2, deadline=0.5)
    assert hello(judges) == "GPU-0"
    machine.control(deadline=0.5, hangs={"GPU-0": ["peaks", "open"]})
    assert judges.ask(Peaks("CASES/1m")).moved > 0
    assert judges.environment.uuid == "GPU-1"
    assert [uuid for uuid, _ in told.kept] == ["GPU-0"] and told.kept[0][1].startswith("stopped in 'peaks'")


def test_when_the_last_gpu_is_quarantined_it_is_an_error_that_says_what_to_do(pool: Callable[..., Any]) -> None:
    judges, machine, told = pool(2, deadline=0.4, hangs={"GPU-0": ["open"], "GPU-1": ["open"]})
    with pytest.raises(EnvironmentFault, match="no GPU is left: 2 quarantined") as fault:
        list(judges.together({str(i): lambda: hello(judges) for i in range(4)}))
    assert "pgo-agent resume" in fault.value.hint and len(told.kept) == 2
    with pytest.raises(EnvironmentFault, match="no GPU is left"):
        list(judges.together({"a": lambda: hello(judges)}))
    assert machine.asked() == []


def test_a_quarantined_gpu_is_left_out_later_unless_there_is_no_other(pool: Callable[..., Any]) -> None:
    judges, _, _ = pool(2, quarantined=("GPU-0",))
    assert {hello(judges) for _ in range(3)} == {"GPU-1"}
    again, _, _ = pool(2, quarantined=("GPU-0", "GPU-1"))
    assert hello(again) == "GPU-0"


def test_a_quarantined_gpu_is_free_for_others(pool: Callable[..., Any]) -> None:
    judges, _, _ = pool(2, deadline=0.4, hangs={"GPU-0": ["open"]})
    assert hello(judges) == "GPU-1"
    assert GpuLock(Gpu("GPU-0", "0", "made up")).taken()


def test_a_launch_of_the_targets_own_that_hangs_is_told_as_it_is(pool: Callable[..., Any]) -> None:
    judges, _, told = pool(1, deadline=0.4, hangs={"GPU-0": ["peaks"]})
    with pytest.raises(Ended) as ended:
        judges.ask(Peaks("CASES/1m"))
    assert ended.value.timed_out and told.kept == []


# endings --------------------------------------------------------------------------------------------------------------


def test_closing_while_pieces_work_ends_them_and_quarantines_nothing(pool: Callable[..., Any]) -> None:
    judges, _, told = pool(1, seconds=30)
    ended: list[BaseException] = []

    def piece() -> None:
        try:
            hello(judges)
        except BaseException as e:
            ended.append(e)

    threads = [threading.Thread(target=piece) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    judges.close()
    for thread in threads:
        thread.join(10)
    assert [type(e) for e in ended] == [EnvironmentFault] * 2
    assert (told.kept, told.events) == ([], [])
