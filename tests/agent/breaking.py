"""Breaks real runs: kills processes of theirs at moments that a seed picks, and tells what a run came to.

Processes are found in /proc below the agent's own, told apart by their command lines, and killed by their id. Killing
is all it does to them. Relies on bubblewrap or Landlock being as `sandbox/isolation/box.py` starts them.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agent.command_line import begin, command

SHORT = ("optimize", "add.py", "--case", "1m", "--candidates", "2", "--width", "1", "--json")
LONG = ("optimize", "add.py", "--case", "1m", "--candidates", "4", "--width", "2", "--json")
RESUME = ("resume", "--json")
KINDS = ("agent", "box", "forker", "tracer", "compiler", "compiler's child", "tool", "judge", "interpreter")
SOON_GONE = {"interpreter": 0.1}  # seconds within which one that was seen is killed; of all others 0.3, of a tool none
SESSION_SECONDS = 300.0
_MODULES = {"tracer", "compiler", "judge", "interpreter"}


# processes ------------------------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes(agent: int) -> dict[int, str]:
    """The agent and everything below it -> its kind. Processes that only live for a moment are `other`."""
    parents, words, names = {}, {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, status = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            state, parent = status.split()[:2]
            names[int(entry.name)] = name
            words[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if state not in "ZX":
            parents[int(entry.name)] = int(parent)
    found, new = {agent: "agent"} if agent in parents else {}, {agent}
    while new:
        new = {p for p, parent in parents.items() if parent in new}
        found |= {p: _kind(names[p], words[p], found.get(parents[p], "")) for p in new}
    return found


def _kind(name: str, words: list[str], parent: str) -> str:
    program = Path(words[0]).name
    if program in ("bwrap", "setpriv") or "pgo_agent.sandbox.isolation.landlock" in words:
        return "box"
    if program in ("ptxas", "nvdisasm", "cuobjdump"):
        return "tool"
    if name == "judge":  # and for a moment what it begins
        return {"between": "judge"}.get(parent, "other")
    module = next((m for m in _MODULES if f"pgo_agent.sandbox.{m}" in words), "other")
    if module == "compiler" and parent.startswith("compiler"):
        return "compiler's child"
    if not any(w.endswith("forkserver_main.py") for w in words):
        return module
    return {"forker": "between", "between": module}.get(parent, "other" if parent in _MODULES - {"judge"} else "forker")


def kill_one(agent: int, hit: Counter[str], moments: random.Random) -> str:
    """Kills a process of one of the kinds that were hit least, at a random moment of it; gives its kind, or nothing."""
    due = [k for k in KINDS if hit[k] == min(hit[k] for k in KINDS)]
    if len(due) > 1:  # the last one is looked for from the start: a run may soon have no more of it
        time.sleep(moments.uniform(0, 1))
    while agent in (found := processes(agent)) and not (there := sorted({k for k in found.values() if k in due})):
        time.sleep(0.002 if "tool" in due else 0.05)
    if agent not in found:
        return ""
    kind = moments.choice(there)
    if kind != "tool":
        time.sleep(moments.uniform(0, SOON_GONE.get(kind, 0.3)))
        found = processes(agent)
    fit = sorted(p for p, k in found.items() if k == kind)
    try:
        os.kill(moments.choice(fit), signal.SIGKILL)
    except (IndexError, ProcessLookupError):  # it has ended meanwhile
        return ""
    hit[kind] += 1
    return kind


# runs -----------------------------------------------------------------------------------------------------------------


@dataclass
class Broken:
    """A run in `folder`, over all its resumptions."""

    folder: Path
    args: tuple[str, ...] = SHORT
    hit: Counter[str] = field(default_factory=Counter)  # kind of process -> how often one was killed
    sessions: int = 0
    gave_up: int = 0  # sessions that ended because one process was killed again and again
    events: list[dict[str, Any]] = field(default_factory=list)

    def session(self, disturb: Callable[[int], None], **env: str) -> int:
        """One process of the agent, begun or resumed, while `disturb` works on it; gives how it ended."""
        self.sessions += 1
        args = RESUME if has_run(self.folder) else self.args
        out, err = self.folder / "out.jsonl", self.folder / "err.txt"
        with out.open("w") as o, err.open("w") as e:
            agent = subprocess.Popen(
                command(*args), cwd=self.folder, stdout=o, stderr=e, env=os.environ | env, start_new_session=True
            )
            try:
                disturb(agent.pid)
                code = agent.wait(SESSION_SECONDS)
            finally:
                agent.kill()
                agent.wait()
        self.events += whole_lines(out.read_text())
        said = err.read_text()
        assert "Traceback" not in said, said
        if code == 3 and "times in a row" in said:
            self.gave_up += 1
        elif code == 2 and "is complete" in said:
            return 0  # it was killed after its last word to the record
        else:
            assert code in (0, -signal.SIGKILL), (code, said)
        return code

    def through(self, kills: int, moments: random.Random) -> None:
        """The run to its end, with up to `kills` more processes killed on the way."""
        most = self.hit.total() + kills

        def disturb(agent: int) -> None:
            while self.hit.total() < most and alive(agent):
                if kill_one(agent, self.hit, moments) == "agent":
                    return

        while self.session(disturb) != 0:
            pass


@dataclass(frozen=True)
class Whole:
    """A SHORT run that nobody disturbed, and its workspace as a kill would have left it earlier."""

    folder: Path
    record: dict[str, Any]
    first: Path  # after the first generation
    last: Path  # after the last verdict


def copied_when(folder: Path, moments: Mapping[tuple[str, int], Path]) -> None:
    """A run to its end, undisturbed; its workspace as a kill would have left it when so many events were told."""
    agent, told = begin(*SHORT, cwd=folder), Counter[str]()
    with (folder / "out.jsonl").open("w") as out:
        for line in agent.stdout:
            out.write(line)
            told[kind := json.loads(line)["type"]] += 1
            if copy := moments.get((kind, told[kind])):
                agent.send_signal(signal.SIGSTOP)
                shutil.copytree(folder / ".pgo-agent", copy, ignore=shutil.ignore_patterns("tmp"))
                agent.send_signal(signal.SIGCONT)
    _, said = agent.communicate()
    assert agent.returncode == 0, said


def whole_lines(text: str) -> list[dict[str, Any]]:
    """The events of a session; the last one may be cut off by a kill."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def database(folder: Path) -> sqlite3.Connection:
    db = sqlite3.connect(folder / ".pgo-agent" / "pgo.db")
    db.row_factory = sqlite3.Row
    return db


