"""Which pgo-agent this is: its version, and the commit where it runs from a checkout."""

import importlib.metadata
import os
import subprocess
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"


def ours() -> dict[str, str]:
    """What a run records of it."""
    try:
        version = importlib.metadata.version("pgo-agent")
    except importlib.metadata.PackageNotFoundError:
        version = UNKNOWN
    return {"version": version, "commit": commit_of(Path(__file__).parent)}


@cache
def commit_of(folder: Path) -> str:
    """The commit that is checked out, or what PGO_AGENT_COMMIT says where there is no git.

    A copy that is installed into somebody's own repository is none of its files: that commit says nothing of us.
    """
    if os.environ.get("PGO_AGENT_COMMIT"):
        return os.environ["PGO_AGENT_COMMIT"]
    known = _git(folder, "ls-files", "--error-unmatch", ".")
    return (_git(folder, "rev-parse", "HEAD") or UNKNOWN) if known else UNKNOWN


def _git(folder: Path, *args: str) -> str:
    """What it says; empty where it fails, or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
