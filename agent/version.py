"""Which pgo-agent this is: its version, and the commit where it runs from a checkout."""

import hashlib
import importlib.metadata
import os
import subprocess
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
PACKAGE = Path(__file__).parents[1]
CODE = ("agent", "sandbox", "evals", ":(exclude)evals/results", ":(exclude)evals/recordings")
EDITED = ", edited"


def ours() -> dict[str, str]:
    """What a run records of it."""
    try:
        version = importlib.metadata.version("pgo-agent")
    except importlib.metadata.PackageNotFoundError:
        version = UNKNOWN
    return {"version": version, "commit": commit_of()}


@cache
def commit_of(package: Path = PACKAGE) -> str:
    """What PGO_AGENT_COMMIT says, else the commit that is checked out; and a digest of edits of its code.

    A copy that is installed into somebody's own repository is none of its files: that commit says nothing of us.
    """
    if os.environ.get("PGO_AGENT_COMMIT"):
        return os.environ["PGO_AGENT_COMMIT"]
    known = _git(package, "ls-files", "--error-unmatch", "agent")
    commit = _git(package, "rev-parse", "HEAD") if known else ""
    edits = _git(package, "diff", "--no-ext-diff", "--no-color", "HEAD", "--", *CODE) if commit else ""
    return (commit or UNKNOWN) + (f"{EDITED} {hashlib.sha256(edits.encode()).hexdigest()[:8]}" if edits else "")


def short(commit: str) -> str:
    """A commit for people: ten figures of it, and whether its code was edited."""
    told, edited, _ = commit.partition(EDITED)
    return told[:10] + edited


def _git(folder: Path, *args: str) -> str:
    """What it says; empty where it fails, or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
