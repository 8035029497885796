"""Which pgo-agent this is: its version, and the commit where it runs from a checkout."""

import hashlib
import importlib.metadata
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
PACKAGE = Path(__file__).parents[1]
CODE = ("agent", "sandbox", "evals", "prompts")
SUFFIXES = (".py", ".j2", ".edit", ".ttgir-edit")  # with the gate's corpus; rows name the plan that they are of
DATA = ("evals/results/", "evals/recordings/")
EDITED = ", edited"


@dataclass(frozen=True)
class Version:
    """Which pgo-agent made a run."""

    version: str
    commit: str  # as `commit_of` gives it


def ours() -> Version:
    """Return what a run records of it."""
    try:
        version = importlib.metadata.version("pgo-agent")
    except importlib.metadata.PackageNotFoundError:
        version = UNKNOWN
    return Version(version, commit_of())


@cache
def commit_of(package: Path = PACKAGE) -> str:
    """What PGO_AGENT_COMMIT says, else the commit that is checked out; and a digest of edits of its code.

    A copy that is installed into somebody's own repository is none of its files: that commit says nothing of us.
    """
    if os.environ.get("PGO_AGENT_COMMIT"):
        return os.environ["PGO_AGENT_COMMIT"]
    own_files = _git(package, "ls-files", "--error-unmatch", "agent")
    commit = _git(package, "rev-parse", "HEAD") if own_files else ""
    edits = _edits(package) if commit else ""
    return (commit or UNKNOWN) + (f"{EDITED} {edits}" if edits else "")


def short(commit: str) -> str:
    """A commit for people: ten figures of it, and which edits its code had."""
    name, edited, which = commit.partition(EDITED)
    return name[:10] + edited + which


def _edits(package: Path) -> str:
    """A digest of the code that is not as it was committed; empty where all of it is.

    By the files themselves, those that git does not track among them: how a diff is drawn is anybody's to configure.
    """
    changed = _committed(package) ^ _present(package)
    return hashlib.sha256("\0".join(sorted(changed)).encode()).hexdigest()[:8] if changed else ""


def _committed(package: Path) -> set[str]:
    """`BLOB PATH` of each file of code."""
    listed = (line.partition("\t") for line in _git(package, "ls-tree", "-r", "-z", "HEAD", "--", *CODE).split("\0"))
    return {f"{about.split()[2]} {path}" for about, _, path in listed if _is_code(path)}


def _present(package: Path) -> set[str]:
    """The same of what stands in the folder, but for what git ignores."""
    listed = _git(package, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CODE).split("\0")
    paths = sorted({path for path in listed if _is_code(path) and (package / path).is_file()})
    blobs = _git(package, "hash-object", "--", *paths).split()
    return {f"{blob} {path}" for blob, path in zip(blobs, paths, strict=False)}


def _is_code(path: str) -> bool:
    return path.endswith(SUFFIXES) and not path.startswith(DATA)


def _git(folder: Path, *args: str) -> str:
    """What it says; empty where it fails, or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
