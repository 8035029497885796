"""A number in a summary passes where the profile has it, as it is printed there; one that is made up does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.profile.findings import Defect, Finding
from pgo_agent.agent.profile.format import percent, printed
from pgo_agent.agent.profile.quoted_numbers import unfounded

from tests.agent.profiles import case, kernel, roof, static, timeline

SEEN = case(kernel(static(spilled=412), timeline({"dot wait": 0.4567})), roofline=roof(0.6123))


def holding(x: float) -> Finding:
    return Finding(Defect.SPILL, x, "", 0, "")


@pytest.mark.parametrize(
    "text",
    [
        "It spills 412 B, holds 168 registers, and 46% (or 45.7 %) of its cycles are waits for dots.",
        "61% of the roof is reached, 0.612 of it, with 1 ms a call, 1000 us.",  # the profile has seconds
        "The peak is 800 TFLOP/s and 2 TB/s; 98,304 bytes are shared.",
        "1. The spill in _run.\n2) C7515 on sm_90a, with float16 and exp2, in attention_2_bwd.\n 3. Line 20.",
        "Dots wait (a.py:20).",
        "",
    ],
)
def test_what_the_profile_has_passes_as_it_is_printed(text: str) -> None:
    assert unfounded(text, SEEN) == []


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("It spills 413 B.", ["413"]),
        ("47% of its cycles are waits.", ["47%"]),
        ("45.6 % of its cycles are waits.", ["45.6 %"]),
        ("It is 1.35x as fast, or .77 of the time.", ["1.35", ".77"]),
        ("412% of the time.", ["412%"]),  # bytes are no share
        ("168 TFLOP/s are reached.", ["168 TFLOP/s"]),  # registers are no rate
        ("It takes 7e3 cycles and 12,345 more.", ["7e3", "12,345"]),
        ("It loses -777 to -999.5 cycles.", ["777", "999.5"]),
        ("777\n888", ["777", "888"]),
    ],
)
def test_what_is_made_up_is_named(text: str, made_up: list[str]) -> None:
    assert unfounded(text, SEEN) == made_up


def test_an_earlier_profile_founds_numbers_where_it_is_given() -> None:
    before = case(kernel(static(registers=255)))
    assert unfounded("255 registers before, 168 now", SEEN) == ["255"]
    assert unfounded("255 registers before, 168 now", SEEN, before) == []


@given(st.floats(0.001, 1e9) | st.integers(0, 10**9).map(float))
def test_a_number_passes_as_the_summarizer_prints_it(x: float) -> None:
    assert unfounded(f"{printed(x)} cycles, {percent(x)} of it", holding(x)) == []


@given(st.floats(0.001, 1e6), st.floats(0.02, 10))
def test_a_number_that_is_off_by_more_than_it_is_rounded_is_made_up(x: float, off: float) -> None:
    assert unfounded(f"{printed(x * (1 + off))} cycles", holding(x))
    assert unfounded(f"{100 * x * (1 + off):.3f}% of it", holding(x))


@given(st.text() | st.from_regex(r"[0-9.,e+%-]{1,40}"))
def test_any_text_is_read(text: str) -> None:
    assert all(number in text for number in unfounded(text, SEEN))
