"""A pipeline's wait relaxed by two groups, given to the real `check`: no tolerance sees it, the simulator does."""

import re
from pathlib import Path

import pytest
from pgo_agent.evals.gate import entries, ttgir_edits
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box

from tests.agent.command_line import pgo

WAIT = re.compile(r"ttg\.async_wait (%\w+), (%\w+) \{num = 2 : i32\}")


@pytest.mark.slow
def test_a_wait_relaxed_in_the_attention_as_it_is_built_is_refused_as_a_race(tmp_path: Path) -> None:
    subject = entries.place("fa_fwd", tmp_path)
    text = ttgir_edits.own(Builder(subject, devices.find("h200"), box.choose(), ContentStore(tmp_path / "shelf")))
    changed, times = WAIT.subn(r"ttg.async_wait \1, \2 {num = 4 : i32}", text)
    assert times == 1  # what may be pending: K and V of the next block
    (tmp_path / "relaxed.ttgir").write_text(changed)
    done = pgo("check", "relaxed.ttgir", "--target", "fa_fwd.py", "--judge", "cpu", cwd=tmp_path)
    said = " ".join(done.out.split())
    assert done.code == 1
    assert said.startswith("race: relaxed.ttgir")
    line = 1 + changed.count("\n", 0, changed.index("num = 4"))
    assert f"_fa_fwd: the wait at line {line} lets the last 4 groups of copies pending, and the one it is for" in said
    assert "is among them" in said and "stage deadlock" in said
