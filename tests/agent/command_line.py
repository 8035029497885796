"""Runs the real command line in a process of its own, on targets written into a folder of the test."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import TARGETS

ADD = (TARGETS / "add.py").read_text()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "pgo_agent.agent.cli.main", *map(str, args)]


def pgo(*args: str | Path, cwd: Path, seconds: float = 300, **env: str) -> Done:
    """`pgo-agent ARGS` in `cwd`, to its end."""
    done = subprocess.run(
        command(*args), cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False, timeout=seconds
    )
    return Done(done.returncode, done.stdout, done.stderr)


def write(folder: Path, *changes: tuple[str, str], name: str = "add.py") -> Path:
    """The `add` target with some of its text replaced."""
    text = ADD
    for old, new in changes:
        assert old in text, f"the target no longer holds {old!r}"
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    return path
