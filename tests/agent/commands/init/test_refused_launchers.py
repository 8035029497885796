"""`init` refuses a launcher that does what no plan can hold, in a sentence, instead of writing a target that fails."""

from pathlib import Path

from tests.agent.command_line import PYTEST, pgo

FILLED = """import torch
import triton
import triton.language as tl


@triton.jit
def _scaled(X, Y, SCALES, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, i < n) * tl.load(SCALES + tl.program_id(0)), i < n)


def scaled(x):
    y, scales = torch.empty_like(x), torch.empty(triton.cdiv(x.numel(), 256))
    for i in range(scales.numel()):
        scales[i] = 2.0
    _scaled[(scales.numel(),)](x, y, scales.to(x.device), x.numel(), BLOCK=256)
    return y


def test_scaled():
    x = torch.randn(1000, device="cuda")
    torch.testing.assert_close(scaled(x), x * 2)
"""


def test_values_that_the_host_filled_in_are_refused_with_their_line_and_no_target_is_left(tmp_path: Path) -> None:
    (tmp_path / "filled.py").write_text(FILLED)
    done = pgo("init", "filled.py", "-o", "target.py", "--", *PYTEST, "filled.py", cwd=tmp_path)
    assert done.code == 2, done.out + done.err
    said = " ".join(done.err.split())
    assert "no plan can hold what scaled does: filled.py, line 16: a cpu tensor (4,) reaches a launch or an op" in said
    assert not (tmp_path / "target.py").exists()
