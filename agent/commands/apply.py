"""`apply`: writes an accepted candidate into the user's file, or onto a git branch, with its evidence.

Only the kernel part may differ: a candidate whose contract differs from the file's is refused. The file is replaced in
one step, and its old text is kept beside it. A file that changed since the run, or that is in an unresolved merge, is
refused.
"""

import difflib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.commands import origins
from pgo_agent.agent.commands.dispatch import command
from pgo_agent.agent.run.dispatch import Proof
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.summary import interval
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import EnvironmentFault, TargetMoved, UsageFault

_MARKERS = re.compile(r"^(<{7}|>{7}) ", re.M)
_UNDER_WAY = {  # a file of git's -> what is going on while it is there
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


@dataclass(frozen=True)
class Change:
    """What would be written where."""

    path: Path
    old: str
    new: str
    message: str  # for a commit: what changed, and its evidence

    @property
    def diff(self) -> str:
        names = f"a/{self.path.name}", f"b/{self.path.name}"
        return "".join(difflib.unified_diff(self.old.splitlines(True), self.new.splitlines(True), *names))


def plan(store: Store, name: str, candidate: str | None, to_source: bool = False, dispatch: bool = False) -> Change:
    """Return the change that applying a candidate (by default the run's winner) would make. `to_source`: in the file
    that `init` took the target from. `dispatch`: not a candidate, but what `pgo-agent dispatch` has proven of the run.

    Raises UsageFault when there is no accepted candidate, TargetMoved when the file is not what the run was about.
    """
    run = store.run(name)
    if dispatch:
        if candidate:
            raise UsageFault("--dispatch is of all winners of a run", "name the run alone")
        proof, text = command.kept(store, run.id)
        return _change(store.run(proof.run), text, _proven(proof), to_source)
    chosen = store.candidate(run.id, candidate) if candidate else _winner(store, run)
    if chosen.verdict != "accepted":
        raise UsageFault(f"candidate {chosen.id} is {chosen.verdict or 'not judged'}, not accepted",
                         "only what was checked and measured on a GPU is applied")  # fmt: skip
    if chosen.kind == "ttgir":
        printed = f"`pgo-agent show {run.id} {chosen.id[:8]} --source` prints it, for `ir_override=` of a launch"
        raise UsageFault(f"candidate {chosen.id} is TTGIR, which no Triton source says", printed)
    return _change(run, chosen.source, _message(run, chosen), to_source)


def _change(run: Run, source: str, message: str, to_source: bool) -> Change:
    path = Path(run.target)
    current = _read_target(path)
    if current.digest != run.digest:
        raise TargetMoved(f"{path} changed since run {run.id} began", "start a new run on it, or restore the file")
    if not target.same_contract(source, current.source):
        raise UsageFault("the candidate changes reference, inputs or cases", "only the kernel part is applied")
    written = origins.changed(current, source) if to_source else (path, current.source, source)
    return Change(*written, message)


def write(change: Change) -> Path:
    """Replace the file and return the backup's path. Raises EnvironmentFault when the file cannot be written."""
    backup = change.path.with_name(f"{change.path.name}.orig")
    part = change.path.with_name(f".{change.path.name}.pgo")
    if not os.access(change.path, os.W_OK) or change.path.stat().st_mode & 0o222 == 0:
        raise EnvironmentFault(f"{change.path} is read-only", "make it writable, or use --branch")
    if backup.exists():
        raise UsageFault(f"{backup} exists already", "it holds an earlier original: move it away first")
    try:
        backup.write_text(change.old)
        part.write_text(change.new)
        part.chmod(change.path.stat().st_mode & 0o777)
        part.replace(change.path)
    except OSError as e:
        part.unlink(missing_ok=True)
        raise EnvironmentFault(f"cannot write {change.path}: {e.strerror}", "check its folder") from None
    return backup


def branch(change: Change, name: str) -> str:
    """Make a git branch with one commit that holds the change, and return the commit. The work tree is untouched."""
    top = Path(_git(change.path.parent, "rev-parse", "--show-toplevel"))
    _nothing_under_way(top)
    inside = change.path.resolve().relative_to(top.resolve())
    if _git(top, "status", "--porcelain", "--", str(inside)):
        raise UsageFault(
            f"{change.path} has changes that are not committed", "commit them first, so that the branch can start there"
        )
    blob = _git(top, "hash-object", "-w", "--stdin", text=change.new)
    mode = _git(top, "ls-files", "--stage", "--", str(inside)).split()[0]
    index = {"GIT_INDEX_FILE": _git(top, "rev-parse", "--absolute-git-dir") + f"/pgo-agent-{os.getpid()}.index"}
    try:
        _git(top, "read-tree", "HEAD", env=index)
        _git(top, "update-index", "--cacheinfo", f"{mode},{blob},{inside}", env=index)
        tree = _git(top, "write-tree", env=index)
    finally:
        Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
    commit = _git(top, "commit-tree", tree, "-p", "HEAD", "-F", "-", text=change.message)
    _git(top, "branch", "--", name, commit)
    return commit


def _read_target(path: Path) -> target.Target:
    """Read the target. Raises UsageFault when it is in the middle of a merge."""
    resolve = "resolve the conflict and `git add` the file, or abort the merge; then apply again"
    if _unmerged(path):
        raise UsageFault(f"git says that {path} is not merged yet", resolve)
    try:
        return target.read(path)
    except UsageFault:
        if _MARKERS.search(target.text(path)):
            raise UsageFault(f"{path} holds the markers of a merge conflict (<<<<<<<)", resolve) from None
        raise


def _unmerged(path: Path) -> bool:
    try:
        return bool(_git(path.parent, "ls-files", "--unmerged", "--", path.name))
    except (UsageFault, EnvironmentFault):
        return False  # in no repository, or no git here


def _nothing_under_way(top: Path) -> None:
    """Raise UsageFault in the middle of a merge or a rebase: a branch would start at a commit that may not stay."""
    for name, doing in _UNDER_WAY.items():
        if Path(top, _git(top, "rev-parse", "--git-path", name)).exists():
            raise UsageFault(
                f"a {doing} is under way in {top}", f"finish it (git {doing} --continue) or abort it; then apply again"
            )


def _winner(store: Store, run: Run) -> Candidate:
    accepted = [c for c in store.candidates(run.id) if c.verdict == "accepted"]
    if not accepted:
        raise UsageFault(f"run {run.id} has no accepted candidate", "`pgo-agent show` says what was tried")
    return accepted[-1]


def _message(run: Run, c: Candidate) -> str:
    lines = [f"{Path(run.target).stem}: {c.move}", "", c.rationale, ""]
    verdict = [f"{c.verdict} at {c.stage}: {c.reason}", f"run {run.id}, candidate {c.id}"]
    if isinstance(run.summary, MeasuredRun):
        env, count = run.summary.environment, len(run.summary.cases)
        for name, bounds in run.summary.against.items():
            lines.append(f"{interval(bounds)} of {name} (geometric mean of {count} cases, 95 %)")
        verdict.append(f"{env.gpu}, driver {env.driver}, torch {env.torch}")
    lines += verdict
    return "\n".join(lines) + "\n"


def _proven(proof: Proof) -> str:
    """Return the message of a commit that brings a dispatch."""
    lines = [f"{Path(proof.target).stem}: faster kernels behind guards", "", f"proven on {proof.gpu}: {proof.said}"]
    for i, region in enumerate(proof.regions, 1):
        timed = [f"{case} {r[1]:.3f}x" for case, r in region.cases.items() if r]
        lines += ["", f"region {i}: {region.move}, {', '.join(timed)}", f"if {region.guard}"]
    return "\n".join([*lines, "", f"run {proof.run}, judged in run {proof.judged}"]) + "\n"


def _git(folder: Path, *args: str, text: str | None = None, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], input=text, capture_output=True, text=True, check=True,
                              env=os.environ | (env or {}))  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentFault("git is not installed", "install it, or apply without --branch") from None
    except subprocess.CalledProcessError as e:
        raise UsageFault(
            f"git {args[0]}: {e.stderr.strip()}", "is the file in a git repository, and the branch name free?"
        ) from None
    return done.stdout.strip()
