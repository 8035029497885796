"""Finds the folder of installed packages that a file lies in. It imports nothing, and asks no interpreter."""

from pathlib import Path

NAMES = ("site-packages", "dist-packages")  # pip's, and Debian's


def packages_folder(file: Path) -> Path | None:
    """Return the folder of installed packages that a file lies in, one that `pip install --target` filled included;
    None for any other file."""
    return next((f for f in file.parents if f.name in NAMES or holds_packages(f)), None)


def holds_packages(folder: Path) -> bool:
    """Whether pip has put packages into a folder, whatever its name: it leaves what it knows of each beside it."""
    return any(folder.glob("*.dist-info/RECORD"))


def within(file: Path) -> tuple[str, ...]:
    """Return the parts of a file's path below its folder of installed packages; none for any other file."""
    folder = packages_folder(file)
    return file.relative_to(folder).parts if folder else ()
