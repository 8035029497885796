"""`init FILE -- PROGRAM` where the file lies in a folder that `pip install --target` filled."""

from pathlib import Path

import pytest

from tests.agent.command_line import pgo

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def _scaled(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, i < n) * 3.0, i < n)


def scaled(x):
    y = torch.empty_like(x)
    _scaled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
"""
PROGRAM = """import torch
from scaling.ops import scaled

x = torch.randn(300, 500, device="cuda")
torch.testing.assert_close(scaled(x), x * 3.0)
"""


@pytest.mark.long  # a box with other folders is another, and loads torch anew
def test_a_program_may_use_what_is_installed_in_a_folder_of_another_name(tmp_path: Path) -> None:
    libraries, work = tmp_path / "libraries", tmp_path / "work"
    for folder in (libraries / "scaling", libraries / "scaling-1.0.dist-info", work):
        folder.mkdir(parents=True)
    (libraries / "scaling" / "__init__.py").touch()
    (libraries / "scaling" / "ops.py").write_text(KERNEL)
    (libraries / "scaling-1.0.dist-info" / "RECORD").touch()
    (work / "program.py").write_text(PROGRAM)

    words = ["init", str(libraries / "scaling" / "ops.py"), "-o", "t.py", "--", "python", "program.py"]
    done = pgo(*words, cwd=work, PYTHONPATH=str(libraries))

    assert "0 lines to write" in done.out, done.out + done.err
    assert "@triton.jit" in (work / "t.py").read_text()
