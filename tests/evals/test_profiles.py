"""What is recorded of a profile: scopes add up beside their role, and instructions beside those that were counted.

The cycles are made up (`tests/agent/timelines.py`); the sums are not.
"""

from dataclasses import replace

import pytest
from pgo_agent.agent.profile.case_profile import CaseProfile
from pgo_agent.evals import profiles
from pgo_agent.sandbox.profile.counters.types import LineCounters
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Missing, ScopeIpc
from pgo_agent.sandbox.profile.timeline.find_scopes import Kind
from pgo_agent.sandbox.profile.timeline.types import Timeline

from tests.agent import profiles as made
from tests.agent import timelines

EVERYBODY = 132 * 4  # warps of the launch below


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return timelines.timeline(timelines.scopes("gemm"))


@pytest.fixture(scope="module")
def kernel(timeline: Timeline) -> KernelProfile:
    return made.kernel(made.static(), timeline, blocks=132)


def case(kernel: KernelProfile) -> CaseProfile:
    return replace(made.case(kernel), decisions={kernel.build: ()})


def test_the_scopes_of_a_role_stand_beside_its_cycles(kernel: KernelProfile, timeline: Timeline) -> None:
    (line,) = profiles.lines(case(kernel), "gemm", "abc")
    (role,) = line["roles"]
    whole = next(s for s in timeline.scopes if s.scope.kind is Kind.ROLE)
    assert role["cycles"] == whole.cycles.p50
    assert role["of_scopes"] == pytest.approx(whole.cycles.p50 / 1.04)  # as these cycles were made up


def test_instructions_of_a_scope_are_told_beside_what_a_warp_executed(
    kernel: KernelProfile, timeline: Timeline
) -> None:
    dot = next(s for s in timeline.scopes if s.scope.kind is Kind.DOT)
    seen = LineCounters(dot.scope.first, int(40 * dot.count * EVERYBODY), 9, {})
    counted = made.counters(lines=(seen,))
    rates = (ScopeIpc(dot.scope.name, 41.0, 96.0, 41 / 96),)
    (line,) = profiles.lines(case(replace(kernel, ipc=rates, counters=counted)), "gemm", "abc")
    assert line["ipc"] == [rates[0].as_json() | {"by_counters": pytest.approx(40.0)}]


def test_a_kernel_that_was_not_timed_is_not_recorded(kernel: KernelProfile) -> None:
    assert list(profiles.lines(case(replace(kernel, timeline=Missing("timeline", "no GPU"))), "gemm", "abc")) == []
