"""Makes runs that are open to an agent, and requests of what it submits; sees to it that a worker judges them.

What an agent sends is text and stays text here: it is parsed, held against the contract of its target, recorded, and
judged by `worker.py` like any candidate from elsewhere, in the box. Nothing of it is lost when the server dies.
"""

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pgo_agent.agent import text as printable
from pgo_agent.agent.cli.mcp_server import answers, worker
from pgo_agent.agent.commands import check
from pgo_agent.agent.kernel_part import kernel_part
from pgo_agent.agent.llm import replies
from pgo_agent.agent.llm.replies import search_replace, unified_diff, whole_kernel
from pgo_agent.agent.run import incumbent, submissions, target_file
from pgo_agent.agent.run.record import user_requests
from pgo_agent.agent.run.record.candidate import candidate_id
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.record.user_requests import Kind
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.isolation import lending
from pgo_agent.sandbox.target import Target

LOCK = "mcp-submit.lock"
MOST = 32  # submissions of a run that wait
NOTE = 300  # characters of what an agent says of a candidate
_SEND = "send the whole kernel part, or edits as SEARCH and REPLACE blocks, or the TTGIR of a kernel as `show` gives it"


def inside(root: Path, name: str) -> Path:
    """Return the file of that name, `.py` may be left out, in the folder that is served, or of a kernel that ships.

    Raises UsageFault.
    """
    if not name or "\0" in name or len(name) > 1000 or any(len(part.encode()) > 250 for part in name.split("/")):
        raise UsageFault("that is no path", "name a file of the folder that is served")
    named = next((n for n in (name, f"{name}.py") if (root / n).is_file()), name)
    path = target_file.locate(Path(named))
    ships = not Path(named).exists() and path.is_file()
    resolved = (path if path.is_absolute() else root / path).resolve()
    if not ships and not resolved.is_relative_to(root.resolve()):
        where = "start `pgo-agent mcp` with --root of a folder that holds it"
        raise UsageFault(f"{printable.line(name, 100)} lies outside of the folder that is served", where)
    if not resolved.is_file():
        raise UsageFault(f"there is no file {printable.line(name, 100)}", "`init` writes a target for a kernel file")
    return resolved


@contextmanager
def _one_at_a_time(store: Store) -> Iterator[None]:
    """Let one call, of any server of the workspace, look into the record and add to it; others wait."""
    with (store.root / LOCK).open("a") as lock:  # each has a description of its own, so threads exclude each other, too
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_of(store: Store, file: Path, begin: Callable[[Path], str]) -> Run:
    """Return the run of a target that is open, or the new one that `begin` names. Raises Faults, also for a target that
    is none."""
    subject = target.read(file)
    with _one_at_a_time(store):
        for run in submissions.open_runs(store):
            if run.digest == subject.digest and Path(run.target) == subject.path.resolve():
                return run
        return store.run(begin(file))


def submit(store: Store, run: Run, text: str, note: str, who: str, of: str) -> list[str]:
    """Record what an agent sent as candidates, and return their jobs. `of`: `shipped`, or the candidate it changes.

    Raises UsageFault for what cannot be read, breaks the contract, or is more than may wait.
    """
    subject = target_file.unmoved(run)
    base = "" if of in ("", incumbent.SHIPPED) else _base(store, run, of.removeprefix(f"{run.id}/"))
    source = store.candidate(run.id, base).source if base else subject.source
    named, words = base or incumbent.SHIPPED, printable.line(note, NOTE)
    bodies = [
        user_requests.Body(
            source=candidate,
            kind=kind,
            parent=named,
            of=named,
            note=words,
            move=_move(kind, text, named),
            author=who,
        )
        for kind, candidate in _read(text, subject, source)
    ]
    with _one_at_a_time(store):
        return [_recorded(store, run, body) for body in bodies]


def _recorded(store: Store, run: Run, body: user_requests.Body) -> str:
    """Record a candidate that is new to a run; return its job. Raises UsageFault."""
    waiting = len(user_requests.waiting(store, run.id, Kind.SUBMIT))
    if waiting >= MOST:
        raise UsageFault(f"{waiting} submissions wait already", "read results first; `status` says how far")
    if body["source"] == run.source:
        raise UsageFault("that text is the kernel as shipped", "change something in it")
    known = {candidate_id(s.body["source"]) for s in user_requests.of(store, run.id, Kind.SUBMIT)}
    if candidate_id(body["source"]) not in known | {c.id for c in store.candidates(run.id)}:
        user_requests.add(store, run.id, Kind.SUBMIT, body)
    return answers.job_of(run, body["source"])


def _base(store: Store, run: Run, of: str) -> str:
    """Return the id of the candidate that edits refer to. Raises UsageFault where the run has no such one."""
    ids = [c.id for c in store.candidates(run.id) if of and c.id.startswith(of)]
    if len(ids) != 1:
        there = f"{len(ids) or 'no'} candidates of run {run.id} begin with {printable.line(of, 80)}"
        raise UsageFault(there, "`report` lists them, and `history` those of other runs: send the whole text of one")
    return ids[0]


def _read(text: str, subject: Target, source: str) -> list[tuple[str, str]]:
    """Return the kind and the whole text of each candidate in what an agent sent. Raises UsageFault."""
    if len(text) > replies.LONGEST:
        raise UsageFault(f"that has {len(text):,} characters, and {replies.LONGEST:,} are the most", _SEND)
    if not text.strip() or "\0" in text:
        raise UsageFault("that holds a character NUL" if text.strip() else "nothing was sent", _SEND)
    if text.lstrip().startswith(("module", "#", "//")) and "tt.func" in text:
        given = check.of_text("submission.ttgir", text, subject)
        return [(given.kind, given.source)]
    if text.lstrip().startswith(("[", "{")):
        text = f"```json\n{text}\n```"
    elif _is_python(text):
        given = check.of_text("submission.py", text, subject)
        return [(whole_kernel.kind(kernel_part(given.source)), given.source)]
    parsed = replies.parse(text, source)
    if not parsed.candidates:
        raise UsageFault("; ".join(parsed.errors) or "no candidate is in it", _SEND)
    return [(c.kind, c.source) for c in parsed.candidates]


def _move(kind: str, text: str, of: str) -> str:
    """Return what was sent, in words."""
    if kind == "launch":
        return f"launch configurations of {of[:8]}"
    if kind == "ttgir":
        return f"TTGIR of {of[:8]}"
    if _is_edit(text):
        return f"edit of {of[:8]}"
    return "whole Gluon kernel" if kind == "gluon" else "whole kernel"


def _is_python(text: str) -> bool:
    """Whether a text is Python as it stands. Raises UsageFault for a bare kernel part that is not."""
    try:
        return bool(target.parse(text, "submission.py").body)
    except (UsageFault, RecursionError) as e:
        if whole_kernel.KERNEL.search(text) and "```" not in text and not _is_edit(text):
            raise e if isinstance(e, UsageFault) else UsageFault(replies.TOO_DEEP, "nest it less deeply") from None
        return False


def _is_edit(text: str) -> bool:
    return any(search_replace.begins(line) for line in text.splitlines()) or unified_diff.is_diff(text)


def work(store: Store) -> None:
    """See to it that a worker judges what waits, unless nothing does."""
    if submissions.open_runs(store) and not worker.is_running(store.root):
        lent = lending.lend()
        with (store.root / worker.LOG).open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", worker.MODULE, str(store.root.resolve())],
                env=lent.env,
                pass_fds=lent.files,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it goes on when the server and its client are gone
            )
