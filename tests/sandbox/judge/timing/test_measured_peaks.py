"""The physical floor by measured peaks, as arithmetic, and their cache file, which may be anything."""

from pathlib import Path

import pytest
from pgo_agent.sandbox.judge.questions import PEAK_MARGIN
from pgo_agent.sandbox.judge.timing import measured_peaks
from pgo_agent.sandbox.judge.timing.measured_peaks import Peaks

SEEN = Peaks(flops=700e12, moved=4e12)
L2 = 60_000_000


def test_a_kernel_of_arithmetic_is_bound_by_the_matrix_product_that_was_seen() -> None:
    assert SEEN.floor_ms(2 * 8192**3, 1e6, False, L2) == pytest.approx(1e3 * 2 * 8192**3 / (700e12 * PEAK_MARGIN))


def test_types_of_one_byte_are_granted_twice_the_rate() -> None:
    assert SEEN.floor_ms(1e15, 1e6, True, L2) == pytest.approx(SEEN.floor_ms(1e15, 1e6, False, L2) / 2)


def test_what_fits_the_l2_needs_no_time_to_be_written() -> None:
    assert SEEN.floor_ms(1.0, L2, False, L2) < 1e-6
    assert SEEN.floor_ms(1.0, 4e9 + L2, False, L2) == pytest.approx(1 / PEAK_MARGIN)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', "\x00"])
def test_a_cache_that_holds_anything_else_is_as_good_as_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    path.write_text(text)
    assert "the GPU" not in measured_peaks.read_cache(path)
    assert measured_peaks.read_cache(tmp_path / "none.json") == {}
