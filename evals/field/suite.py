"""The kernels of the field suite: `kernels.toml` names each, with the program that calls it.

README.md beside it says by which rule they were chosen. No code of the packages is here. Runs nothing.
"""

import importlib.metadata
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.sandbox.errors import UsageFault

FOLDER = Path(__file__).parent
PROGRAMS, BY_HAND, KERNELS = FOLDER / "programs", FOLDER / "by_hand", FOLDER / "kernels.toml"
RUNNERS = {"python": ("python",), "pytest": ("pytest",)}
HINT = f"install what {FOLDER / 'requirements.txt'} names: pip install --no-deps -r requirements.txt"


@dataclass(frozen=True)
class FieldKernel:
    """One kernel of a package, and an ordinary program that calls it."""

    name: str
    package: str  # as the package index calls it
    file: str  # the module that launches the kernel
    program: str  # below `programs/`
    run: str = "python"  # or pytest
    launcher: str = ""  # where the program calls several of the module

    @property
    def version(self) -> str:
        """The version that is installed; empty if it is not."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    @property
    def by_hand(self) -> Path | None:
        """What a person adds to the target that `init` writes; None where nothing is needed."""
        path = BY_HAND / f"{self.name}.py"
        return path if path.is_file() else None


def read(names: Sequence[str] = (), file: Path = KERNELS) -> list[FieldKernel]:
    """Return the kernels with one of `names` in their name or package; all without names.

    Raises UsageFault where none is left.
    """
    kernels = [FieldKernel(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["kernel"]]
    chosen = [k for k in kernels if not names or any(n in k.name or n == k.package for n in names)]
    if not chosen:
        raise UsageFault(
            f"no kernel of the field suite is called {', '.join(names)}",
            f"choose some of: {', '.join(k.name for k in kernels)}",
        )
    return chosen
