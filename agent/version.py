"""Which pgo-agent this is: its version, and its commit when it runs from a checkout."""

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
SUFFIXES = (".py", ".j2", ".edit", ".ttgir-edit")  # includes the gate's corpus; rows of results name their plan
DATA = ("evals/results/", "evals/recordings/")
EDITED = ", edited"


@dataclass(frozen=True)
class Version:
    """Which pgo-agent made a run."""

    version: str
    commit: str  # as `commit_of` gives it


def ours() -> Version:
    """Return the version that a run records."""
    try:
        version = importlib.metadata.version("pgo-agent")
    except importlib.metadata.PackageNotFoundError:
        version = UNKNOWN
    return Version(version, commit_of())


@cache
def commit_of(package: Path = PACKAGE) -> str:
    """Return PGO_AGENT_COMMIT, else the commit that is checked out, with a digest of edits of its code.

    The commit of a repository that only holds an installed copy is not ours: the commit is unknown then.
    """
    if os.environ.get("PGO_AGENT_COMMIT"):
        return os.environ["PGO_AGENT_COMMIT"]
    own_files = _git(package, "ls-files", "--error-unmatch", "agent")
    commit = _git(package, "rev-parse", "HEAD") if own_files else ""
    edits = _edits(package) if commit else ""
    return (commit or UNKNOWN) + (f"{EDITED} {edits}" if edits else "")


def short(commit: str) -> str:
    """Return a commit for people: its first ten digits, and the digest of its edits."""
    name, edited, which = commit.partition(EDITED)
    return name[:10] + edited + which


def _edits(package: Path) -> str:
    """Return a digest of the code that differs from the commit; empty when none does.

    It is computed from the files themselves, also untracked ones: how git draws a diff depends on its configuration.
    """
    changed = _committed(package) ^ _present(package)
    return hashlib.sha256("\0".join(sorted(changed)).encode()).hexdigest()[:8] if changed else ""


def _committed(package: Path) -> set[str]:
    """Return `BLOB PATH` of each committed file of code."""
    listed = (line.partition("\t") for line in _git(package, "ls-tree", "-r", "-z", "HEAD", "--", *CODE).split("\0"))
    return {f"{about.split()[2]} {path}" for about, _, path in listed if _is_code(path)}


def _present(package: Path) -> set[str]:
    """Return `BLOB PATH` of each file of code in the folder that git does not ignore."""
    listed = _git(package, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CODE).split("\0")
    paths = sorted({path for path in listed if _is_code(path) and (package / path).is_file()})
    blobs = _git(package, "hash-object", "--", *paths).split()
    return {f"{blob} {path}" for blob, path in zip(blobs, paths, strict=False)}


def _is_code(path: str) -> bool:
    return path.endswith(SUFFIXES) and not path.startswith(DATA)


def _git(folder: Path, *args: str) -> str:
    """Return git's output; empty when it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
