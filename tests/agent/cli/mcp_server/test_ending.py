"""A run that a client ends over MCP has its last session when what was submitted is judged, and waits for nothing."""

from typing import Any

import anyio
import pytest
from mcp import Client

from tests.agent.cli.mcp_server import serving
from tests.agent.cli.mcp_server.serving import RIGHT, TARGET, call

pytestmark = pytest.mark.long  # two whole runs


@pytest.mark.parametrize("order", ["submit, finish", "finish, submit"])
def test_what_was_submitted_is_judged_and_the_run_ends(url: str, order: str) -> None:
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

    told = serving.by_http(url, talk)
    assert order == "finish, submit" or any("checked" in c for c in told["candidates"])
