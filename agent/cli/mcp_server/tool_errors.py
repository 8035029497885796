"""Faults of tools and resources as the errors of the MCP SDK: a client reads what is wrong and what to do next."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from pgo_agent.sandbox.errors import Fault

OF_A_PERSON = " (such options and commands are for whoever started the server)"


@contextmanager
def telling(error: type[Exception]) -> Iterator[None]:
    """Turn Faults into errors for the client, with what to do next."""
    try:
        yield
    except Fault as e:
        raise error(f"{e.message}. {e.hint}{OF_A_PERSON if _is_of_a_shell(e.hint) else ''}") from None


def _is_of_a_shell(hint: str) -> bool:
    return "--" in hint or "`pgo-agent " in hint or " -o" in hint


def told(tool: Callable[..., Any], error: type[Exception] = ToolError) -> Callable[..., Any]:
    """Return a tool, or what reads a resource, whose Faults reach the client as an `error`."""
    if inspect.iscoroutinefunction(tool):

        @functools.wraps(tool)
        async def awaited(*args: Any, **named: Any) -> Any:
            with telling(error):
                return await tool(*args, **named)

        return awaited

    @functools.wraps(tool)
    def called(*args: Any, **named: Any) -> Any:
        with telling(error):
            return tool(*args, **named)

    return called
