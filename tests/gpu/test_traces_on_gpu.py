"""`trace`, `init --from-trace` and `check` on a real GPU: from a program to a target whose verdict was measured."""

import shutil
from pathlib import Path

import pytest

from tests.agent.command_line import pgo

KERNELS = Path(__file__).parents[1] / "agent" / "commands" / "traces" / "model_kernels.py"
PROGRAM = """
import model_kernels
import torch

for number, batch in enumerate((4096, 4096, 4096, 1000, 1000, 128), 1):
    model_kernels.step(batch, 512, number)
rms = torch.compile(lambda x: torch.nn.functional.rms_norm(x, (512,)) * 2)
rms(torch.randn(4096, 512, device="cuda"))
"""


@pytest.mark.gpu
def test_a_program_is_ranked_by_measured_times_and_a_kernel_of_it_becomes_a_sound_target(tmp_path: Path) -> None:
    pytest.importorskip("tritonparse")
    shutil.copy(KERNELS, tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    done = pgo("trace", "--", "python", "train.py", cwd=tmp_path)
    assert done.code == 0, done.err
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if line.startswith(("_", "triton_"))}
    assert {"_norm", "_product", "_count", "_decay"} <= set(rows), done.out
    assert any(name.startswith("triton_") for name in rows), done.out  # of torch.compile
    assert rows["_norm"][4] == "ms" and not rows["_norm"][2].startswith("~")
    again = pgo("init", "--from-trace", "trace", "--kernel", "_norm", cwd=tmp_path)
    assert again.code == 0, again.err
    text = (tmp_path / "norm_target.py").read_text()
    assert "WEIGHTS" in text and "ORIGINAL" in text
    checked = pgo("init", "--check", "norm_target.py", "--judge", "gpu", cwd=tmp_path, seconds=560)
    assert checked.code == 0, checked.err
    assert "compared with the kernel as it stood, no independent reference" in checked.out + checked.err


@pytest.mark.gpu
def test_a_wrong_candidate_is_wrong_by_the_original_that_the_gpu_runs(tmp_path: Path) -> None:
    recorded = KERNELS.with_name("recorded.ndjson.gz")
    assert pgo("init", "--from-trace", recorded, "--kernel", "_product", cwd=tmp_path).code == 0
    text = (tmp_path / "product_target.py").read_text()
    part, contract = text.split("# ---", 1)
    assert "acc += tl.dot(a, b)" in part
    wrong = part.replace("acc += tl.dot(a, b)", "acc += 1.01 * tl.dot(a, b)") + "# ---" + contract
    (tmp_path / "wrong.py").write_text(wrong)
    done = pgo("check", "wrong.py", "--target", "product_target.py", "--judge", "gpu", "--json", cwd=tmp_path)
    assert [e["verdict"] for e in done.events if e["type"] == "candidate.verdict"] == ["wrong"], done.err
