"""From a winner to a patch on a real GPU: `dispatch` proves it, `apply` writes it, `prove` times the whole program."""

import json
import sys
from pathlib import Path

import pytest
from pgo_agent.agent.run.dispatch import Proof

from tests.agent.command_line import ADD, pgo

pytestmark = pytest.mark.gpu
SLOW = 'configs=[triton.Config({"BLOCK": 128}, num_warps=8)]'  # as shipped: an element for each two threads
PROGRAM = """
import time

import torch
from add import kernel

x, y = (torch.randn(1 << 24, device="cuda", generator=torch.Generator("cuda").manual_seed(i)) for i in range(2))
outputs, seconds = {"sum": kernel(x, y)}, []
for _ in range(20):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(50):
        kernel(x, y)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - begun)
"""


def test_a_badly_launched_kernel_gets_a_proven_patch_that_makes_its_program_faster(tmp_path: Path) -> None:
    begin, end = ADD.index("configs=["), ADD.index("]", ADD.index("configs=[")) + 1
    (tmp_path / "add.py").write_text(ADD[:begin] + SLOW + ADD[end:])
    found = pgo("optimize", "add.py", "--judge", "gpu", "--candidates", "4", cwd=tmp_path, seconds=500)
    assert found.code == 0, found.out + found.err
    proved = pgo("dispatch", "--judge", "gpu", cwd=tmp_path, seconds=500)
    assert proved.code == 0, proved.out + proved.err
    text = next((tmp_path / ".pgo-agent" / "dispatch").glob("*/proof.json")).read_text()
    proof = Proof.from_json(json.loads(text))
    timed = [r for region in proof.regions for r in region.cases.values() if r]
    assert proof.proven and max(r[1] for r in timed) > 1.02, timed
    assert "16m n=16777215" in proof.same and max(proof.host_us.values()) < 20
    (tmp_path / "old.py").write_text((tmp_path / "add.py").read_text())
    assert pgo("apply", "--dispatch", "--yes", cwd=tmp_path).code == 0
    (tmp_path / "new.py").write_text((tmp_path / "add.py").read_text())
    (tmp_path / "add.py").write_text((tmp_path / "old.py").read_text())
    (tmp_path / "infer.py").write_text(PROGRAM)
    words = ("--patched", "add.py=new.py", "--json", "--", sys.executable, "infer.py")
    done = pgo("prove", *words, cwd=tmp_path, seconds=500)
    told = json.loads(done.out)
    assert told["outputs"][0]["exact"] and told["verdict"] == "faster", told
