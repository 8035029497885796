"""Kernels with one known defect each, profiled on a GPU with every pass: the first bottleneck names the defect.

Bank conflicts need Nsight Compute, and a machine that lets it count; without it that one says so.
"""

from pathlib import Path

import pytest
from pgo_agent.agent.commands import profile, profile_subject
from pgo_agent.agent.profile.quoted_numbers import unfounded
from pgo_agent.agent.profile.summarize import summarize
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox.profile.kernel_profile import Missing

from tests.agent.defects import STATIC, VARIANTS


@pytest.mark.gpu
@pytest.mark.parametrize("name", VARIANTS)
def test_the_first_bottleneck_names_the_defect(name: str, tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(VARIANTS[name].text)
    store = Store(tmp_path / "w")
    subject = profile_subject.of(tmp_path / "target.py", store, None)
    (case,) = profile.profile(subject, RunSettings(), None, "nvidia", store).cases
    summary = summarize(case)
    print(f"\n{summary.text}")
    (kernel,) = case.kernels
    assert not isinstance(kernel.timeline, Missing), kernel.timeline
    if name not in STATIC and isinstance(kernel.counters, Missing):
        pytest.skip(f"no counters: {kernel.counters.why}")
    assert summary.bottlenecks[0].finding.defect == name, summary.text
    assert unfounded(summary.text, case) == []
