"""Writes a candidate as a target of its own, for `profile` to read.

Its launcher is not trusted, and what it says when it fails is printed: so the file holds no held-out case, and a
sandbox has to be there. Relies on the record; runs nothing.
"""

from pathlib import Path

from pgo_agent.agent.cli.mcp_server import answers
from pgo_agent.agent.run import target_file
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.target import without_held_out

FOLDER = "submitted"  # of a workspace


def written(store: Store, job: str, asked: RunSettings) -> Path:
    """Return the file of a candidate. Raises UsageFault for an unknown job, for one that waits, and for TTGIR;
    EnvironmentFault without a sandbox."""
    run, found = answers.found(store, job)
    if found is None:
        raise UsageFault("that candidate is not proposed yet", "ask for its status first")
    if found.kind == "ttgir":
        raise UsageFault("TTGIR by itself has no profile here", "profile the kernel that it replaces")
    box.choose(asked.sandbox, asked.python).admit(untrusted=True)
    subject = target_file.unmoved(run)
    folder = store.root.resolve() / FOLDER / run.id
    folder.mkdir(parents=True, exist_ok=True)
    if subject.sidecar:
        (folder / f"{found.id}.target.py").write_text(without_held_out(subject.contract))
    path = folder / f"{found.id}.py"
    path.write_text(without_held_out(found.source))
    return path
