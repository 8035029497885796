"""The roofline is arithmetic on work, time and peaks: the target tells the work, the judge the peaks."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox import target
from pgo_agent.sandbox.judge.questions import PEAK_MARGIN, PeakRates
from pgo_agent.sandbox.judge.timing import measured_peaks as measured
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.kernel_profile import Missing, Roofline
from pgo_agent.sandbox.profile.roofline import NAME, Work, of_case, peaks_of, roofline, work_of, works

from tests.judges import judge_of, judged
from tests.sandbox import tracing
from tests.sandbox.conftest import ADD

H200 = PeakRates(flops=700e12, moved=4e12)
rates = st.floats(1e9, 1e16)
amounts = st.floats(1.0, 1e18)
peaks = st.builds(PeakRates, rates, rates)


def floor(flops: float, moved: float, of: PeakRates) -> float:
    """Seconds that the work takes at least."""
    return max(flops / of.flops, moved / of.moved)


# arithmetic -----------------------------------------------------------------------------------------------------------


def test_a_gemm_at_half_of_the_matrix_product_that_was_seen_reaches_half_of_its_roof() -> None:
    flops, moved = 2.0 * 8192**3, 3 * 2.0 * 8192**2
    found = roofline(flops, moved, 2 * flops / 700e12, "measured", H200)
    assert (found.bound, found.reached) == ("compute", pytest.approx(0.5))
    assert found.intensity == pytest.approx(8192 / 3)


def test_an_addition_that_copies_as_fast_as_memory_was_seen_to_reaches_all_of_its_roof() -> None:
    found = roofline(1e9, 12e9, 12e9 / 4e12, "measured", H200)
    assert (found.bound, found.reached) == ("memory", pytest.approx(1.0))


@given(peaks, st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_at_the_ridge_both_bounds_are_the_same_time(of: PeakRates, least: float, seconds: float) -> None:
    found = roofline(least * of.flops, least * of.moved, seconds, "", of)
    assert found.intensity == pytest.approx(of.flops / of.moved)
    assert found.flops / of.flops == pytest.approx(found.bytes / of.moved)
    assert found.reached == pytest.approx(least / seconds)


@given(peaks, amounts, st.floats(1.001, 1e6))
def test_beyond_the_ridge_arithmetic_bounds_and_before_it_memory(of: PeakRates, moved: float, times: float) -> None:
    ridge = of.flops / of.moved
    assert roofline(moved * ridge * times, moved, 1.0, "", of).bound == "compute"
    assert roofline(moved * ridge / times, moved, 1.0, "", of).bound == "memory"


@given(amounts, amounts, peaks, st.floats(1.0, 1e6))
def test_no_time_at_or_above_the_floor_reaches_more_than_the_roof(
    flops: float, moved: float, of: PeakRates, times: float
) -> None:
    found = roofline(flops, moved, floor(flops, moved, of) * times, "", of)
    assert found.reached <= 1 + 1e-12
    assert found.reached == pytest.approx(1 / times)


@given(amounts, amounts, peaks)
def test_no_more_is_reached_than_the_judges_physical_floor_allows(flops: float, moved: float, of: PeakRates) -> None:
    """The judge accuses a kernel that is faster than the floor, which grants a margin; with nothing in the L2."""
    judges = measured.Peaks(of.flops, of.moved).floor_ms(flops, moved, False, 0)
    assert roofline(flops, moved, judges / 1e3, "", of).reached == pytest.approx(PEAK_MARGIN)


def test_work_without_bytes_is_bound_by_arithmetic_and_without_operations_by_memory() -> None:
    assert roofline(1e9, 0, 1.0, "", H200).intensity == float("inf")
    assert roofline(1e9, 0, 1.0, "", H200).bound == "compute"
    assert roofline(0, 1e9, 1.0, "", H200).bound == "memory"


NAN = float("nan")
NONE = [(0, 0, 1.0), (-1, 5, 1.0), (5, -1, 1.0), (NAN, 1, 1.0), (1, 1, 0.0), (1, 1, -1.0), (1, 1, NAN)]


@pytest.mark.parametrize(("flops", "moved", "seconds"), NONE)
def test_what_is_no_work_or_no_time_is_refused(flops: float, moved: float, seconds: float) -> None:
    with pytest.raises(ValueError):
        roofline(flops, moved, seconds, "", H200)


@pytest.mark.parametrize("of", [PeakRates(0, 1), PeakRates(1, 0), PeakRates(NAN, 1)])
def test_peaks_that_are_none_are_refused(of: PeakRates) -> None:
    with pytest.raises(ValueError):
        roofline(1, 1, 1.0, "", of)


def test_types_of_one_byte_have_twice_the_roof() -> None:
    seen = measured.Peaks(700e12, 4e12)
    assert (seen.best_flops(False), seen.best_flops(True)) == (700e12, 1400e12)


# work and peaks -------------------------------------------------------------------------------------------------------


def test_the_work_of_a_case_is_what_the_targets_functions_say(tmp_path: Path) -> None:
    add = target.read(ADD)
    bench = Workbench(tracing.builder(tmp_path, add))
    told = works(bench, add.source, add.contract)
    assert told["CASES/16m"] == Work(1 << 24, 12 << 24)
    assert set(told) >= {"CASES/1m", "CASES/16m", "HELD_OUT/odd"}
    work = work_of(bench, "CASES/16m")
    found = of_case(work, 12 * (1 << 24) / 4e12, "measured", H200)
    assert isinstance(found, Roofline)
    assert (found.bound, found.reached, found.how) == ("memory", pytest.approx(1.0), "measured")


@pytest.mark.parametrize(
    ("flops", "moved", "why"),
    [
        ("return 0", "return 0", "the target tells no work of CASES/one: neither operations nor bytes"),
        ("return 1 / 0", "return 1", "division by zero"),
        ("return -1", "return 1", "below zero"),
        ("return 'many'", "return 1", "invalid literal"),
    ],
)
def test_a_target_that_tells_no_work_has_no_roofline_and_says_why(
    flops: str, moved: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "subject.py"
    path.write_text(TOLD.replace("FLOPS", flops).replace("MOVED", moved))
    work = work_of(Workbench(tracing.builder(tmp_path, target.read(path))), "CASES/one")
    assert isinstance(work, Missing) and why in work.why, work
    assert work.name == NAME
    assert of_case(work, 1.0, "measured", H200) == work


def test_a_case_that_is_not_there_has_no_work(tmp_path: Path) -> None:
    bench = Workbench(tracing.builder(tmp_path, target.read(ADD)))
    assert work_of(bench, "CASES/none") == Missing(
        NAME, "the target tells no work of CASES/none: neither operations nor bytes"
    )


TOLD = """
import torch


def kernel(x):
    return x + x


def reference(x):
    return x + x


def inputs(case, generator):
    return {"x": torch.ones(8)}


def flops(case):
    FLOPS


def bytes_moved(case):
    MOVED


CASES, SMALL, HELD_OUT = {"one": {}}, {}, {}
"""


def test_a_judge_without_a_gpu_says_so_and_goes_on_judging() -> None:
    judge = judge_of(ADD)
    before = judge.replaced
    missing = peaks_of(judge, "CASES/1m")
    assert missing == Missing(NAME, "this judge has no GPU")
    assert of_case(Work(1, 1), 1.0, "measured", missing) == missing
    assert judged(judge).verdict == "checked"
    assert judge.replaced == before
