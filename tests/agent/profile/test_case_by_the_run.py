"""A kernel without loops and dots is not recorded on the GPU; the time that the run measured tells how near the roof it
is. The judge here only says what a GPU reaches; the kernel and its build are real."""

from pathlib import Path
from typing import Any, cast

import pytest
from pgo_agent.agent.profile.case_profile import BY_THE_RUN, CaseProfile, Means, Wanted, case_profile
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


class SaysPeaks:
    """A judge at hand that is asked for nothing else."""

    here, elsewhere = True, False

    def ask(self, question: object) -> PeakRates:
        assert isinstance(question, Peaks)
        return PeakRates(flops=800e12, moved=3e12)


def profiled(folder: Path, call_ms: float | None, judge: Any) -> CaseProfile:
    path = folder / "add.py"
    path.write_text(ADD)
    subject = target.read(path)
    builder = Builder(subject, devices.find("h100"), box.choose(), ContentStore(folder))
    built = builder.build(subject.source, {"CASES": ["1m"]}, 1)
    ((case, (choice,)),) = built.choices.items()
    means = Means(builder, GpuBudget(cast(Judge | None, judge), 1e3))
    return case_profile(means, Wanted(subject.source, built.bundle, case, choice.label, "why", call_ms=call_ms))


@pytest.mark.parametrize(("share", "said"), [(0.5, "50% of the roof"), (1.3, "More than the peaks allow")])
def test_it_is_told_by_the_time_that_the_run_measured(share: float, said: str, tmp_path: Path) -> None:
    moved = 3 * 4 * (1 << 20)  # bytes: two inputs and a result
    found = profiled(tmp_path, 1e3 * moved / 3e12 / share, SaysPeaks())
    assert isinstance(found.roofline, Roofline) and found.roofline.how == BY_THE_RUN
    assert found.roofline.reached == pytest.approx(share)
    text = summarize(found).text
    assert "Bound by memory" in text and said in text


def test_without_a_time_or_a_gpu_no_share_of_the_roof_is_told(tmp_path: Path) -> None:
    assert isinstance(profiled(tmp_path, None, SaysPeaks()).roofline, Missing)
    assert isinstance(profiled(tmp_path, 0.01, None).roofline, Missing)
