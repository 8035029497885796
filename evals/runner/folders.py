"""The folders of this package that evaluations read and write."""

from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"  # committed evidence, as JSON lines
