"""Whole runs of `add` on a machine of made-up GPUs (`many.py`), each in a folder of its own."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent import breaking
from tests.agent.command_line import FOR_CACHES, Done, pgo, write
from tests.agent.many import Machine
from tests.conftest import ROOT

OPTIMIZE = ("optimize", "add.py", "--case", "1m", "--candidates", "4", "--patience", "1", "--profile", "none", "--json")
RESUME = ("resume", "--json")


@dataclass(frozen=True)
class Run:
    """A run in `folder` on a machine of so many GPUs, whose locks lie there, too."""

    folder: Path
    gpus: int

    @property
    def machine(self) -> Machine:
        return Machine(self.folder / "machine", self.gpus)

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return os.environ | {"XDG_RUNTIME_DIR": str(self.folder), "PYTHONPATH": path}

    def command(self, *args: str) -> Done:
        of = str(self.machine.folder), str(self.gpus)
        return pgo(*of, *args, cwd=self.folder, program="tests.agent.many", XDG_RUNTIME_DIR=str(self.folder))

    def events(self, *args: str) -> Iterator[dict[str, Any]]:
        """What a session tells, as it goes on; whoever wants no more of it kills it."""
        with subprocess.Popen(
            self.machine.command(*args), cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True
        ) as agent:
            assert agent.stdout is not None
            try:
                for line in agent.stdout:
                    yield json.loads(line)
            finally:
                agent.send_signal(signal.SIGKILL)

    def killed_when(
        self, kind: str, count: int, *args: str, doing: str = "", verdict: str = ""
    ) -> list[dict[str, Any]]:
        """The events of a session that is killed as soon as it told so many of a kind; of phases, that do this."""
        events: list[dict[str, Any]] = []
        with closing(self.events(*args)) as told:
            for e in told:
                events.append(e)
                fits = e.get("doing", "").startswith(doing) and verdict in ("", e.get("verdict"))
                count -= e["type"] == kind and fits
                if not count:
                    break
        return events

    def bundles(self) -> dict[str, str]:
        """Of each candidate, what was built."""
        db = breaking.database(self.folder)
        try:
            return dict(db.execute("SELECT id, json_extract(built, '$.bundle') FROM candidates").fetchall())
        finally:
            db.close()

    def told(self) -> list[tuple[Any, ...]]:
        """What became of each candidate."""
        db = breaking.database(self.folder)
        try:
            sql = "SELECT id, generation, position, verdict, stage, reason, speedup, against FROM candidates"
            return [tuple(r) for r in db.execute(f"{sql} ORDER BY generation, position")]
        finally:
            db.close()


def on(folder: Path, gpus: int, cache: Path | None = None, **control: Any) -> Run:
    """A folder for a run. `cache`: another one's, whose builds are there already."""
    run = Run(folder, gpus)
    folder.mkdir()
    write(folder, *FOR_CACHES, alone=cache is not None)
    if cache:
        but = shutil.ignore_patterns("*.db*", "tmp")
        shutil.copytree(cache / ".pgo-agent", folder / ".pgo-agent", symlinks=True, ignore=but)
    run.machine.control(**control)
    return run
