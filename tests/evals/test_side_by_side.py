"""`--at-once`: one command makes several runs at a time, and they end, are interrupted and go on with it."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest
from pgo_agent.agent.run.events import Event, Phase
from pgo_agent.agent.run.record.store import Store
from pgo_agent.evals.runner import parallel

from tests.agent.command_line import Done, command, pgo
from tests.evals.rows import kept_schema
from tests.evals.test_ablation import lines, planned

pytestmark = pytest.mark.long  # whole runs, at a time

TWO = ('["none", "all"]', '["none"]'), ("seeds = [1]", "seeds = [1, 2]")
AT_ONCE = ("--judge", "cpu", "--at-once", "2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """Two runs, made at once."""
    folder = tmp_path_factory.mktemp("runs")
    return folder, pgo(*planned(folder, *TWO), *AT_ONCE, "--json", cwd=folder)


def test_each_run_is_made_once_by_a_workspace_of_its_own(made: tuple[Path, Done]) -> None:
    folder, done = made
    assert done.code == 0, done.err
    begun = [e for e in done.events if e["type"] == "run.started"]
    assert sorted(e["workspace"] for e in begun) == ["at-once/1", "at-once/2"]
    assert sorted(str(line["run"]) for line in lines(folder, "run")) == sorted(e["run"] for e in begun)
    for event in begun:
        store = Store(folder / ".pgo-agent" / event["workspace"])
        assert store.run(event["run"]).summary
        store.close()


def test_what_all_runs_came_to_is_told_once_at_the_end(made: tuple[Path, Done]) -> None:
    events = made[1].events
    assert [e["type"] for e in events].count("ablation.completed") == 1
    assert events[-1]["missing"] == 0 and "workspace" not in events[-1]
    jsonschema.validate(events[-1], kept_schema("eval-ablation"))


def test_what_is_built_lies_in_the_workspace_that_was_named(made: tuple[Path, Done]) -> None:
    root = made[0] / ".pgo-agent"
    assert all((root / "at-once" / n / "builds").is_symlink() for n in "12")
    assert list((root / "builds").glob("*.json")) and not list((root / "builds").glob(".*"))


@contextmanager
def at_work(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The command, once both of its processes have begun a run."""
    own = command(*planned(folder, *TWO), *AT_ONCE, "--json")
    with subprocess.Popen(own, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = (line for line in process.stdout if json.loads(line)["type"] == "run.started")
        assert next(begun) and next(begun)
        yield process


def workers(pid: int) -> list[int]:
    """The processes that make runs, without those that both are forked from."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(p) for p in children if b"parent_watch" in Path(f"/proc/{p}/cmdline").read_bytes()]


def gone(folder: Path) -> bool:
    """Whether no run is active in the processes' workspaces: another one may hold them."""
    for n in "12":
        store = Store(folder / ".pgo-agent" / "at-once" / n)
        with store.active("a test"):
            store.close()
    return True


@pytest.mark.slow
def test_ctrl_c_ends_all_and_the_same_command_goes_on_with_the_same_runs(tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Go on with: this very command" in said and gone(tmp_path)
    done = pgo(*planned(tmp_path, *TWO), *AT_ONCE, cwd=tmp_path)
    begun, ended = ([line["run"] for line in lines(tmp_path, what)] for what in ("begun", "run"))
    assert done.code == 0 and sorted(map(str, begun)) == sorted(map(str, ended)) and len(ended) == 2, done.err
    assert "\n1| " in done.err and "\n2| " in done.err and "every run: out.jsonl" in done.out


@pytest.mark.slow
def test_what_a_killed_process_was_at_is_made_by_the_others(tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        os.kill(workers(process.pid)[0], signal.SIGKILL)
        said, err = process.communicate(timeout=120)
    assert process.returncode == 0 and '"missing": 0' in said.splitlines()[-1], err
    assert len(lines(tmp_path, "begun")) == 3 and len(lines(tmp_path, "run")) == 2


@pytest.mark.slow
def test_when_the_command_is_killed_its_processes_end(tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        waiting = [os.pidfd_open(p) for p in workers(process.pid)]
        process.kill()
    assert len(waiting) == 2
    for fd in waiting:
        ended, _, _ = select.select([fd], [], [], 30)  # a pidfd is readable when its process has ended
        os.close(fd)
        assert ended


def test_a_workspace_that_a_run_holds_is_left_to_it(tmp_path: Path) -> None:
    store = Store(tmp_path / ".pgo-agent")
    with store.active("another"):
        done = pgo(*planned(tmp_path, *TWO), *AT_ONCE, cwd=tmp_path)
    store.close()
    assert done.code == 3 and "a run is active" in done.err and not (tmp_path / "out.jsonl").exists()


def test_no_process_at_all_is_no_number_of_them(tmp_path: Path) -> None:
    done = pgo(*planned(tmp_path, *TWO), "--at-once", "0", cwd=tmp_path, COLUMNS="200")
    assert done.code == 2 and "--at-once" in done.err


def test_what_a_process_prints_is_read_to_its_end_even_where_nobody_can_be_told(tmp_path: Path) -> None:
    """A full pipe would keep a run of hours, and its GPU."""
    chatty = [sys.executable, "-c", "print('no event'); print('x' * 1_000_000)"]
    quiet = [sys.executable, "-c", 'print(\'{"type": "phase", "doing": "it"}\')']
    processes = {
        name: subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for name, command in (("1", chatty), ("2", quiet))
    }
    told: list[Event] = []
    assert parallel._heard(processes, parallel._telling(told.append, True)) == [0, 0]
    assert told == [Event(Phase(doing="it"), workspace="at-once/2")]


def test_a_feed_that_breaks_ends_the_wait_for_all(tmp_path: Path) -> None:
    def broken(_event: object) -> None:
        raise BrokenPipeError

    event = 'print(\'{"type": "phase", "doing": "it"}\', flush=True)'
    commands = {"1": "import time; time.sleep(60)", "2": event}
    processes = {n: subprocess.Popen([sys.executable, "-c", c], stdout=-1, text=True) for n, c in commands.items()}
    with pytest.raises(BrokenPipeError):
        parallel._heard(processes, parallel._telling(broken, True))
    for process in processes.values():
        process.kill()
        process.communicate()
