"""The counters pass on a real GPU: what Nsight Compute counts is what the kernel must have done, where it did it.

Two kernels: attention as shipped, which keeps the tensor pipe busy, and an addition, whose traffic is known to the
byte. Needs a GPU of sandbox/devices.py, Nsight Compute, leave to read the counters, and ncu-report or ncu's own reader.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest
from pgo_agent.sandbox import target
from pgo_agent.sandbox.judge.questions import Sweep, SweepEntry
from pgo_agent.sandbox.judge.references import bundle_ref
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.counters import metrics
from pgo_agent.sandbox.profile.counters.collect import asked, take
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.static_profile import StaticProfile

from tests.gpu.placing import placed
from tests.sandbox.profiling import profile_static

ROOT = Path(__file__).parents[2]
ATTENTION, ADDITION = (ROOT / "kernels" / "fa_fwd.py", "d128-4k"), (ROOT / "tests" / "kernels" / "add.py", "64m")
ELEMENTS = 1 << 26  # 768 MiB of traffic: of what is written up to 60 MB may still stand in the L2 at the end
UNREADABLE = ("not installed", "may not read", "LibraryNotLoaded")  # of this machine, not of the pass


@dataclass(frozen=True)
class Taken:
    counters: Counters
    static: StaticProfile
    seconds: float  # of one launch, by the judge
    moved: float  # bytes, by the target


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return taken(*ATTENTION, tmp_path_factory.mktemp("attention"))


@pytest.fixture(scope="module")
def addition(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    folder = tmp_path_factory.mktemp("addition")
    source, case = ADDITION
    larger = folder / "add.py"
    larger.write_text(f"{source.read_text()}\n\nCASES = {{{case!r}: dict(n={ELEMENTS})}}\n")
    return taken(larger, case, folder)


def taken(path: Path, name: str, folder: Path) -> Taken:
    with placed(path, name, folder) as p:  # closed behind it: two processes on one GPU would disturb each other
        bundle = bundle_ref(p.builder.contents, p.place.bundle)
        (timed,) = p.judge.ask(Sweep((SweepEntry(bundle, p.place.case, p.place.choice),))).entries
    assert not timed.problem, timed
    profile = profile_static(Workbench(p.builder), p.builder.target.source, p.place.bundle, p.place.case)[
        p.place.kernel
    ]
    assert isinstance(profile, StaticProfile)
    found = take(p.judge, p.builder, p.place, profile)
    if isinstance(found, Missing):
        assert any(u in found.why for u in UNREADABLE), found.why
        pytest.skip(found.why)
    print(f"\n{found.tool}, {found.kernel}: {found.speed_of_light}, stalls {found.stalls}, {found.dram_bytes} bytes")
    moved = target.load(path, "pgo_counted").bytes_moved({"n": ELEMENTS}) if name == ADDITION[1] else 0.0
    return Taken(found, profile, statistics.median(timed.ms) / 1e3, moved)


@pytest.mark.gpu
def test_a_judge_that_answers_others_counts_what_is_counted_here(addition: Taken, tmp_path: Path) -> None:
    larger = tmp_path / "add.py"
    larger.write_text(f"{ADDITION[0].read_text()}\n\nCASES = {{{ADDITION[1]!r}: dict(n={ELEMENTS})}}\n")
    with placed(larger, ADDITION[1], tmp_path) as p:
        found = asked(p.judge, p.builder, p.place, addition.static)
    assert isinstance(found, Counters), found
    assert (found.kernel, found.executed) == (addition.counters.kernel, addition.counters.executed)
    assert found.dram_bytes == pytest.approx(addition.counters.dram_bytes, rel=0.1)


@pytest.mark.gpu
def test_attention_keeps_the_tensor_pipe_busy(attention: Taken) -> None:
    c = attention.counters
    assert set(c.speed_of_light) == {"sm", "tensor", "l1", "l2", "dram"}
    assert all(0 <= s <= 1.05 for s in c.speed_of_light.values())
    assert c.speed_of_light["tensor"] > 0.3
    assert c.speed_of_light["dram"] < 0.5
    assert c.warps_active is not None and 0 < c.warps_active <= attention.static.occupancy.share * 1.05
    assert None not in (c.bank_conflicts, c.l1_hit, c.l2_hit, c.dram_bytes)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["attention", "addition"])
def test_executed_instructions_of_all_lines_add_up_to_the_hardwares_own_count(
    name: str, request: pytest.FixtureRequest
) -> None:
    c = request.getfixturevalue(name).counters
    assert c.unlined == "", c.unlined
    for lines in (c.lines, c.source, c.code):
        assert sum(n.executed for n in lines) == c.executed
        assert sum(n.samples for n in lines) == sum(i.samples for i in c.code) > 0
    assert c.executed == pytest.approx(c.metrics[metrics.EXECUTED], rel=0.01)
    assert sum(c.stalls.values()) == pytest.approx(1)
    assert Counters.from_json(c.as_json()) == c


@pytest.mark.gpu
def test_the_lines_that_cost_most_are_those_of_the_loop(attention: Taken) -> None:
    """Instructions on lines with a dot or within a loop are executed once for each turn, all others once."""
    c, profile = attention.counters, attention.static
    dots = {n.line for n in profile.source if n.kinds.get("tensor")}
    executed = {n.line: n.executed for n in c.source}
    assert dots and all(executed.get(n, 0) > 0 for n in dots)
    loops = [loop for loop in profile.loops if loop.source[0]]
    assert loops
    inside = sum(n.executed for n in c.source if any(a <= n.line <= b for a, b in (loop.source for loop in loops)))
    assert inside > 0.5 * c.executed


@pytest.mark.gpu
def test_the_additions_traffic_is_what_the_target_says(addition: Taken) -> None:
    c = addition.counters
    assert c.dram_bytes == pytest.approx(addition.moved, rel=0.2)
    assert c.speed_of_light["dram"] > 0.5
    assert c.speed_of_light["tensor"] == 0
    assert "long_scoreboard" in list(c.stalls)[:2]  # loads from device memory


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["attention", "addition"])
def test_a_launch_takes_about_as_long_as_the_judge_says(name: str, request: pytest.FixtureRequest) -> None:
    found: Taken = request.getfixturevalue(name)
    assert found.seconds / 3 < found.counters.duration_ns / 1e9 < found.seconds * 3
