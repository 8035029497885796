"""Opens a candidate in the person's editor, and reads files as candidates in the way that `check` reads them.

The editor gets the terminal. What was written stays in the workspace's `edits` folder, even if it cannot be used.
"""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgo_agent.agent.commands import check
from pgo_agent.agent.run import incumbent, target_file
from pgo_agent.agent.run.record.candidate import candidate_id
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Body
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation import box


def text_of(store: Store, run: Run, which: str) -> tuple[str, str, str]:
    """Return the text of `shipped` or a candidate, its kind (`source` or `ttgir`), and the parent of an edit of it."""
    if which == incumbent.SHIPPED:
        return run.source, "source", which
    c = store.candidate(run.id, which)
    return (c.source, "ttgir", c.parent) if c.kind == "ttgir" else (c.source, "source", c.id)


def edit(store: Store, run: Run, which: str) -> Path:
    """Open a candidate in the editor and return the changed file. Raises UsageFault and EnvironmentFault."""
    text, kind, _ = text_of(store, run, which)
    path = _fresh(store, run, which, ".ttgir" if kind == "ttgir" else ".py")
    command = _editor()
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    except OSError as e:
        raise EnvironmentFault(f"cannot write {path}: {e.strerror}", "free some space") from None
    try:
        with _ignoring_interrupts():
            code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as e:
        raise EnvironmentFault(f"{command[0]} does not start: {e.strerror}", "set EDITOR to one that does") from None
    if code:
        how = f"ended with {code}" if code > 0 else f"was ended by signal {-code}"
        raise UsageFault(f"{command[0]} {how}: nothing is submitted", f"what it wrote is in {path}: /submit takes it")
    if path.is_file() and path.read_text(errors="replace") != text:
        return path
    path.unlink(missing_ok=True)
    raise UsageFault("nothing changed: nothing is submitted", "save another text to have it judged")


def submission(store: Store, run: Run, path: Path, which: str) -> Body:
    """Return the body of a request for a file. Raises UsageFault as `check` does, and for a text that the run has."""
    submitted = check.read(path, target_file.unmoved(run))
    box.choose(run.settings.sandbox, run.settings.python).admit(untrusted=True)
    parent = text_of(store, run, which)[2]
    name = candidate_id(submitted.source)
    earlier = next((c for c in store.candidates(run.id) if c.id == name), None)
    if earlier is not None or submitted.source == run.source:
        name_of_text = (
            f"candidate {name[:8]}, {earlier.verdict or 'not judged yet'}" if earlier else "the kernel as shipped"
        )
        raise UsageFault(f"that text is known: {name_of_text}", "change something in it")
    return {"source": submitted.source, "kind": submitted.kind, "parent": parent, "of": which}


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C meanwhile: it is the editor's."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _editor() -> list[str]:
    command = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    if not command:
        raise UsageFault(
            "neither VISUAL nor EDITOR is set", "export EDITOR=nano before; or edit it elsewhere, and /submit FILE"
        )
    try:
        return shlex.split(command)
    except ValueError as e:
        raise UsageFault(f"EDITOR cannot be read: {e}", "set it to a command") from None


def _fresh(store: Store, run: Run, which: str, suffix: str) -> Path:
    folder = store.root / "edits"
    names = (folder / f"{run.id}-{which[:8]}-{n}{suffix}" for n in range(1, 1_000_000))
    return next(path for path in names if not path.exists())
