"""judge/pool.py with real judge processes (the CPU judge: no GPU needed): faults, kills, deaths of parents, secrets.

Processes are found in /proc and killed by their id.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import Killed, TargetFault
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.questions import Check

from tests.sandbox import processes
from tests.sandbox.processes import FORKED, alive, below, depth

QUICK = """
import torch
print('{"answer": {"verdict": "accepted"}}')


def kernel(x):
    return x + x


def reference(x):
    return x + x


def inputs(case, generator):
    return {"x": torch.ones(8, dtype=getattr(torch, case["dtype"]), device=generator.device)}


CASES, SMALL, HELD_OUT = {}, {"one": {"dtype": "DTYPE"}}, {}
flops = bytes_moved = len
"""
OTHERS: set[int] = set()  # judges that ran before the test began
SPIN = "while True:\n    pass\n"  # as a candidate: its import never ends
PARENT = """
import sys, time
from pathlib import Path
from pgo_agent.sandbox import target
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.questions import Check

idle, busy = (GpuJudge(target.read(Path(path)), gpu=None, sandbox="none") for path in sys.argv[1:3])
for judge in (idle, busy):
    judge.ask(Check(judge.target.source))
print("ready", flush=True)
busy.ask(Check(sys.argv[3]))
time.sleep(600)
"""


@pytest.fixture
def judging(tmp_path: Path) -> Iterator[Callable[..., GpuJudge]]:
    """Makes judges that are closed afterwards."""
    made: list[GpuJudge] = []
    OTHERS.update(judges(os.getpid()))

    def make(source: str = QUICK, dtype: str = "bfloat16", sandbox: str = "auto") -> GpuJudge:
        made.append(GpuJudge(target.read(write(tmp_path, source, dtype)), gpu=None, sandbox=sandbox))
        return made[-1]

    yield make
    for judge in made:
        judge.close()


def write(folder: Path, source: str = QUICK, dtype: str = "bfloat16") -> Path:
    path = folder / "subject.py"
    path.write_text(source.replace("DTYPE", dtype))
    return path


def check(judge: GpuJudge, source: str | None = None) -> Judgement:
    return judge.verdict(Check(source=judge.target.source if source is None else source))


# processes ------------------------------------------------------------------------------------------------------------


def judges(parent: int) -> set[int]:
    """The judge processes of a process, but for those of other tests."""
    return processes.judges(parent) - OTHERS


def wait_for(happens: Callable[[], bool], seconds: float) -> bool:
    """Whether it happens in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if happens():
            return True
        time.sleep(0.05)
    return happens()


def running() -> set[int]:
    """The interpreter processes: themselves, not a sandbox that is still being set up for one. They are forked from a
    process that judges share."""
    found = alive()
    return {p for p in below(os.getpid(), found) if depth(p, "sandbox.interpreter", found) == 1}


def spinning(_judge: int) -> bool:
    """Whether the interpreter process of the one judge that is asked runs."""
    return bool(running())


def own_judge() -> int:
    wait_for(lambda: bool(judges(os.getpid())), 60)  # a child is known by its command line: once it has one
    (pid,) = judges(os.getpid())
    return pid


# commands -------------------------------------------------------------------------------------------------------------


def test_a_candidate_is_checked_by_a_process_of_its_own(judging: Callable[..., GpuJudge]) -> None:
    judge = judging(dtype="float32")
    assert check(judge).verdict == Verdict.CHECKED
    assert own_judge() != os.getpid()
    assert judge.environment.gpu is None


@pytest.mark.bwrap
def test_interpreters_of_all_judges_are_forked_from_one_process(judging: Callable[..., GpuJudge]) -> None:
    seen = []
    for _ in range(2):
        assert check(judging(dtype="float32", sandbox="bubblewrap")).verdict == Verdict.CHECKED
        seen.append({p for p in below(os.getpid()) if f"{FORKED} {box.INTERPRETER}" in alive().get(p, (0, ""))[1]})
    assert seen[0] == seen[1] != set()
    assert not seen[1] & {p for judge in judges(os.getpid()) for p in below(judge)}


def test_what_a_target_prints_is_not_taken_for_an_answer(judging: Callable[..., GpuJudge]) -> None:
    assert check(judging()).verdict == Verdict.CHECKED


def test_one_process_answers_one_command_after_another(judging: Callable[..., GpuJudge]) -> None:
    judge = judging()
    pids = {own_judge() for _ in range(3) if check(judge)}
    assert len(pids) == 1
    assert judge.replaced == 0


def test_a_target_that_raises_when_imported_is_the_targets_fault(judging: Callable[..., GpuJudge]) -> None:
    judge = judging(QUICK + "raise RuntimeError('no such table')\n")
    for _ in range(2):  # asking again tells the same
        with pytest.raises(TargetFault, match="cannot be imported: RuntimeError: no such table"):
            check(judge)


def test_fresh_gives_the_next_command_a_new_process(judging: Callable[..., GpuJudge]) -> None:
    judge = judging()
    check(judge)
    first = own_judge()
    judge.fresh()
    assert judges(os.getpid()) == set()
    check(judge)
    assert own_judge() != first