def has_run(folder: Path) -> bool:
    if not (folder / ".pgo-agent" / "pgo.db").exists():
        return False
    db = database(folder)
    try:
        return bool(db.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.OperationalError:  # killed before it made its tables
        return False
    finally:
        db.close()


def record(folder: Path) -> dict[str, Any]:
    """Everything that a run recorded, but for times, secret seeds and what they led to, and its own name."""
    db = database(folder)
    try:
        runs = [
            _row(r, "device", "state") | {k: _plain(r[k]) for k in ("settings", "baseline", "summary")}
            for r in db.execute("SELECT * FROM runs")
        ]
        told = ("id", "generation", "position", "parent", "kind", "move", "rationale", "author", "source", "proposer")
        candidates = [
            _row(r, *told, "verdict", "stage", "reason", "speedup") | {k: _plain(r[k]) for k in ("built", "cites")}
            for r in db.execute("SELECT * FROM candidates ORDER BY generation, position")
        ]
        return {
            "runs": runs,
            "candidates": candidates,
            "generations": [_row(r, "n", "incumbent", "finished") for r in db.execute("SELECT * FROM generations")],
            "skipped": [
                _row(r, "parent", "move", "reason") for r in db.execute("SELECT * FROM skipped ORDER BY rowid")
            ],
            "profiles": [
                _row(r, "candidate", "case") | {k: _plain(r[k]) for k in ("passes", "summary")}
                for r in db.execute("SELECT * FROM profiles ORDER BY rowid")
            ],
            "evidence": [_row(r, "candidate", "stage") for r in db.execute("SELECT * FROM evidence ORDER BY 2, 3")],
        }
    finally:
        db.close()


def _row(row: sqlite3.Row, *names: str) -> dict[str, Any]:
    return {n: row[n] for n in names}


def _plain(text: str | None) -> Any:
    """JSON without the seconds that something took."""
    return None if text is None else json.loads(text, object_hook=lambda d: {k: d[k] for k in d if k != "seconds"})


def judged_once(events: Iterable[dict[str, Any]], folder: Path) -> None:
    """No candidate was told to be judged twice, in any session, and what was told is what stands in the record."""
    told = [e for e in events if e["type"] == "candidate.verdict"]
    assert max(Counter(e["candidate"] for e in told).values(), default=1) == 1, told
    stands = {c["id"]: (c["verdict"], c["stage"], c["reason"]) for c in record(folder)["candidates"]}
    assert {e["candidate"]: (e["verdict"], e["stage"], e["reason"]) for e in told}.items() <= stands.items()
