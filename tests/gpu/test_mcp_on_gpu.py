"""Over MCP a faster kernel is accepted with its intervals, and written only after a person said yes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import ElicitResult
from pgo_agent.agent.cli.mcp_server import worker

from tests.agent.cli.mcp_server import serving
from tests.agent.cli.mcp_server.serving import ADD, TARGET, call, judged
from tests.agent.command_line import command

pytestmark = pytest.mark.gpu
CONFIGS = '[triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=8)]'
SLOW = ADD.replace(CONFIGS, '[triton.Config({"BLOCK": 32}, num_warps=1)]').replace("[512, 1024]", "[32]")
SLOW = SLOW.replace('"num_warps": [4]', '"num_warps": [1]')
FAST = SLOW.replace('{"BLOCK": 32}, num_warps=1', '{"BLOCK": 1024}, num_warps=4')


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = serving.folder(tmp_path_factory.mktemp("served"))
    (folder / TARGET).write_text(SLOW)
    yield folder
    serving.kill(folder, worker.MODULE)


def test_a_faster_kernel_is_accepted_and_written_after_a_person_said_yes(root: Path) -> None:
    answers = iter(("decline", "accept"))

    async def person(_context: Any, _params: Any) -> ElicitResult:
        action = next(answers)
        return ElicitResult(action=action, content={"write": True} if action == "accept" else None)  # type: ignore[arg-type]

    async def talk() -> None:
        program, *rest = command("mcp", "--root", root, "--store", root / "ws")
        served = stdio_client(StdioServerParameters(command=program, args=rest))
        async with Client(served, elicitation_callback=person) as client:
            (job,) = await call(client, "submit", target=TARGET, candidate=FAST, hypothesis="Longer blocks.")
            result = await judged(client, job["job"])
            assert result["verdict"] == "accepted" and result["over"]["tuned"]["low"] > 1.05, result
            run = job["job"].split("/")[0]
            assert (await call(client, "apply", run=run))["state"] == "declined"
            assert (root / TARGET).read_text() == SLOW
            assert (await call(client, "apply", run=run))["state"] == "written"
            assert (root / TARGET).read_text() == FAST

    anyio.run(talk)
