"""The command `mcp`: starts the server over stdio, or over HTTP on this machine with a token.

The MCP SDK is an extra, imported here alone. Over stdio nothing else may write to standard output.
"""

import hmac
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pgo_agent.agent.cli import runner
from pgo_agent.agent.cli.options import WORKSPACE, StoreOption
from pgo_agent.agent.cli.settings_options import with_settings
from pgo_agent.agent.run.settings import Command, RunSettings

TOKEN = "PGO_AGENT_MCP_TOKEN"
HOST = "127.0.0.1"
App = Callable[[Any, Any, Any], Awaitable[None]]


@with_settings(Command.MCP)
def mcp(
    root: Annotated[Path, typer.Option(help="The folder whose files agents may name.")] = Path(),
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=0,
            max=65535,
            help=f"Serve http://{HOST}:PORT/mcp in place of stdio. Clients send the token of {TOKEN}, or the one that "
            "is printed, as `Authorization: Bearer TOKEN`.",
        ),
    ] = None,
    idle: Annotated[
        float, typer.Option(min=0.0, help="Minutes without a submission after which a run ends, with its last session.")
    ] = 10.0,
    all_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Budget of all runs together that this server begins: minutes.")
    ] = None,
    all_gpu_seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Budget of all runs together: seconds that they hold GPUs.")
    ] = None,
    *,
    asked: RunSettings,
    store: StoreOption = WORKSPACE,
) -> None:
    """Serve the judge and the profiler to coding agents, as tools over MCP: docs/agents.md.

    What an agent submits is recorded as a run: show, session, report and apply know it. Budgets are of each run, but
    for those of all runs together. What was submitted is judged on when the client and this server are gone.
    """
    with runner.faults():
        _need_sdk()
        from pgo_agent.agent.cli.mcp_server import server
        from pgo_agent.agent.cli.mcp_server.allowance import Allowance
        from pgo_agent.sandbox.errors import UsageFault

        if not root.is_dir():
            raise UsageFault(f"{root} is no folder", "name the folder of your kernels with --root")
        with runner.opened(store, create=True) as opened:
            limits = Allowance(all_minutes, all_gpu_seconds)
            tools = server.Tools(opened, root.resolve(), asked, 60 * idle, limits)
            try:
                _serve(server.made(tools), http)
            except* (KeyboardInterrupt, BrokenPipeError):  # of a client that died while it was answered
                print("ended; what was submitted is judged on", file=sys.stderr)
            finally:
                tools.commands.close()


def _need_sdk() -> None:
    from importlib.util import find_spec

    from pgo_agent.sandbox.errors import EnvironmentFault

    if find_spec("mcp") is None:
        raise EnvironmentFault("the MCP SDK is not installed", "pip install 'pgo-agent[mcp]'")


def _serve(server: Any, port: int | None) -> None:
    if port is None:
        server.run("stdio")
        return
    import socket

    import uvicorn

    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    with socket.create_server((HOST, port)) as listening:
        url = f"http://{HOST}:{listening.getsockname()[1]}/mcp"
        said = f"the token of {TOKEN}" if os.environ.get(TOKEN) else f"Authorization: Bearer {token}"
        print(f"serving {url} ({said})", file=sys.stderr, flush=True)
        config = uvicorn.Config(guarded(server.streamable_http_app(host=HOST), token), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


def guarded(app: App, token: str) -> App:
    """Return an ASGI application that answers 401 to requests without the token."""
    wanted = f"Bearer {token}".encode()

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(given, wanted):
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b"a token is needed\n"})
            return
        await app(scope, receive, send)

    return guard
