"""What tests of one process of pytest have built, for the workspaces of others: as runs that are made at once do it.

For tests that attack something else than building. Builds are found by what they are of (`sandbox/bundle/store.py`).
"""

import atexit
import contextlib
import shutil
import tempfile
from functools import cache
from pathlib import Path

SHARED = ("artefacts", "builds")


def lend(workspace: Path) -> Path:
    """Return the workspace, whose builds are those of all others. Whoever copies it copies links."""
    workspace.mkdir(exist_ok=True)
    for name in SHARED:
        with contextlib.suppress(FileExistsError):
            (workspace / name).symlink_to(_built() / name)
    return workspace


@cache
def _built() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pgo-built-"))
    for name in SHARED:
        (folder / name).mkdir()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
