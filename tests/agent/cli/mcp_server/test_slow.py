"""Commands of an MCP server that outlast a call: many callers, few processes, and what no process can be given."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.agent.cli.mcp_server import server, slow
from pgo_agent.agent.cli.mcp_server.allowance import Allowance
from pgo_agent.agent.cli.mcp_server.slow import Commands
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    started = Commands(tmp_path)
    yield started
    started.close()


def test_all_who_ask_the_same_at_once_get_the_one_answer(commands: Commands) -> None:
    with ThreadPoolExecutor(5) as callers:
        answers = list(callers.map(lambda _: commands.run(["--help"], 50.0), range(5)))
    assert len(set(answers)) == 1 and answers[0].state == "done" and answers[0].code == 0


def test_of_different_commands_only_so_many_are_at_work(commands: Commands) -> None:
    for n in range(slow.MOST):
        assert commands.run(["schema", f"none-{n}"], 0.0).state == "working"
    with pytest.raises(UsageFault, match="at work already"):
        commands.run(["schema", "one more"], 0.0)


@pytest.mark.parametrize("argument", ["a\0b", "a" * 300_000])
def test_what_no_process_can_be_given_is_refused_in_words(commands: Commands, argument: str) -> None:
    with pytest.raises(UsageFault, match="cannot be started"):
        commands.run(["init", argument], 0.0)


def test_commands_end_with_the_server_however_it_dies(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from pgo_agent.agent.cli.mcp_server.slow import Commands\n"
        "commands = Commands(Path(sys.argv[1])); commands.run(['doctor'], 0.0)\n"
        "(running,) = commands._running.values(); print(running.process.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as server_:
        assert server_.stdout is not None
        ends = os.pidfd_open(int(server_.stdout.readline()))
        server_.kill()
    assert select.select([ends], [], [], 30)[0]  # a pidfd is readable when its process has ended
    os.close(ends)


def test_all_runs_of_a_server_share_what_they_may_take(tmp_path: Path) -> None:
    allowance, asked = Allowance(minutes=10.0, gpu_seconds=60.0), RunSettings(minutes=8.0)
    with closing(Store(tmp_path / "ws")) as store:
        assert allowance.of_next(store, asked) == replace(asked, gpu_seconds=60.0)
        for run in ("add-1", "add-2", "of-another-server"):
            store.add_run(run, Path("add.py"), "d", "", "h200", asked, RunFacts())
        allowance.runs |= {"add-1", "add-2"}
        store.add_seconds("add-1", 240.0, 20.0)
        left = allowance.of_next(store, asked)
        assert (left.minutes, left.gpu_seconds) == (6.0, 40.0)
        store.add_seconds("add-2", 10.0, 40.0)
        with pytest.raises(UsageFault, match=r"60\.0 seconds of the GPU, of 60 that they may"):
            allowance.of_next(store, asked)


def test_a_wait_is_a_number_between_none_and_the_most() -> None:
    assert [server._seconds(x) for x in (float("nan"), -1.0, 7.0, float("inf"))] == [0.0, 0.0, 7.0, server.MOST_WAIT]
