"""The timeline pass on a real GPU: records come back whole, outputs stay the same, and scopes add up to their roles.

Three kernels: attention and GEMM as shipped, and a warp-specialized attention. Needs a GPU of sandbox/devices.py.
"""

from pathlib import Path

import pytest
from pgo_agent.sandbox.profile.timeline.collect import take
from pgo_agent.sandbox.profile.timeline.find_scopes import HOLDING, Kind
from pgo_agent.sandbox.profile.timeline.types import Timeline

from tests.gpu.placing import placed

ROOT = Path(__file__).parents[2]
MOST_OVERHEAD = 1.5  # times as long as the plain build: above that the records time themselves
MOST_COST = 200.0  # cycles of a record: an empty scope is a clock read and a store
KERNELS = {
    "fa_fwd": (ROOT / "kernels" / "fa_fwd.py", "d128-4k"),
    "gemm": (ROOT / "kernels" / "gemm.py", "8k"),
    "specialized": (ROOT / "evals" / "corpus" / "targets" / "attention_specialized.py", "d128-4k"),
}
INSIDE = frozenset(Kind) - HOLDING  # scopes that do not hold each other


@pytest.fixture(scope="module", params=KERNELS)
def taken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Timeline]:
    path, case = KERNELS[request.param]
    with placed(path, case, tmp_path_factory.mktemp("timeline")) as p:
        return request.param, take(p.judge, p.builder, p.place, per_pass=8, repeats=3, blocks=32)


@pytest.mark.gpu
def test_records_come_back_whole_and_the_outputs_are_those_of_the_plain_build(taken: tuple[str, Timeline]) -> None:
    name, timeline = taken
    assert timeline.passes and not timeline.refused, timeline.refused
    for one in timeline.passes:
        assert one.same_outputs, name
        assert (one.timed.lost.overwritten, one.timed.lost.unpaired, one.timed.problems) == (0, 0, ())
        assert all(s.samples for s in one.timed.scopes)
    assert Timeline.from_json(timeline.as_json()) == timeline


@pytest.mark.gpu
def test_records_disturb_little_and_their_cost_is_known_in_every_role(taken: tuple[str, Timeline]) -> None:
    name, timeline = taken
    overheads = [round(p.overhead, 3) for p in timeline.passes]
    print(f"\n{name}: overheads {overheads}, cycles of a record {timeline.costs}")
    assert max(overheads) < MOST_OVERHEAD
    inner = {s.scope.role for p in timeline.passes for s in p.timed.scopes if s.scope.kind in INSIDE}
    assert inner - {"kernel"} <= timeline.costs.keys()
    assert all(0 < c < MOST_COST for c in timeline.costs.values())


@pytest.mark.gpu
def test_the_scopes_of_a_role_add_up_to_no_more_than_the_role_and_to_most_of_its_loop(
    taken: tuple[str, Timeline],
) -> None:
    """By the P50 of single executions, times their count; each scope is measured in one of several builds."""
    name, timeline = taken
    scopes = {s.scope.name: s for p in timeline.passes for s in p.timed.scopes}.values()
    roles = {s.scope.role: s.cycles.p50 for s in scopes if s.scope.kind is Kind.ROLE}
    sums = {
        role: sum(s.cycles.p50 * s.count for s in scopes if s.scope.role == role and s.scope.kind in INSIDE)
        for role in roles
    }
    print(f"\n{name}: cycles of roles {roles}, of their scopes {sums}")
    assert all(sums[r] <= 1.3 * roles[r] for r in roles)
    assert max(sums[r] / roles[r] for r in roles) > 0.5


@pytest.mark.gpu
def test_blocks_fill_the_sms_in_waves(taken: tuple[str, Timeline]) -> None:
    name, timeline = taken
    seen = timeline.waves
    assert seen is not None
    print(f"\n{name}: {seen.sms} SMs, {len(seen.waves)} waves, tail {seen.tail_ns} of {seen.span_ns} ns")
    assert sum(w.blocks for w in seen.waves) == seen.blocks
    assert 0 < seen.busy <= 1 <= seen.imbalance
    assert 0 <= seen.tail_ns <= seen.span_ns
    assert seen.sms > 100
