"""The tool `apply`: writes a winner into its file after a person said yes.

A client that can ask its person does so; how the question travels is the SDK's business (`Resolve`). For any other
client a second call has to name the diff that the first one showed.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Resolve
from pgo_agent.agent.cli.mcp_server.tool_errors import told
from pgo_agent.agent.commands import apply as applying
from pgo_agent.agent.commands.apply import Change
from pgo_agent.agent.run.record.store import Store
from pydantic import BaseModel


@dataclass(frozen=True)
class Applied:
    """What became of a winner."""

    state: str  # written, declined, or confirm: call again with `confirm` as given here
    path: str
    diff: str
    confirm: str
    said: str


class Confirmation(BaseModel):
    """What a person is asked before a file is changed."""

    write: bool


def apply_of(store: Store) -> Callable[..., Any]:
    """Return the tool for a workspace."""

    def planned(run: str, candidate: str) -> Change:
        return applying.plan(store, store.run(run).id, candidate or None)

    @told
    def ask(run: str, ctx: Context[Any], candidate: str = "", confirm: str = "") -> Elicit[Confirmation] | Confirmation:
        """Ask the person where the client can; else take the call's own word for it, if it names the diff."""
        change, capabilities = planned(run, candidate), ctx.session.client_capabilities
        if capabilities is not None and capabilities.elicitation is not None:
            return Elicit(f"Write this into {change.path}?\n\n{change.diff}", Confirmation)
        return Confirmation(write=confirm == _mark(change))

    @told
    def apply(
        run: str,
        answer: Annotated[ElicitationResult[Confirmation], Resolve(ask)],
        ctx: Context[Any],
        candidate: str = "",
        confirm: str = "",
    ) -> Applied:
        """Write an accepted candidate, by default the run's winner, into its file. The original is kept as .orig.

        It asks the person for confirmation where the client can; else the first call returns the diff, and a second
        one with its `confirm` writes.
        """
        change, capabilities = planned(run, candidate), ctx.session.client_capabilities
        shown = str(change.path), change.diff, _mark(change)
        if isinstance(answer, AcceptedElicitation) and answer.data.write:
            return Applied("written", *shown, f"the original is {applying.write(change)}")
        if capabilities is not None and capabilities.elicitation is not None:
            return Applied("declined", *shown, "nothing was written")
        return Applied("confirm", *shown, "nothing is written yet: show the diff, then call again with confirm")

    return apply


def _mark(change: Change) -> str:
    return hashlib.sha256(f"{change.path}\0{change.old}\0{change.new}".encode()).hexdigest()[:16]