def test_a_fresh_process_is_one_that_was_prepared(judging: Callable[..., GpuJudge]) -> None:
    judge = judging()
    check(judge)
    first = own_judge()
    judge.prepare(1)
    wait_for(lambda: len(judges(os.getpid())) == 2, 60)
    (ready,) = judges(os.getpid()) - {first}
    judge.fresh()
    check(judge)
    assert own_judge() == ready


def test_a_prepared_process_that_was_killed_is_no_verdict(judging: Callable[..., GpuJudge]) -> None:
    judge = judging()
    judge.prepare(1)
    os.kill(own_judge(), signal.SIGKILL)
    assert (check(judge).verdict, judge.replaced) == (Verdict.CHECKED, 1)


# kills ----------------------------------------------------------------------------------------------------------------


def kill_when(happens: Callable[[int], bool], times: int = 1) -> threading.Thread:
    """Kills this process's judge when that happens, and as often those that take its place."""

    def kill() -> None:
        for _ in range(times):
            wait_for(lambda: any(map(happens, judges(os.getpid()))), 60)
            pid = own_judge()
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: pid not in alive(), 60)  # type: ignore[misc]

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_judge_killed_while_it_works_is_replaced_and_asked_again(judging: Callable[..., GpuJudge]) -> None:
    judge = judging(dtype="float32")
    killer = kill_when(spinning)
    judged = check(judge, f"import time\ntime.sleep(1.5)\n{judge.target.source}")
    killer.join()
    assert (judged.verdict, judge.replaced) == (Verdict.CHECKED, 1)


def test_a_judge_killed_between_commands_is_replaced_and_asked_again(judging: Callable[..., GpuJudge]) -> None:
    judge = judging()
    check(judge)
    os.kill(own_judge(), signal.SIGKILL)
    assert (check(judge).verdict, judge.replaced) == (Verdict.CHECKED, 1)


def test_a_judge_killed_again_and_again_is_a_fault_and_no_verdict(judging: Callable[..., GpuJudge]) -> None:
    judge = judging(dtype="float32")
    killer = kill_when(spinning, box.ATTEMPTS)
    with pytest.raises(Killed, match=f"the judge process was killed {box.ATTEMPTS} times in a row"):
        check(judge, SPIN)
    killer.join()
    assert check(judge).verdict == Verdict.CHECKED


def test_a_judge_that_ends_by_itself_is_a_crash_and_the_next_command_is_answered(
    judging: Callable[..., GpuJudge],
) -> None:
    judge = judging(f"{QUICK}\ndef inputs(case, generator):\n    import os\n    os._exit(7)\n")
    assert (check(judge).verdict, judge.replaced) == (Verdict.CRASHED, 1)
    judge.target = target.read(write(judge.target.path.parent))
    assert check(judge).verdict == Verdict.CHECKED


# endings --------------------------------------------------------------------------------------------------------------


def test_closing_leaves_no_process_behind(judging: Callable[..., GpuJudge]) -> None:
    judge = judging()
    check(judge)
    pid = own_judge()
    judge.close()
    assert pid not in alive()
    assert judges(os.getpid()) == set()


@pytest.mark.parametrize("sandbox", box.KINDS)
def test_a_judge_that_is_killed_takes_the_candidate_that_it_runs_with_it(
    judging: Callable[..., GpuJudge], sandbox: str
) -> None:
    if box.problem_with(sandbox):
        pytest.skip(f"{sandbox} does not work here")
    judge = judging(dtype="float32", sandbox=sandbox)
    left: set[int] = set()

    def seen(pid: int) -> bool:
        left.update(below(pid), found := running())
        return bool(found)

    killer = kill_when(seen, box.ATTEMPTS)
    with pytest.raises(Killed):
        check(judge, SPIN)
    killer.join()
    try:
        assert wait_for(lambda: not left & alive().keys(), 5)
    finally:
        end(left & alive().keys())


def end(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.mark.long
def test_judges_idle_and_busy_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    for name in ("idle", "busy"):
        (tmp_path / name).mkdir()
    idle, busy = write(tmp_path / "idle"), write(tmp_path / "busy", dtype="float32")
    command = [sys.executable, "-c", PARENT, idle, busy, SPIN]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    both = judges(parent.pid)
    assert len(both) == 2 and wait_for(lambda: bool(running()), 60)
    everything = below(parent.pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        assert wait_for(lambda: not both & alive().keys(), 5)
    finally:
        end(everything & alive().keys())


# secrets --------------------------------------------------------------------------------------------------------------


def test_keys_tokens_and_secrets_are_not_passed_on(
    judging: Callable[..., GpuJudge], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET", "MONKEY_BUSINESS"):
        monkeypatch.setenv(name, "a-value")
    told = tmp_path / "told.json"
    check(judging(f"{QUICK}\nimport json, os\nopen({str(told)!r}, 'x').write(json.dumps(dict(os.environ)))\n"))
    passed = json.loads(told.read_text())
    first = Path(f"/proc/{own_judge()}/environ").read_text().split("\0")
    assert [n for n in (*passed, *(v.split("=")[0] for v in first)) if n.endswith(("_KEY", "_TOKEN", "_SECRET"))] == []
    assert passed["MONKEY_BUSINESS"] == "a-value"
    assert passed["CUDA_VISIBLE_DEVICES"] == ""
