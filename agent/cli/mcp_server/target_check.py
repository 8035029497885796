"""Puts a target through the gate as it is, for an agent that wrote it: `pgo-agent init --check`, told from the record.

What the command prints is for a person: it names held-out cases, and bounds. It works in a workspace of its own, as the
worker holds the other one while a run is open.
"""

from pathlib import Path

from pgo_agent.agent.cli.mcp_server import answers
from pgo_agent.agent.cli.mcp_server.slow import Commands, Said
from pgo_agent.agent.commands.init import outcome
from pgo_agent.agent.run import settings
from pgo_agent.agent.run.record.candidate import candidate_id
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import Command, RunSettings
from pgo_agent.sandbox import held_out, target
from pgo_agent.sandbox.target import Target

FOLDER = "init-checks"  # in the workspace
AT_WORK = "the target is put through the gate: call again with the same arguments\n"


def checked(commands: Commands, root: Path, file: Path, asked: RunSettings, seconds: float) -> Said:
    """Return what is left to write of a target, else how much of it was checked. `root`: of the workspace."""
    apart = root.resolve() / FOLDER
    to_write, guessed = (_shown(lines, target.read(file)) for lines in outcome.marks(file))
    if to_write:
        return Said("done", 1, "".join(f"to write: {line}\n" for line in to_write))
    arguments = ["init", "--check", str(file), "--store", str(apart), *settings.arguments(asked, Command.INIT)]
    said = commands.run(arguments, seconds)
    if said.state != "done":
        return Said(said.state, said.code, AT_WORK)
    verdict = _verdict(apart, file)
    return Said("done", said.code, "".join([verdict or said.text, *(f"guessed: {line}\n" for line in guessed)]))


def _shown(lines: list[str], of: Target) -> list[str]:
    """Return the marked lines that are not of held-out cases."""
    told = held_out.statements(of.contract)
    public = {line.strip() for t in (of.source, of.contract) for line in held_out.without(t, told).splitlines()}
    return [line for line in lines if line.partition(": ")[2] in public]


def _verdict(apart: Path, file: Path) -> str:
    """Return the verdict of the newest run of the file's text; empty where it had none."""
    subject = target.read(file)
    store = Store(apart, create=True)
    try:
        runs = [r for r in store.runs() if r.digest == subject.digest and r.facts.given]
        known = answers.result(store, f"{runs[-1].id}/{candidate_id(subject.source)}") if runs else None
    finally:
        store.close()
    if known is None or known.verdict is None:
        return ""
    return f"{known.verdict} at {known.stage}: {known.reason}\nchecked: {known.checked}\n{known.note}\n"
