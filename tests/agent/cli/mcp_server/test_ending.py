"""A run that a client ends over MCP has its last session when what was submitted is judged, and waits for nothing."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from pgo_agent.agent.cli.mcp_server import worker

from tests.agent.cli.mcp_server import serving
from tests.agent.cli.mcp_server.serving import ADD, TARGET, call, refused

RIGHT = ADD.replace('"BLOCK": 2048', '"BLOCK": 1024')


@pytest.mark.parametrize("order", ["submit, finish", "finish, submit"])
def test_what_was_submitted_is_judged_and_the_run_ends(order: str, tmp_path: Path) -> None:
    root = serving.folder(tmp_path)

    async def talk(client: Client) -> dict[str, Any]:
        while (told := await call(client, "baselines", target=TARGET))["state"] != "known":
            await anyio.sleep(0.2)
        await anyio.sleep(1.0)  # the run waits for what comes
        run = told["run"]
        calls = {"submit": {"target": TARGET, "candidate": RIGHT}, "finish": {"run": run}}
        for name in order.split(", "):
            await call(client, name, **calls[name])
        with anyio.fail_after(90):
            while (told := await call(client, "report", run=run))["state"] not in ("ranked", "done", "none_found"):
                await anyio.sleep(0.2)
        return dict(told)

    try:
        told = serving.by_stdio(root, talk)
        assert order == "finish, submit" or any("checked" in c for c in told["candidates"])
    finally:
        serving.kill(root, worker.MODULE)


def test_a_target_is_written_nowhere_where_it_would_be_run_or_read_as_something_else(tmp_path: Path) -> None:
    root = serving.folder(tmp_path)

    async def talk(client: Client) -> list[str]:
        places = (".git/hooks/pre-commit", ".hidden/a.py", "ws/evil.py", "notes.txt", "../a.py")
        return [await refused(client, "init", file=TARGET, call="kernel(1, 2)", output=p) for p in places]

    assert all("no place for a target" in r or "outside of the folder" in r for r in serving.by_stdio(root, talk))
