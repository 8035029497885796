"""Commands of an MCP server that outlast a call: many callers, few processes, and what no process can be given."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pgo_agent.agent.cli.mcp_server import server, slow
from pgo_agent.agent.cli.mcp_server.slow import Commands
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


def test_a_wait_is_a_number_between_none_and_the_most() -> None:
    assert [server._seconds(x) for x in (float("nan"), -1.0, 7.0, float("inf"))] == [0.0, 0.0, 7.0, server.MOST_WAIT]
