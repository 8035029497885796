"""Loads through tensor descriptors in Triton itself: its interpreter finds the same bits, its compiler takes the code.

Inputs are small whole numbers: their sums are exact in any order, and numpy adds a tile in the order that it lies in.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import tma_descriptors
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

from tests.agent.composing import checked, outputs, same_bits, taken
from tests.agent.descriptor_forms import FORMS
from tests.agent.descriptor_kernels import body, file_of, rewritten, together
from tests.conftest import ROOT
from tests.shared_builds import lend

H200 = devices.find("h200")
SHOWN = (
    "nothing changed", "a loop over tiles", "rows below zero, masked", "an unrolled range", "a pointer that was moved",
    "rows of 64 bits", "a number that branches decide", "a literal stride",
    "two layouts of one tile", "a bound that holds on one side of a constant only", "a loop around the loop",
    "a bound that holds in some iterations only", "a tile read before the loop",
)  # fmt: skip
PROBE = """

_fits, _answers, _kernel = _descriptor_fits, [], kernel


def _descriptor_fits(*given):
    _answers.append(_fits(*given))
    return _answers[-1]


def kernel(**given):
    _answers.clear()
    return _kernel(**given), torch.tensor([float(all(_answers))])
"""
LIGER = (
    taken("liger_kernel.ops.mhc", "_mhc_mm_norm_fwd_kernel")
    + taken("liger_kernel.ops.fused_neighborhood_attention", "_fused_neighborhood_attention_av_kernel").split(
        "tl\n", 1
    )[1]
    + """

def kernel(x, phi, attention, v):
    N, K, M = *x.shape, phi.shape[1]
    mix = torch.empty((N, M), device=x.device, dtype=torch.float32)
    inverse = torch.empty(N, device=x.device, dtype=torch.float32)
    _mhc_mm_norm_fwd_kernel[(triton.cdiv(N, 16), triton.cdiv(M, 16))](
        x, phi, mix, inverse, N, K, M, *x.stride(), *phi.stride(), *mix.stride(), eps=1e-6,
        BLOCK_N=16, BLOCK_K=32, BLOCK_M=16, CAST_FP32=False,
    )
    B, H, S, D = v.shape
    out = torch.empty_like(v)
    grid = (B * H, triton.cdiv(S, 32), triton.cdiv(D, 16))
    _fused_neighborhood_attention_av_kernel[grid](
        attention, v, out, *attention.stride(), *v.stride(), *out.stride(), B, H, S, D,
        BLOCK_SIZE_M=32, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16, num_stages=2, num_warps=4,
    )
    return mix, inverse, out
"""
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).to(torch.float16)


def calls(names: Sequence[str]) -> list[dict[str, Any]]:
    """Launches of all kernels: whole tiles, and ragged ones with A and B in their other layouts, in a larger memory."""
    memory = random(512, 256)
    whole = dict(a=memory[64:128, 64:160], b=memory[200:296, 64:128], extra=0, flag=True)
    ragged = dict(a=memory[64:152, 64:114].T, b=memory[200:240, 64:152].T, extra=8, flag=False)
    return [dict(which=f"n{i}", **given) for i in range(len(names)) for given in (whole, ragged)]


@pytest.mark.slow
def test_tiles_are_read_the_same_in_the_interpreter() -> None:
    files = [file_of(body(*FORMS[form]), f"n{i}") for i, form in enumerate(SHOWN)]
    changed = [rewritten(text, f"_n{i}") for i, text in enumerate(files)]
    before = outputs(together(files), *calls(SHOWN))
    after = outputs(together(changed) + PROBE, *calls(SHOWN))
    assert all(took.item() for _, took in after), "a launch did not take the descriptors"
    for i, form in enumerate(SHOWN):
        own = slice(2 * i, 2 * i + 2)
        assert same_bits(before[own], [found[:1] for found in after[own]]), form


@pytest.mark.long
def test_kernels_that_the_move_has_never_seen_compute_the_same() -> None:
    changed = LIGER
    for name in ("_mhc_mm_norm_fwd_kernel", "_fused_neighborhood_attention_av_kernel"):
        changed = tma_descriptors.rewrite(RewriteInput(changed, name, H200))
    given = dict(x=random(40, 96), phi=random(96, 24), attention=random(1, 2, 48, 48), v=random(1, 2, 48, 32))
    views = dict(
        x=random(96, 40).T, phi=random(24, 96).T, attention=random(1, 2, 48, 49)[..., 1:],
        v=random(1, 48, 2, 32).transpose(1, 2),
    )  # fmt: skip
    assert same_bits(outputs(LIGER, given, views), outputs(changed, given, views))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fa_fwd", "fa_bwd", "gemm"])
def test_a_rewritten_kernel_is_right_on_all_small_cases(name: str) -> None:
    path = ROOT / "kernels" / f"{name}.py"
    changed = tma_descriptors.rewrite(RewriteInput(path.read_text(), f"_{name}", H200))
    found = checked(path, changed)
    assert found.verdict == Verdict.CHECKED, found.reason


def test_the_compiled_loop_loads_through_the_copy_engine(tmp_path: Path) -> None:
    gemm = target.read(ROOT / "kernels" / "gemm.py")
    source = tma_descriptors.rewrite(RewriteInput(gemm.source, "_gemm", H200))
    built = Builder(gemm, H200, box.choose(), ContentStore(lend(tmp_path))).build(source, {"CASES": ["8k"]}, 1)
    assert built.ok, built.failures
    (static,) = built.statics.values()
    assert static["sass"]["UTMALDG"] > 0
    assert "LDGSTS" not in static["sass"]
