"""How much of a launch grid is built where nothing is timed."""

from itertools import pairwise

import pytest
from pgo_agent.agent.evaluation.baseline_builds import sample
from pgo_agent.agent.moves.launch_space import Varied


@pytest.mark.parametrize(
    ("texts", "points", "built", "each"),
    [
        (1, 12, 1, None),
        (1, 36, 1, 12),
        (12, 12, 12, None),
        (40, 40, 12, 1),
        (5, 50, 5, 2),
        (3, 300, 3, 4),
        (4, 8, 4, None),
    ],
)
def test_at_most_twelve_points_are_built_from_the_whole_of_a_grid(
    texts: int, points: int, built: int, each: int | None
) -> None:
    grid = Varied(tuple((f"text {n}", None) for n in range(texts)), points)
    chosen, limit = sample(grid)
    assert (len(chosen), limit) == (built, each)
    numbers = [int(text.split()[1]) for text, _ in chosen]
    gaps = {b - a for a, b in pairwise(numbers)}
    assert numbers[0] == 0 and max(gaps, default=1) <= -(-texts // built)
