"""Pieces of a launcher's text: calls in lines, tuples, arguments by name."""

from collections.abc import Sequence

from pgo_agent.agent.commands.traces.events import TracedTensor

WIDTH = 112  # columns of a line


def base(name: str) -> str:
    return name.lower().removesuffix("_ptr").removesuffix("_pointer").strip("_")


def wrapped(begin: str, parts: Sequence[str]) -> list[str]:
    """Return a call in lines of at most WIDTH, where it fits."""
    if len(begin) + len(", ".join(parts)) < WIDTH:
        return [f"{begin}{', '.join(parts)})"]
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) > WIDTH - 8:
            lines.append("")
        lines[-1] += f"{part}, "
    return [begin, *(f"    {line.rstrip()}" for line in lines), ")"]


def by_name(names: Sequence[str], given: Sequence[str], constants: frozenset[str]) -> list[str]:
    """Return arguments by position until the first compile-time constant, and by name from there on."""
    first = next((i for i, n in enumerate(names) if n in constants), len(names))
    return [text if i < first or "=" in text else f"{names[i]}={text}" for i, text in enumerate(given)]


def contiguous(t: TracedTensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(t.shape), reversed(t.stride), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def listed(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
