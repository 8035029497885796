"""Reads what a file is compared with: another file, or `git:REV`, the same path in an earlier revision.

Git is asked for texts and nothing else: no hook runs, nothing is checked out. A revision's name may come from a pull
request, so it never stands where git would take it for an option.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

GIT = "git:"
_LINK = "120000"  # mode of a symbolic link


@dataclass(frozen=True)
class Base:
    """What a file is compared with."""

    name: str  # for a person
    text: str
    sidecar: str | None  # text of NAME.target.py beside it; None: there is none


def read(base: str, file: Path) -> Base:
    """Return the text that `base` names, for a comparison with `file`.

    Raises UsageFault for a path that is no file, a revision that is not there or lacks the file, and a file of no
    repository; EnvironmentFault where git does not work.
    """
    if base.startswith(GIT):
        return _at_revision(base.removeprefix(GIT), file)
    path = Path(base)
    if not path.exists():
        hint = f"name a kernel file; a revision of git is named {GIT}{base}"
        raise UsageFault(f"--against: no such file: {base}", hint)
    text, beside = target.text(path), sidecar(path)
    return Base(base, text, target.text(beside) if beside.is_file() else None)


def sidecar(path: Path) -> Path:
    """Return where the contract of a kernel file may stand."""
    return path.with_name(f"{path.stem}.target.py")


def _at_revision(revision: str, file: Path) -> Base:
    path = file.resolve()
    top = _top(file, path)
    commit = _commit(top, revision, file)
    inside = path.relative_to(top)
    text = _text(top, commit, inside)
    name = f"{GIT}{revision} ({commit[:8]})"
    if text is None:
        hint = f"it is new since then: judge it alone with `pgo-agent check {file} --target {file}`"
        raise UsageFault(f"{name} has no file {inside}", hint)
    return Base(name, text, _text(top, commit, sidecar(inside)))


def _top(file: Path, path: Path) -> Path:
    """Return the root of the repository that holds the file."""
    done = _git(path.parent, "rev-parse", "--show-toplevel")
    if done.returncode == 0:
        return Path(done.stdout.rstrip("\n")).resolve()
    if "dubious ownership" in done.stderr:
        hint = "git config --global --add safe.directory FOLDER, if you trust whoever owns it"
        raise EnvironmentFault(f"git does not read the repository of {file}: it belongs to another user", hint)
    here, hint = (
        _git(Path.cwd(), "rev-parse", "--show-toplevel"),
        "or name a file with the old kernel: --against OLD.py",
    )
    if here.returncode == 0:
        outside = f"{file} lies outside of the git repository {here.stdout.strip()}"
        raise UsageFault(outside, f"name a file in it, {hint}")
    raise UsageFault(f"{file} is in no git repository, so there is no revision of it", f"go to its clone, {hint}")


def _commit(top: Path, revision: str, file: Path) -> str:
    done = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if done.returncode or not revision:
        hint = "name a branch, a tag or a commit that is fetched; in CI, fetch-depth: 0 of actions/checkout fetches all"
        raise UsageFault(f"there is no revision {revision!r} in the repository of {file}", hint)
    return done.stdout.strip()


def _text(top: Path, commit: str, inside: Path) -> str | None:
    """Return the text of a file in a commit; None: it has none."""
    listed = _git(top, "--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", str(inside)).stdout
    mode, kind, *_ = [*listed.split("\t")[0].split(), "", ""]
    if kind != "blob" or mode == _LINK:
        return None
    done = _git(top, "cat-file", "blob", f"{commit}:{inside}")
    if done.returncode:
        raise EnvironmentFault(f"git cannot read {inside} of {commit[:8]}: {done.stderr.strip()}", "git fsck says more")
    if "\ufffd" in done.stdout:
        problem = f"{inside} of {commit[:8]} is not Python: it is not UTF-8 text"
        raise UsageFault(problem, "compare with another revision")
    return done.stdout.removeprefix("\ufeff")


def _git(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(folder), *args]
    env = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(command, capture_output=True, check=False, env=env, encoding="utf-8", errors="replace",
                              timeout=60)  # fmt: skip
    except FileNotFoundError:
        hint = "install git, or name a file: --against OLD.py"
        raise EnvironmentFault("there is no git on this machine", hint) from None
    except subprocess.TimeoutExpired:
        raise EnvironmentFault("git did not answer within 60 s", "try again when the disk is free") from None
