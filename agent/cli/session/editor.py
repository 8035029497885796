"""A candidate in the person's own editor, and files as candidates: read as `check` reads them, kept until they are.

The editor gets the terminal. What was written stays in the workspace's `edits` folder, whatever is wrong with it.
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
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation import box


def text_of(store: Store, run: Run, which: str) -> tuple[str, str, str]:
    """Text of `shipped` or a candidate, its kind (`source` or `ttgir`), and what an edit of it is made of."""
    if which == incumbent.SHIPPED:
        return run.source, "source", which
    c = store.candidate(run.id, which)
    return (c.source, "ttgir", c.parent) if c.kind == "ttgir" else (c.source, "source", c.id)


def edited(store: Store, run: Run, which: str) -> Path:
    """The file that the person left, which holds something else than before. Raises UsageFault and EnvironmentFault."""
    text, kind, _ = text_of(store, run, which)
    path = _fresh(store, run, which, ".ttgir" if kind == "ttgir" else ".py")
    command = _editor()
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    except OSError as e:
        raise EnvironmentFault(f"cannot write {path}: {e.strerror}", "free some space") from None
    try:
        with _deaf():
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


def submission(store: Store, run: Run, path: Path, which: str) -> dict[str, str]:
    """What a request says of a file. Raises UsageFault where `check` would, and for a text that the run has already."""
    found = target_file.unmoved(run)
    given = check.read(path, found)
    box.choose(run.settings.sandbox, run.settings.python).admit(untrusted=True)
    parent = text_of(store, run, which)[2]
    name = candidate_id(given.source)
    known = next((c for c in store.candidates(run.id) if c.id == name), None)
    if known is not None or given.source == run.source:
        told = f"candidate {name[:8]}, {known.verdict or 'not judged yet'}" if known else "the kernel as shipped"
        raise UsageFault(f"that text is known: {told}", "change something in it")
    return {"source": given.source, "kind": given.kind, "parent": parent, "of": which}


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C is the editor's in here."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _editor() -> list[str]:
    told = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    if not told:
        raise UsageFault(
            "neither VISUAL nor EDITOR is set", "export EDITOR=nano before; or edit it elsewhere, and /submit FILE"
        )
    try:
        return shlex.split(told)
    except ValueError as e:
        raise UsageFault(f"EDITOR cannot be read: {e}", "set it to a command") from None


def _fresh(store: Store, run: Run, which: str, suffix: str) -> Path:
    folder = store.root / "edits"
    names = (folder / f"{run.id}-{which[:8]}-{n}{suffix}" for n in range(1, 1_000_000))
    return next(path for path in names if not path.exists())
