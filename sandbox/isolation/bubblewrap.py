"""What a boxed process can see: the interpreter, its libraries, our sandbox package and one folder."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from pgo_agent.sandbox.errors import UsageFault
from pgo_agent.sandbox.packages_folder import holds_packages
from pgo_agent.sandbox.temporary_folders import folder_of_process

NOBODY = 65534
PACKAGE = Path(__file__).parents[1]


def bubblewrap(python: str, folder: Path, *filters: int, info: int | None = None) -> list[str]:
    """Return bubblewrap's command line. `filters`: open files with seccomp filters. `info`: an open file for its
    status."""
    root = os.geteuid() == 0
    mounts = [m for p in readable(python) for m in (*_parents(p), "--ro-bind", str(p), str(p))]
    links = [m for p in ("/bin", "/lib", "/lib64", "/sbin") for m in _link_or_bind(Path(p))]
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--"]
    return [
        shutil.which("bwrap") or "bwrap",  # a box has a PATH of its own
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        *(
            ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            if root
            else ["--unshare-user", "--disable-userns"]
        ),
        "--die-with-parent",
        "--new-session",
        *(a for fd in filters for a in ("--seccomp", str(fd))),
        *(["--info-fd", str(info)] if info is not None else []),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--perms",
        "1777",
        "--size",
        str(4 << 30),
        "--tmpfs",
        "/tmp",
        *links,
        *mounts,
        "--perms",
        "0755",
        "--dir",
        "/pgo",
        "--perms",
        "0755",
        "--dir",
        "/pgo/pgo_agent",
        "--ro-bind",
        str(PACKAGE),
        "/pgo/pgo_agent/sandbox",
        "--ro-bind",
        str(folder),
        "/box",
        "--bind",
        str(folder / "out"),
        "/box/out",
        "--bind",
        str(folder / "tmp"),
        "/box/tmp",
        "--remount-ro",
        "/",
        "--chdir",
        "/box",
        "--",
        *(drop if root else []),
    ]


def readable(python: str) -> list[Path]:
    """Return the interpreter, its libraries, and the system's: all that a boxed process may read."""
    interpreter = {*map(Path, _prefixes(python)), *extra_paths()}
    return sorted(
        {Path("/usr"), *interpreter, *(p for p in (Path("/etc/ld.so.cache"), Path("/etc/alternatives")) if p.exists())}
    )


@cache
def _prefixes(python: str) -> tuple[str, ...]:
    """Return sys.prefix and sys.base_prefix of the interpreter that is to run."""
    if python == sys.executable:
        return tuple({sys.prefix, sys.base_prefix})
    code = "import sys; print(sys.prefix); print(sys.base_prefix)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as e:
        raise UsageFault(f"{python} does not run as a Python interpreter: {e}", "give --python a path") from None
    return tuple(set(done.stdout.split()))


def extra_paths() -> list[Path]:
    """Return folders that PYTHONPATH adds and that hold torch, triton, numpy, an assembler, or packages that pip put
    there; never our own checkout."""
    folders = [Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    named = ("torch", "triton", "numpy", "nvidia")
    return [p for p in folders if any((p / n).is_dir() for n in named) or holds_packages(p)]


def _parents(path: Path) -> list[str]:
    """bubblewrap makes missing parents for root alone (mode 0700): make them passable first."""
    return [a for p in reversed(path.parents) if p != Path("/") for a in ("--perms", "0755", "--dir", str(p))]


def _link_or_bind(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []


@cache
def import_root() -> Path:
    """Return a folder from which `pgo_agent.sandbox`, and nothing else of ours, can be imported."""
    root = folder_of_process("import")
    (root / "pgo_agent").mkdir()
    (root / "pgo_agent" / "sandbox").symlink_to(PACKAGE)
    root.chmod(0o755)
    return root
