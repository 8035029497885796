"""How many blocks a launch may have, in words: along each axis, and together.

The limits are those of CUDA (PTX: %nctaid), and the most that a plan may hold (`sandbox/bundle/validate.py`).
"""

from collections.abc import Iterator, Sequence

from pgo_agent.sandbox.bundle.schema import MOST_BLOCKS

AXES = (("x", 2**31 - 1), ("y", 65535), ("z", 65535))


def problems(name: str, grid: Sequence[int]) -> Iterator[str]:
    """Yield why a launch of this kernel is refused. A grid without blocks is not: nothing runs."""
    size_text = " x ".join(str(int(g)) for g in grid)
    for (axis, most), size in zip(AXES, grid, strict=True):
        if not 0 <= size <= most:
            yield f"{name} is launched on {size_text} blocks: axis {axis} takes 0 to {most}"
    blocks = int(grid[0]) * int(grid[1]) * int(grid[2])
    if blocks > MOST_BLOCKS:
        yield f"{name} is launched on {size_text} blocks, together {blocks}: {MOST_BLOCKS} are the most"
