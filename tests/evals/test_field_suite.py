"""The half of the field suite that needs no GPU: kernels whose packages are installed come as far as it was recorded.

`make test-slow` installs the packages; where one is missing its kernels are skipped. Not covered: runs on a GPU, which
`pgo-agent eval field` makes.
"""

import json
from pathlib import Path

import pytest
from pgo_agent.evals.field import run, suite
from pgo_agent.evals.field.suite import FieldKernel

from tests.agent.command_line import pgo

RECORDED = run.read(suite.FOLDER / "results" / "targets.jsonl")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kernel", suite.read(), ids=lambda k: k.name)
def test_a_kernel_comes_from_its_program_as_far_as_it_was_recorded(kernel: FieldKernel, tmp_path: Path) -> None:
    if not kernel.version:
        pytest.skip(f"{kernel.package} is not installed: make field")
    done = pgo("eval", "field", kernel.name, "--judge", "cpu", "-o", "out", "--json", cwd=tmp_path, seconds=1800)
    rows = [json.loads(line) for line in (tmp_path / "out" / "targets.jsonl").read_text().splitlines()]
    (made,) = (r for r in rows if r["kernel"] == kernel.name)
    before = RECORDED[kernel.name]
    assert (made["written"], made["ready"]) >= (before.written, before.ready), made["said"]
    assert not before.ready or made["by_hand"] <= before.by_hand
    assert done.code == (0 if made["ready"] else 1)
    assert made["verdict"] or not made["ready"], "a whole target is checked"
