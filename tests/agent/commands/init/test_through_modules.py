"""`init FILE -- PROGRAM` where the launcher reaches its kernel by the name of a module: `kernels.add[grid](...)`."""

from pathlib import Path

import pytest

from tests.agent.command_line import Done, pgo

KERNELS = """import triton
import triton.language as tl

WIDTH = 256


@triton.jit
def scaled(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, i < n) * 3.0, i < n)


@triton.jit
def shifted(X, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + i, tl.load(X + i, i < n) + 1.0, i < n)
"""
HOST = """import torch


def expected(x):
    return x * 3.0 + 1.0


def moved(x):
    from . import kernels as own, usual

    def scaled(out):  # not the kernel
        own.scaled[(usual.blocks(x.numel(), own.WIDTH),)](x, out, x.numel(), BLOCK=own.WIDTH)

    y = torch.empty_like(x)
    scaled(y)
    from .kernels import shifted
    shifted[(usual.blocks(x.numel(), 256),)](y, x.numel(), BLOCK=256)
    return y
"""
PROGRAM = """import torch
from ops.host import expected, moved

x = torch.randn(300, 500, device="cuda")
torch.testing.assert_close(moved(x), expected(x))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "ops").mkdir()
    usual = "def blocks(n, size):\n    return -(-n // size)\n"
    files = {"__init__": "", "kernels": KERNELS, "host": HOST, "usual": usual}
    for name, text in files.items():
        (folder / "ops" / f"{name}.py").write_text(text)
    (folder / "program.py").write_text(PROGRAM)
    return folder, pgo("init", "ops/host.py", "-o", "t.py", "--", "python", "program.py", cwd=folder)


def test_kernels_that_are_reached_through_a_module_come_into_the_target(made: tuple[Path, Done]) -> None:
    folder, done = made
    assert "0 lines to write" in done.out, done.out + done.err
    text = (folder / "t.py").read_text()
    assert text.count("@triton.jit") == 2 and "def blocks" in text and "WIDTH = 256" in text
    assert "import kernels" not in text and "from ." not in text, "for the box sees the target alone"


def test_a_kernel_is_not_mistaken_for_a_local_function_of_its_name(made: tuple[Path, Done]) -> None:
    folder, _ = made
    text = (folder / "t.py").read_text()
    assert "own_scaled = scaled\n" in text and "        own_scaled[(blocks(x.numel(), WIDTH),)]" in text


def test_what_the_reference_needs_brings_no_other_launcher_after_the_targets_own(made: tuple[Path, Done]) -> None:
    folder, _ = made
    text = (folder / "t.py").read_text()
    assert "def expected" in text and "import expected" not in text, "what only the user has comes into the target"
    assert text.count("def moved") == 1 and "import moved" not in text, "or a candidate would have no effect"


@pytest.mark.long
def test_such_a_target_is_checked_and_right(made: tuple[Path, Done]) -> None:
    folder, _ = made
    done = pgo("init", "--check", "t.py", cwd=folder)
    assert done.code == 0 and "0 of" not in done.out.split("covered:")[1].split(",")[0], done.out + done.err


def test_of_a_package_the_functions_of_all_its_modules_are_launchers(made: tuple[Path, Done]) -> None:
    folder, _ = made
    done = pgo("init", "ops/__init__.py", "-o", "whole.py", "--", "python", "program.py", cwd=folder)
    assert "moved: one call, kernels scaled, shifted" in done.out, done.out + done.err
    assert (folder / "whole.py").read_text().count("@triton.jit") == 2
