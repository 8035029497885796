"""A winner is written into its file over MCP only after a person, or a second call that names the diff, said yes."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ElicitResult
from pgo_agent.agent.cli.mcp_server import server
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.candidate import NewCandidate, candidate_id
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.coverage import Count, Coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.cli.mcp_server.serving import ADD, RIGHT, call, refused

Answer = Callable[[Any, Any], Awaitable[ElicitResult]]


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[server.Tools]:
    """The tools over a workspace in which RIGHT was accepted for the target."""
    file, store = tmp_path / "add.py", Store(tmp_path / "ws")
    file.write_text(ADD)
    subject = target.read(file)
    store.add_run("add-1", file, subject.digest, subject.source, "h100", RunSettings(), RunFacts())
    named = NewCandidate(
        id=candidate_id(RIGHT), parent="shipped", kind="source", move="m", rationale="r", author="a", source=RIGHT
    )
    store.add_generation("add-1", 1, "shipped", [named])
    accepted = Judgement(Verdict.ACCEPTED, "confirm", plain("2x"), {}, Coverage({"cases": Count(1, 1)}))
    store.set_verdict("add-1", named.id, accepted, 2.0, 1.0)
    store.set_state("add-1", "done")
    yield server.Tools(store, tmp_path, RunSettings(judge="cpu"), 60.0)
    store.close()


def talked(tools: server.Tools, talk: Callable[[Client], Awaitable[Any]], person: Answer | None = None) -> Any:
    async def go() -> Any:
        async with Client(server.made(tools), elicitation_callback=person) as client:
            return await talk(client)

    return anyio.run(go)


@pytest.mark.parametrize("yes", [False, True])
def test_where_the_client_can_ask_the_person_decides(tools: server.Tools, tmp_path: Path, yes: bool) -> None:
    async def person(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"write": yes})

    async def talk(client: Client) -> Any:
        return await call(client, "apply", run="add-1")

    assert talked(tools, talk, person)["state"] == ("written" if yes else "declined")
    assert (tmp_path / "add.py").read_text() == (RIGHT if yes else ADD)


def test_where_it_cannot_only_a_call_that_names_the_diff_writes(tools: server.Tools, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        first = await call(client, "apply", run="add-1")
        assert first["state"] == "confirm" and "4096" in first["diff"] and (tmp_path / "add.py").read_text() == ADD
        assert (await call(client, "apply", run="add-1", confirm="yes"))["state"] == "confirm"
        assert (await call(client, "apply", run="add-1", confirm=first["confirm"]))["state"] == "written"

    talked(tools, talk)
    assert (tmp_path / "add.py").read_text() == RIGHT and (tmp_path / "add.py.orig").read_text() == ADD


def test_a_file_that_changed_meanwhile_is_left_as_it_is(tools: server.Tools, tmp_path: Path) -> None:
    (tmp_path / "add.py").write_text(ADD + "# edited\n")

    async def talk(client: Client) -> str:
        return await refused(client, "apply", run="add-1")

    assert "changed since run" in talked(tools, talk)
