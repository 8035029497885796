"""A kernel without loops and dots is not recorded on the GPU; the time that the run measured tells how near the roof it
is. The judge here only says what a GPU reaches; the kernel and its build are real."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pgo_agent.agent.profile.case_profile import BY_THE_RUN, CaseProfile, Means, Wanted, _roofline, case_profile
from pgo_agent.agent.profile.pass_runner import GpuBudget
from pgo_agent.agent.profile.summarize import summarize
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.interface import Judge
from pgo_agent.sandbox.judge.questions import PeakRates, Peaks
from pgo_agent.sandbox.profile.kernel_profile import Missing, Roofline

from tests.agent.command_line import ADD
from tests.agent.profiles import timeline
from tests.shared_builds import lend


class SaysPeaks:
    """A judge at hand that is asked for nothing else."""

    here, elsewhere = True, False

    def ask(self, question: object) -> PeakRates:
        assert isinstance(question, Peaks)
        return PeakRates(flops=800e12, moved=3e12)


def builder(folder: Path) -> Builder:
    path = folder / "add.py"
    path.write_text(ADD)
    return Builder(target.read(path), devices.find("h100"), box.choose(), ContentStore(lend(folder / "workspace")))


def profiled(folder: Path, call_ms: float | None, judge: Any) -> CaseProfile:
    builds = builder(folder)
    built = builds.build(builds.target.source, {"CASES": ["1m"]}, 1)
    ((case, (choice,)),) = built.choices.items()
    means = Means(builds, GpuBudget(cast(Judge | None, judge), 1e3))
    return case_profile(means, Wanted(builds.target.source, built.bundle, case, choice.label, "why", call_ms=call_ms))


@pytest.mark.parametrize(("share", "said"), [(0.5, "50% of the roof"), (1.3, "More than the peaks allow")])
def test_it_is_told_by_the_time_that_the_run_measured(share: float, said: str, tmp_path: Path) -> None:
    moved = 3 * 4 * (1 << 20)  # bytes: two inputs and a result
    found = profiled(tmp_path, 1e3 * moved / 3e12 / share, SaysPeaks())
    assert isinstance(found.roofline, Roofline) and found.roofline.how == BY_THE_RUN
    assert found.roofline.reached == pytest.approx(share)
    text = summarize(found).text
    assert "Bound by memory" in text and said in text


def test_the_runs_own_time_comes_before_that_of_calls_with_cold_caches(tmp_path: Path) -> None:
    found = profiled(tmp_path, 0.02, SaysPeaks())
    (only,) = found.kernels
    timed = replace(only, timeline=replace(timeline({"body": 1.0}), plain_ms=(0.4, 0.4)))
    means = Means(builder(tmp_path), GpuBudget(cast(Judge | None, SaysPeaks()), 1e3))
    asked = Wanted("", "", "CASES/1m", "", "why", call_ms=0.02)
    assert cast(Roofline, _roofline(means, asked, [timed])).seconds == pytest.approx(2e-5)
    assert cast(Roofline, _roofline(means, replace(asked, call_ms=None), [timed])).seconds == pytest.approx(4e-4)


def test_without_a_time_or_a_gpu_no_share_of_the_roof_is_told(tmp_path: Path) -> None:
    assert isinstance(profiled(tmp_path, None, SaysPeaks()).roofline, Missing)
    assert isinstance(profiled(tmp_path, 0.01, None).roofline, Missing)
