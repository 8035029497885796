"""`init --inductor`: kernels that draw random numbers are compared with the same numbers, computed by plain PyTorch."""

import re
from pathlib import Path

import pytest
from pgo_agent.agent.commands.init.inductor.drawn import DRAWN

from tests.agent.command_line import pgo
from tests.agent.commands.init.test_inductor import CODE, changed, contract, drafts
from tests.sandbox.forked_python import ran

KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def alone(seed, out, BLOCK: tl.constexpr, NORMAL: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.randn(tl.load(seed), place.to(tl.uint32)) if NORMAL else tl.rand(tl.load(seed), place.to(tl.uint32))
    tl.store(out + place, first)

@triton.jit
def shared(seed, out, BLOCK: tl.constexpr, NORMAL: tl.constexpr):
    place = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    if NORMAL:
        a, b, c, d = tl.randn4x(tl.load(seed), place.to(tl.uint32))
    else:
        a, b, c, d = tl.rand4x(tl.load(seed), place.to(tl.uint32))
    tl.store(out + 4 * place, a); tl.store(out + 4 * place + 1, b)
    tl.store(out + 4 * place + 2, c); tl.store(out + 4 * place + 3, d)
"""
COMPARED = """
for number in [0, 1, -1, 2**63 - 1, -(2**63), *torch.randint(-(2**63), 2**63 - 1, (12,)).tolist()]:
    seed, given = torch.tensor([number]), torch.empty(512)
    for kernel, lanes, gauss in ((alone, 1, 0), (shared, 4, 0), (alone, 1, 1), (shared, 4, 1)):
        kernel[(2,)](seed, given, BLOCK=256, NORMAL=gauss)
        wanted = drawn(seed[0], [4, 128], lanes, bool(gauss)).view(-1)
        close = dict(rtol=1e-5, atol=1e-5) if gauss else dict(rtol=0, atol=0)
        torch.testing.assert_close(given, wanted, **close, msg=lambda m: f"{number} {kernel}: {m}")
"""


@pytest.mark.long
def test_numbers_of_a_reference_are_those_that_triton_draws(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS)  # Triton reads its functions from a file
    done = ran(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom kernels import *\n{DRAWN}{COMPARED}", interpreted=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_dropout_is_compared_element_for_element(tmp_path: Path) -> None:
    done = pgo("init", "--inductor", CODE / "random.txt", "-o", "t.py", cwd=tmp_path)
    assert done.code == 0 and "0 lines to write" in done.out, done.out
    import torch

    seeds, x = torch.tensor([1 << 40]), torch.ones(256, 128, dtype=torch.float16)
    given = contract(tmp_path / "t.py", "reference")(seeds, x)
    kept = (given != 0).double().mean()
    assert set(given.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.9).half())} and abs(kept - 0.9) < 0.01


def test_a_bound_is_rounded_as_in_the_graph_and_the_numbers_are_not() -> None:
    (made,) = drafts(CODE / "random.txt").values()
    assert made.found
    bound = "torch.tensor(0.1, dtype=torch.float16).item()"
    assert f"gt = torch.ops.aten.gt.Scalar(inductor_random_default, {bound})" in made.found.lines


@pytest.mark.parametrize(
    ("how", "lanes"), [("triton_helpers.rand4x(tmp0, tmp1, XBLOCK)", 4), ("tl.rand(tmp0, tmp1)", 1)]
)
def test_text_of_a_kernel_says_which_words_an_element_takes(tmp_path: Path, how: str, lanes: int) -> None:
    (made,) = drafts(changed(tmp_path, "random", r"triton_helpers.rand4x\(.*XBLOCK\)", how)).values()
    assert made.found and any(re.search(rf"drawn\(.*, {lanes}, exact", line) for line in made.found.lines)


@pytest.mark.long
def test_kernel_that_draws_in_another_way_is_compared_with_itself_and_says_so(tmp_path: Path) -> None:
    file = changed(
        tmp_path,
        "random",
        r"triton_helpers.rand4x\(.*XBLOCK\)",
        "tl.rand(tmp0, tmp1, n_rounds=7) * tl.rand4x(tmp0, tmp1)[0]",
    )
    file.write_text(file.read_text().replace("tl.rand4x(", "triton_helpers.rand4x("))
    (made,) = drafts(file).values()
    assert made.found is None and "how it draws random numbers" in made.missing
    done = pgo("init", "--inductor", file, "-o", "t.py", cwd=tmp_path)
    text = (tmp_path / "t.py").read_text()
    assert done.code == 0 and "0 lines to write" in done.out and "no independent reference, for its text" in text
