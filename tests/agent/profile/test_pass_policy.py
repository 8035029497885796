"""The embedded profiler takes what it needs for a ranking, in a fixed order, and never more than it may."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.profile.pass_policy import Taken, take
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Missing, PassName
from pgo_agent.sandbox.profile.static_profile import Pipeline, Problem, StaticProfile
from pgo_agent.sandbox.profile.timeline.types import Timeline

from tests.agent import profiles
from tests.agent.profiles import of_scopes, scope, static, timed, timeline

GEMM = timeline({"dot wait": 0.75, "copy wait": 0.15})
ATTENTION = timeline({"dot wait": 0.42, "body": 0.4, "copy wait": 0.1})
COPYING = timeline({"copy wait": 0.6, "dot wait": 0.3})
SERIALIZED = static(notes=("C7515",))
ALONE = replace(static(kinds={"global": 2}), pipeline=Pipeline(1, (), 0, 0, False), loops=())
NO_GPU = "no GPU is visible here"
NAMES = st.sampled_from([PassName.TIMELINE, PassName.COUNTERS])


@dataclass
class Kept:
    """A kernel whose passes were all taken before."""

    of: StaticProfile | Problem = field(default_factory=static)
    clocked: Timeline | Missing = GEMM
    counted: Counters | Missing = field(default_factory=profiles.counters)
    costs: dict[PassName, float] = field(default_factory=dict)
    cannot: dict[PassName, str] = field(default_factory=dict)
    log: list[PassName] = field(default_factory=list)

    def cost(self, name: PassName) -> float:
        return self.costs.get(name, 0.0)

    def why_not(self, name: PassName) -> str:
        return self.cannot.get(name, "")

    def static(self) -> StaticProfile | Problem:
        self.log.append(PassName.STATIC)
        return self.of

    def timeline(self) -> Timeline | Missing:
        self.log.append(PassName.TIMELINE)
        return self.clocked

    def counters(self) -> Counters | Missing:
        self.log.append(PassName.COUNTERS)
        return self.counted


def taken(found: Taken) -> list[str]:
    return [d.name.value for d in found.decisions if d.taken]


def why(found: Taken, name: str) -> str:
    return next(d.why for d in found.decisions if d.name == name)


@pytest.mark.parametrize(
    ("of", "clocked", "told"),
    [
        (static(), ATTENTION, "exposed dots and arithmetic between dots are near each other, with 42% and 40%"),
        (static(), COPYING, "exposed copies take 60% of the cycles, and nothing says why"),
        (static(), timeline({"dot wait": 0.5}), "50% of the cycles are in no scope"),
        (static(), timeline({"body": 0.65}), "35% of the cycles are in no scope"),
        (static(), of_scopes(timed(scope("body", 9, 1, "kernel", "ttg.local_load"), 0.8)), "and nothing says why"),
        (static(), timeline({}), "the timeline has no shares"),
        (static(), Missing("timeline", "it does not compile"), "there is no timeline (it does not compile)"),
        (Problem("b", "nvidia", "no cubin"), ATTENTION, "are near each other, with 42% and 40%"),
    ],
)
def test_counters_are_taken_where_the_timeline_leaves_the_bound_open(
    of: StaticProfile | Problem, clocked: Timeline | Missing, told: str
) -> None:
    found = take(Kept(of, clocked), 60)
    assert taken(found) == ["static", "timeline", "counters"]
    assert why(found, "counters").endswith(told)


@pytest.mark.parametrize(
    ("of", "clocked"),
    [
        (static(), GEMM),  # most of the time is in the dots
        (static(spilled=412), COPYING),  # a static defect explains the dearest section
        (SERIALIZED, timeline({"dot wait": 0.55, "copy wait": 0.2})),
        (static(), timeline({"body": 0.5, "dot wait": 0.3})),  # arithmetic is its own cause
    ],
)
def test_counters_are_left_out_where_they_cannot_change_what_comes_first(of: StaticProfile, clocked: Timeline) -> None:
    found = take(Kept(of, clocked), 60)
    assert taken(found) == ["static", "timeline"]
    assert why(found, "counters").endswith("stay first whatever counters say")
    assert found.counters == Missing("counters", why(found, "counters"))


def test_a_kernel_that_moves_its_tiles_once_needs_no_gpu_to_be_understood() -> None:
    found = take(Kept(ALONE, costs={PassName.TIMELINE: 1.0}), 60)
    assert taken(found) == ["static"]
    assert why(found, "timeline") == "without loops and dots there is nothing to rank but the roof"


def test_what_cannot_be_taken_says_why_and_leaves_the_rest() -> None:
    found = take(Kept(cannot=dict.fromkeys(PassName, NO_GPU)), 60)
    assert taken(found) == ["static"]
    assert found.timeline == Missing("timeline", NO_GPU)
    assert take(Kept(cannot={PassName.TIMELINE: "clusters"}), 60).counters == profiles.counters()


def test_what_would_exceed_the_budget_says_so() -> None:
    found = take(Kept(clocked=COPYING, costs={PassName.TIMELINE: 20.0, PassName.COUNTERS: 12.0}), 30)
    assert taken(found) == ["static", "timeline"]
    assert why(found, "counters") == "it takes about 12.0 s of the GPU, and 10.0 s are left"


def test_what_is_asked_for_is_taken_and_nothing_else() -> None:
    found = take(Kept(), 60, frozenset({PassName.COUNTERS}))
    assert taken(found) == ["static", "counters"]
    assert (why(found, "timeline"), why(found, "counters")) == ("it was not asked for", "it was asked for")
    assert taken(take(Kept(clocked=COPYING), 60, frozenset())) == ["static"]
    assert taken(take(Kept(ALONE), 60, frozenset(PassName))) == ["static", "timeline", "counters"]


def test_decisions_are_written_as_json_and_read_back() -> None:
    found = take(Kept(), 60)
    assert Taken.from_json(found.as_json()) == found


KERNELS = st.sampled_from([static(), SERIALIZED, static(spilled=96), ALONE, Problem("b", "nvidia", "no cubin")])
TIMELINES = st.sampled_from([GEMM, ATTENTION, COPYING, timeline({}), Missing("timeline", "it hangs")])


@given(
    KERNELS,
    TIMELINES,
    st.dictionaries(NAMES, st.floats(0, 40)),
    st.dictionaries(NAMES, st.just(NO_GPU)),
    st.floats(0, 60),
    st.none() | st.frozensets(NAMES),
)
def test_no_budget_is_exceeded_and_no_refusal_is_passed_over(
    of: StaticProfile | Problem,
    clocked: Timeline | Missing,
    costs: dict[PassName, float],
    cannot: dict[PassName, str],
    seconds: float,
    wanted: frozenset[PassName] | None,
) -> None:
    asked = Kept(of, clocked, costs=costs, cannot=cannot)
    found = take(asked, seconds, wanted)
    assert [d.name for d in found.decisions] == list(PassName)
    assert asked.log == [d.name for d in found.decisions if d.taken]  # what is told was done, and static first
    assert sum(costs.get(name, 0.0) for name in asked.log) == pytest.approx(sum(d.seconds for d in found.decisions))
    assert sum(d.seconds for d in found.decisions) <= seconds + 1e-9
    assert not cannot.keys() & set(asked.log)
    assert wanted is None or set(asked.log) <= wanted | {PassName.STATIC}
    assert all(d.why for d in found.decisions)
    assert take(Kept(of, clocked, costs=costs, cannot=cannot), seconds, wanted) == found


@given(KERNELS, TIMELINES)
def test_what_is_kept_costs_nothing(of: StaticProfile, clocked: Timeline) -> None:
    assert take(Kept(of, clocked), 0.0) == take(Kept(of, clocked), 1e6)
    assert all(not d.seconds for d in take(Kept(of, clocked), 0.0).decisions)
