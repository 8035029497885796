"""The backend that docs/backends.md shows as an example profiles a real kernel as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile import static
from pgo_agent.sandbox.profile.backend import Workbench
from pgo_agent.sandbox.profile.static_profile import StaticProfile

from tests.conftest import ROOT, TARGETS
from tests.sandbox.profiling import profile_static
from tests.shared_builds import lend


def test_the_backend_of_the_guide_counts_the_ptx_of_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "backends.md").read_text()
    (example,) = re.findall(r"```python\n(.*?PTX = .*?)```", guide, re.S)
    made: dict[str, Any] = {}
    exec(compile(example, "backends.md", "exec"), made)
    monkeypatch.setattr(static, "BACKENDS", {**static.BACKENDS, "ptx": made["PTX"]})
    subject = target.read(TARGETS / "add.py")
    bench = Workbench(Builder(subject, devices.find("h200"), box.choose(), ContentStore(lend(tmp_path))))
    built = bench.builder.build(subject.source, {"CASES": ["1m"]}, 1)
    (found,) = profile_static(bench, subject.source, built.bundle, "CASES/1m", None, "ptx").values()
    assert isinstance(found, StaticProfile)
    assert found.target == "ptx" and found.kinds["float"] == 8  # of a thread: 1024 additions by 128
    assert found.kinds["global"] >= 6 and found.occupancy.blocks == 16
