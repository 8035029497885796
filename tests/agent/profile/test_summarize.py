"""A summary names first what costs most, keeps within its budget, and says no number that is not in the profile."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.profile.advice import ADVICE, NEEDS_DOTS
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.agent.profile.findings import traffic
from pgo_agent.agent.profile.format import figure
from pgo_agent.agent.profile.quoted_numbers import unfounded
from pgo_agent.agent.profile.summarize import summarize, tokens
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.proposal.prompt import profile_told
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.static_profile import Conversion, Problem
from pgo_agent.sandbox.profile.timeline.types import Waves

from tests.agent import profiles
from tests.agent.profiles import case, chain, counters, kernel, of_scopes, roof, scope, static, timed, timeline

TAILED = Waves(132, 140, 1, 100_000, 47_000, 1.9, 0.53, (), ())


def named(of: CaseProfile) -> list[tuple[str, float | None]]:
    return [(b.finding.defect.value, b.share) for b in summarize(of).bottlenecks]


def test_sections_of_the_timeline_are_named_in_the_order_of_their_cost() -> None:
    assert named(case(kernel(static(), timeline({"copy wait": 0.2, "dot wait": 0.5, "body": 0.3})))) == [
        ("exposed dots", 0.5),
        ("arithmetic between dots", 0.3),
        ("exposed copies", 0.2),
    ]


def test_a_defect_that_explains_a_section_is_named_in_its_place_with_its_share() -> None:
    found = summarize(case(kernel(static(notes=("C7515",)), timeline({"dot wait": 0.5, "copy wait": 0.4}))))
    assert [(b.finding.defect.value, b.share) for b in found.bottlenecks] == [
        ("serialized dots", 0.5),
        ("exposed copies", 0.4),
    ]
    assert "; the timeline has 50% of the cycles in exposed dots." in found.text


def test_a_defect_explains_the_dearest_of_the_sections_that_it_could_and_no_other() -> None:
    spilling = static(spilled=412)
    assert named(case(kernel(spilling, timeline({"dot wait": 0.3, "body": 0.5})))) == [
        ("spill", 0.5),
        ("exposed dots", 0.3),
    ]


def test_defects_without_a_time_come_behind_what_costs_more_than_a_few_percent() -> None:
    seen = case(kernel(static(spilled=412, notes=("C7515",)), timeline({"dot wait": 0.3, "copy wait": 0.06})))
    assert named(seen) == [("spill", 0.3), ("exposed copies", 0.06), ("serialized dots", None)]


def test_without_a_timeline_defects_come_in_their_fixed_order_those_of_minor_kernels_last() -> None:
    minor = static(spilled=412, kernel="_first", kinds={"float": 9})
    seen = case(kernel(minor), kernel(static(notes=("C7515",)), blocks=300))
    assert named(seen) == [("serialized dots", None), ("tail wave", None), ("spill", None)]
    assert "- serialized dots in _run (static)" in summarize(seen).text


def test_bank_conflicts_are_named_first_where_counters_saw_them() -> None:
    alone = case(kernel(static(), counted=counters(conflicts=0.62)))
    assert named(alone) == [("bank conflicts", 0.248)]
    reading = timed(scope("body", 9, 1, "kernel", "ttg.local_load"), 0.7)
    both = case(kernel(static(), of_scopes(reading), counters(conflicts=0.62)))
    assert named(both) == [("bank conflicts", 0.7)]


def test_of_the_work_that_the_roof_is_made_of_only_what_exceeds_the_roof_counts() -> None:
    clocked = timeline({"dot wait": 0.7}, TAILED)
    assert named(case(kernel(static(), clocked)))[0] == ("exposed dots", 0.7)
    assert named(case(kernel(static(), clocked), roofline=roof(0.45)))[0] == ("tail wave", 0.47)
    assert named(case(kernel(static(), clocked), roofline=roof(0.45, compute=False)))[0] == ("exposed dots", 0.7)
    serialized = case(kernel(static(notes=("C7515",)), clocked), roofline=roof(0.45))
    assert named(serialized)[0] == ("serialized dots", 0.7)  # the roof does not need what a defect makes


def test_a_kernel_that_takes_little_of_the_case_comes_behind_one_that_takes_much() -> None:
    short, long = (Waves(132, 264, 1, ns, 100, 1.0, 0.99, (), ()) for ns in (5_000, 95_000))
    first = kernel(static(kernel="_first"), timeline({"copy wait": 0.9}, short))
    second = kernel(static(kernel="_second"), timeline({"dot wait": 0.4}, long))
    assert [b.kernel for b in summarize(case(first, second)).bottlenecks] == ["_second", "_first"]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (case(kernel(static()), roofline=roof(0.61)), "Bound by compute: 61% of the roof is reached, with 1 ms a call"),
        (case(kernel(static()), roofline=roof(0.4, compute=False)), "Bound by memory: 40% of the roof is reached"),
        (
            case(kernel(static()), roofline=Missing("roofline", "no GPU is visible here")),
            "Not timed (no GPU is visible here), so no bound is known; by its instructions the innermost loop of _run "
            "is 8 tensor, 90 integer, 40 float, 12 shared.",
        ),
        (case(kernel(static(), counted=counters())), "by counters the busiest unit of _run is l1, at 50% of its peak."),
        (case(), "and torch operators alone: there is no kernel to look at."),
    ],
)
def test_a_bound_is_claimed_where_it_was_timed_and_nowhere_else(seen: CaseProfile, told: str) -> None:
    found = summarize(seen)
    assert told in found.bound and found.text.startswith(found.bound)
    assert (found.reached is None) == isinstance(seen.roofline, Missing)


def test_the_critical_path_and_what_varies_most_are_named_by_their_lines() -> None:
    dots, copies = scope("dot wait", 20), scope("copy wait", 21)
    clocked = of_scopes(timed(scope("loop", 4), 0.9, 9e4), timed(dots, 0.5), timed(copies, 0.3, 800.0))
    found = summarize(case(kernel(static(), clocked, chain=chain(dots, copies))))
    assert found.path == ("kernel dot wait 20", "kernel copy wait 21")
    assert (
        "14000 cycles in 9 iterations, most of them in dot wait (line 20) 5000, copy wait (line 21) 4000." in found.text
    )
    assert found.varies == "copy wait (line 21) takes 640 (P20) to 1200 (P80) cycles, 16 times in a block."


def test_launches_of_several_kernels_are_told_with_their_times_and_the_rest_of_the_call() -> None:
    short, long = (Waves(132, 264, 1, ns, 100, 1.0, 0.99, (), ()) for ns in (50_000, 150_000))
    first = kernel(static(kernel="_first"), timeline({"copy wait": 0.9}, short))
    second = kernel(static(kernel="_second"), timeline({"dot wait": 0.4}, long))
    text = summarize(case(first, second, roofline=roof(0.4))).text
    assert "while a timeline is recorded: _second 0.150 ms, _first 0.0500 ms; the rest of a call is torch" in text
    assert "the rest of a call" not in summarize(case(first, second)).text


def test_a_line_is_told_with_its_file_where_kernels_stand_in_several() -> None:
    other, waits = replace(static(kernel="_other"), file="else.py"), timeline({"dot wait": 0.5})
    assert "line 20)" in summarize(case(kernel(static(), waits))).text
    both = summarize(case(kernel(static(), waits), kernel(other, waits)))
    assert "line 20 of a.py" in both.text and "line 20 of else.py" in both.text
    assert profile_told.lines_named(both.text.splitlines(), {"a.py"}) == [20]
    assert profile_told.lines_named(both.text.splitlines(), ()) == []


def test_what_changed_is_told_by_both_numbers() -> None:
    before = case(kernel(static(spilled=412, registers=255), timeline({"dot wait": 0.5})), roofline=roof(0.4))
    after = case(kernel(static(), timeline({"dot wait": 0.4, "body": 0.3})), roofline=roof(0.5))
    assert summarize(after, before).changed == (
        "50% of the roof is reached, 40% before.",
        "New in _run: arithmetic between dots.",
        "Gone in _run: spill.",
        "In _run exposed dots take 40% of the time, 50% before.",
        "Of _run: registers of a thread 168, 255 before; bytes spilled 0, 412 before.",
    )
    assert summarize(after, after).changed == ("Nothing that the profile shows.",)
    renamed = case(kernel(static(kernel="_other")))
    assert summarize(renamed, case(kernel(static()))).changed == (
        "The kernel _other is new.",
        "The kernel _run is gone.",
    )


def test_advice_is_for_the_first_bottlenecks_and_says_when_little_is_left() -> None:
    found = summarize(case(kernel(static(), timeline({"dot wait": 0.95})), roofline=roof(0.93)))
    assert found.tries[0].startswith("The roof is near") and "'specialize warps'" in found.tries[1]
    assert summarize(case(kernel(static()))).tries == ()


def test_a_kernel_without_dots_is_told_nothing_that_needs_some() -> None:
    streaming = static(kinds={"global": 8, "integer": 9})
    streaming = replace(streaming, pipeline=replace(streaming.pipeline, dots=0))
    waiting = timeline({"load": 0.9, "copy wait": 0.1})
    with_dots, without = (summarize(case(kernel(s, waiting))).tries for s in (static(), streaming))
    assert any("'specialize warps'" in t for t in with_dots)
    assert without and not any(n in t for t in without for n in NEEDS_DOTS)
    assert all(a.text(dots=False).endswith(".") for a in ADVICE.values())


@pytest.mark.parametrize(
    ("blocks", "expected"), [(100, ["small grid"]), (128, []), (200, ["tail wave"]), (260, []), (396, [])]
)
def test_blocks_that_all_run_at_once_are_counted_by_sm(blocks: int, expected: list[str]) -> None:
    resident = replace(static(), occupancy=replace(static().occupancy, blocks=4))
    assert [d for d, _ in named(case(kernel(resident, blocks=blocks)))] == expected


def test_a_case_that_moves_more_than_it_needs_is_told_how_much() -> None:
    (found,) = traffic(3.0e8, 1.0e8)
    assert found.figure == 3.0 and "300 MB" in found.told and "3 times the 100 MB" in found.told
    assert traffic(1.2e8, 1.0e8) == traffic(1.0e8, 0.0) == ()


def test_a_kernel_without_a_static_profile_is_summarized_by_what_there_is() -> None:
    odd = replace(kernel(static(), timeline({"body": 0.6})), static=Problem("_run-build", "nvidia", "no cubin"))
    assert named(case(odd)) == [("arithmetic between dots", 0.6)]
    assert "_run has no static profile (no cubin)" in summarize(case(odd)).bound


def test_defects_of_a_kind_are_told_once_and_all_are_listed() -> None:
    turning = replace(static(), conversions=tuple(Conversion(9, 12 + i, 4, 4096, 1, 0, 0) for i in range(40)))
    found = summarize(case(kernel(turning)))
    assert len(found.bottlenecks) == 40
    (line,) = (x for x in found.text.splitlines() if x.startswith("- "))
    assert line.endswith("moves 4096 B through shared memory. There are others of its kind.") and "line 12" in line


def test_a_text_that_is_too_long_loses_sentences_in_the_stated_order() -> None:
    slow = replace(static(spilled=412, notes=("C7515",)), conversions=(Conversion(9, 12, 4, 4096, 1, 0, 0),))
    before = case(kernel(static(), timeline({"dot wait": 0.4})))
    clocked = timeline({"dot wait": 0.3, "body": 0.2, "copy wait": 0.1})
    seen = case(kernel(slow, clocked, chain=chain(scope("dot wait", 20))))
    whole = summarize(seen, before, 10**6).text.splitlines()
    lost = [
        *[x for x in whole if x.startswith("Try")][:0:-1],
        *[x for x in whole if x.startswith("Varies")],
        *[x for x in whole if x.startswith("- ")][:2:-1],
        *[x for x in whole if x.startswith("Critical")],
        *[x for x in whole if x.startswith("Since")][::-1],
        *[x for x in whole if x.startswith("- ")][2:0:-1],
        *[x for x in whole if x.startswith("Try")][:1],
    ]
    assert len(lost) == len(whole) - 2
    texts = {summarize(seen, before, budget).text for budget in range(1000)}
    assert texts == {"\n".join(x for x in whole if x not in lost[:n]) for n in range(len(lost) + 1)}


SHARES = st.dictionaries(st.sampled_from([k.value for k in profiles.OPS]), st.floats(0, 0.3), max_size=6)
STATICS = st.builds(
    static,
    notes=st.sampled_from([(), ("C7515",), ("C7510", "C7512")]),
    spilled=st.sampled_from([0, 8, 412, 16384]),
    registers=st.integers(16, 255),
    kernel=st.sampled_from(["_run", "attention_2_bwd"]),
)
COUNTED = st.builds(
    counters,
    st.floats(0, 1),
    l2_hit=st.none() | st.floats(0, 1),
    stalls=st.dictionaries(st.sampled_from(["short_scoreboard", "mio_throttle", "wait"]), st.floats(0, 0.5)),
    speed_of_light=st.dictionaries(st.sampled_from(["sm", "dram", "tensor"]), st.floats(0, 1)),
)
WAVES = st.none() | st.builds(
    Waves,
    st.integers(1, 132), st.integers(1, 3000), st.integers(1, 4), st.integers(32, 10**7), st.integers(0, 10**6),
    st.floats(1, 3), st.floats(0.01, 1), st.just(()), st.just(()),
)  # fmt: skip
LOST = st.just(Missing("timeline", "it takes about 12.5 s of the GPU, and 3.0 s are left"))
KERNELS = st.builds(
    kernel,
    STATICS,
    st.builds(timeline, SHARES, WAVES) | LOST,
    COUNTED | LOST,
    st.builds(chain, st.builds(scope, st.sampled_from(["dot wait", "body"]), st.integers(1, 400))) | LOST,
    st.integers(1, 5000),
)
CASES = st.builds(
    lambda kernels, roofline: case(*kernels, roofline=roofline),
    st.lists(KERNELS, max_size=2, unique_by=lambda k: k.build),
    st.builds(roof, st.floats(0.01, 1.2), st.booleans()) | LOST,
)


@settings(max_examples=150)
@given(CASES, st.none() | CASES, st.integers(100, 1000))
def test_any_profile_fits_its_budget_and_every_number_is_in_it(
    now: CaseProfile, before: CaseProfile | None, budget: int
) -> None:
    found = summarize(now, before, budget)
    assert unfounded("\n".join([found.text, *found.changed, *found.tries]), now, *([before] if before else [])) == []
    assert tokens(found.text) <= max(budget, tokens("\n".join(found.text.splitlines()[:2])))
    assert found.text.startswith(found.bound)
    for b in found.bottlenecks[:1]:
        assert b.finding.defect in found.text and figure(b.finding) in found.text and b.finding.told in found.text
    assert Summary.from_json(found.as_json()) == found
    assert summarize(now, before, budget) == found
    of_others = [f for listed in now.findings.values() for f in listed if f.found_by != "timeline"]
    assert all(f in [b.finding for b in found.bottlenecks] for f in of_others)


def test_an_empty_profile_says_so() -> None:
    assert summarize(case(kernel(static()))).text.splitlines()[1] == "No known defect stands out."
