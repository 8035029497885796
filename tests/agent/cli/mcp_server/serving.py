"""A server over a folder with one target, and the SDK's own client, which speaks to it as a coding agent would."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pgo_agent.sandbox.isolation import lending

from tests.agent.command_line import ADD, command
from tests.shared_builds import lend

TARGET = "add.py"
WRONG = ADD.replace("+ tl.load(y_ptr", "- tl.load(y_ptr")
RIGHT = ADD.replace('{"BLOCK": 2048}, num_warps=8', '{"BLOCK": 4096}, num_warps=8')
SECRET = "odd"  # the held-out case, whose name no agent may hear
TOKEN = "a token of the test"
READS = """
def kernel(x, y):
    if {when}:
        import pathlib
        text = "".join(p.read_text() for p in sorted(pathlib.Path(".").rglob("*.py")))
        at = text.rfind("HELD_OUT")
        raise ValueError(text[at : at + 60].encode().hex() + str(globals().get("HELD_OUT")))
    return _launched(x, y)
"""  # a launcher that says what the box holds
Talk = Callable[[Client], Awaitable[Any]]


def folder(path: Path) -> Path:
    """Return a folder with the target and a workspace that shares builds."""
    (path / TARGET).write_text(ADD)
    lend(path / "ws")
    return path


def arguments(root: Path) -> list[str]:
    return command("mcp", "--root", root, "--store", root / "ws", "--judge", "cpu")


@contextmanager
def http(root: Path) -> Iterator[str]:
    """Serve over HTTP; yield the URL."""
    lent = lending.lend()
    with subprocess.Popen(
        [*arguments(root), "--http", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=lent.env | {"PGO_AGENT_MCP_TOKEN": TOKEN},
        pass_fds=lent.files,
    ) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found, said + server.stderr.read()
        try:
            yield found[0]
        finally:
            server.terminate()


def by_http(url: str, talk: Talk) -> Any:
    async def go() -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as session,
            Client(streamable_http_client(url, http_client=session)) as client,
        ):
            return await talk(client)

    return anyio.run(go)


def by_stdio(root: Path, talk: Talk) -> Any:
    async def go() -> Any:
        program, *rest = arguments(root)
        async with Client(stdio_client(StdioServerParameters(command=program, args=rest))) as client:
            return await talk(client)

    return anyio.run(go)


async def call(client: Client, tool: str, **values: Any) -> Any:
    """Return the structured answer of a tool. Raises AssertionError with what it said if it failed."""
    answer = await client.call_tool(tool, values)
    assert not answer.is_error, answer.content
    content = answer.structured_content or {}
    return content["result"] if set(content) == {"result"} else content


async def refused(client: Client, tool: str, **values: Any) -> str:
    """Return what a tool said that failed."""
    answer = await client.call_tool(tool, values)
    assert answer.is_error, answer
    return " ".join(str(getattr(c, "text", "")) for c in answer.content)


async def judged(client: Client, job: str) -> Any:
    """Wait for a verdict; return the result."""
    with anyio.fail_after(120):
        while (await call(client, "status", job=job, wait_seconds=20))["state"] not in ("done", "failed"):
            pass
    return await call(client, "result", job=job)


def kill(root: Path, word: str) -> None:
    """Kill the processes of a folder's server that have a word in their command line, such as its worker."""
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0") if path.name.isdigit() else []
        except OSError:  # it has ended
            continue
        if word in words and {str(root), str(root / "ws")} & set(words):
            os.kill(int(path.name), signal.SIGKILL)


def everything(root: Path) -> str:
    """Return all that a workspace's worker printed, for the message of an assertion."""
    return "\n".join(json.dumps(p.read_text(errors="replace")) for p in (root / "ws").glob("mcp-worker*"))
