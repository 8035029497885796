"""Lines of a TTGIR text -> lines of the Python source, by the same text with MLIR's locations.

Relies on `sandbox/ttgir/locations.py` to read locations. Both texts are what Triton prints of one module, so their ops
correspond one to one; where they do not, nothing is said. It does not read the Python source.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from pgo_agent.sandbox.json_codec import Record
from pgo_agent.sandbox.ttgir import locations, reader


@dataclass(frozen=True)
class Frame(Record):
    file: str  # its last component
    line: int  # from 1
    column: int


@dataclass(frozen=True)
class SourceLocation(Record):
    """Where an op comes from."""

    names: tuple[str, ...]  # variables that it was assigned to, as the frontend saw it
    frames: tuple[Frame, ...]  # the innermost call first

    def line(self, file: str) -> int:
        """Return the innermost line of that file; 0 when there is none."""
        return next((f.line for f in self.frames if f.file == file), 0)

    @property
    def file(self) -> str:
        """The file of the outermost frame: where the kernel itself stands. Empty when nothing is known."""
        return self.frames[-1].file if self.frames else ""


NOWHERE = SourceLocation((), ())


def places(plain: str, located: str) -> dict[int, SourceLocation]:
    """Map each TTGIR line of `plain` to its place. Empty when `located` is, or is another module's. Raises
    Unreadable."""
    if not located:
        return {}
    module = reader.parse(located)
    ops, located_ops = list(reader.parse(plain).walk()), list(module.walk())
    if [op.name for op in ops] != [op.name for op in located_ops]:
        return {}
    return {a.line: place(module.locations.frames(b.location)) for a, b in zip(ops, located_ops, strict=True)}


def place(frames: locations.Frames) -> SourceLocation:
    """Return what a location says, as it is kept."""
    names = tuple(name for frame in frames for name in frame.names)
    return SourceLocation(names, tuple(Frame(PurePosixPath(f.file).name, f.line, f.column) for f in frames))
