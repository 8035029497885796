"""What tests have built, for the workspaces of others: as runs that are made at once do it.

For tests that attack something else than building. Builds are found by what they are of (`sandbox/bundle/store.py`).
"""

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

SHARED = ("artefacts", "builds")
FOLDER = "BUILT_BY_TESTS"  # names the folder, to all workers of pytest


def share() -> None:
    """Make the folder that this process, and the workers that it starts, keep builds in; remove it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="pgo-built-"))
    for name in SHARED:
        (folder / name).mkdir()
    os.environ[FOLDER] = str(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def lend(workspace: Path) -> Path:
    """Return the workspace, whose builds are those of all others. Whoever copies it copies links."""
    workspace.mkdir(exist_ok=True)
    for name in SHARED:
        with contextlib.suppress(FileExistsError):
            (workspace / name).symlink_to(Path(os.environ[FOLDER], name))
    return workspace
