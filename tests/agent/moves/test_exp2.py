"""Base 2: exponentials of scaled scores lose a multiplication, and whatever is not such a score keeps its value."""

from pathlib import Path

import pytest
import torch
from pgo_agent.agent.moves import exp2
from pgo_agent.agent.moves.move import Subject
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent import attention
from tests.agent.composing import HEADER, checked, compose, outputs, reason, taken
from tests.conftest import ROOT

H200 = devices.find("h200")
LIGER = "liger_kernel.ops"
LOOP = """
import triton, triton.language as tl

@triton.jit
def k(q, kp, vp, lse, scale, lo, hi, STEP: tl.constexpr):
    m = tl.full([16], float("-inf"), tl.float32)
    l = tl.zeros([16], tl.float32)
    for i in range(lo, hi, STEP):
        s = tl.dot(q, tl.load(kp + i)) * scale  # scaled
        n = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - n[:, None])
        l = l * tl.exp(m - n) + tl.sum(p, 1)
        m = n
    tl.store(lse, m + tl.log(l))
"""
IN_BASE_2 = """
import triton, triton.language as tl

@triton.jit
def k(q, kp, vp, lse, scale, lo, hi, STEP: tl.constexpr):
    m = tl.full([16], float("-inf"), tl.float32)
    l = tl.zeros([16], tl.float32)
    scale_log2e = scale * 1.4426950408889634  # exp(x) = exp2(x * log2(e))
    for i in range(lo, hi, STEP):
        s = tl.dot(q, tl.load(kp + i)) * scale_log2e  # scaled
        n = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - n[:, None])
        l = l * tl.exp2(m - n) + tl.sum(p, 1)
        m = n
    tl.store(lse, m * 0.6931471805599453 + tl.log(l))
"""


def rewritten(source: str, kernel: str = "k") -> str:
    return exp2.rewrite(Subject(source, kernel, H200))


def changed(old: str, new: str) -> str:
    assert old in LOOP
    return LOOP.replace(old, new)


def test_the_scale_takes_log2e_once_and_what_leaves_is_converted_back() -> None:
    assert rewritten(LOOP) == IN_BASE_2


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("* scale  # scaled", "\n        s *= scale  # scaled", "s *= scale_log2e  # scaled"),
        ("* scale  # scaled", "* 0.125", "s = tl.dot(q, tl.load(kp + i)) * (0.125 * 1.4426950408889634)"),
        ("* scale  # scaled", "* scale\n        s = tl.where(i > 3, s, -1.0e9)", "-1.0e9 * 1.4426950408889634)"),
        ("* scale  # scaled", "* scale\n        s = tl.where(i > 3, s, 0)", "s = tl.where(i > 3, s, 0)"),
        ("* scale  # scaled", "* scale\n        s += tl.load(vp + i)", "s += tl.load(vp + i).to(tl.float32) * 1.44269"),
        ("* scale  # scaled", "* scale\n        if lo:\n            s = s - 1.0", "s = s - 1.0 * 1.4426950408889634"),
        ("n = tl.maximum(m", "tl.store(vp + i, s)\n        n = tl.maximum(m", "tl.store(vp + i, s * 0.69314718055"),
        ('[16], float("-inf"), tl', "[16], value=-1.0e9, dtype=tl", "tl.full([16], value=-1.0e9 * 1.4426950408889634,"),
        ("n = tl.maximum(m", "s = tl.where(s == float('-inf'), 0, s)\n        n = tl.maximum(m", "s == float('-inf')"),
        ("    tl.store(lse, m + tl.log(l))", "    m += tl.log(l)\n    tl.store(lse, m)", "m += tl.log2(l)"),
        ("    tl.store(lse, m + tl.log(l))", "    tl.store(lse, m.to(tl.float16))", "(m * 0.6931471805599453).to("),
        ("    for i", "    scale = scale / 2\n    for i", "tl.load(kp + i)) * (scale * 1.4426950408889634)  # scaled"),
        ("    for i", "    lower = scale / 2\n    for i", "scale_log2e = scale * 1.4426950408889634  #"),
        ("def k(q", "def k(scale_log2e, q", "scale_log2e_1 = scale * 1.4426950408889634  #"),
        ("tl.exp(m - n)", "tl.exp(m - n) * tl.exp(q)", "tl.exp2(m - n) * tl.exp(q)"),
        ("l * tl.exp(m - n)", "l * tl.exp(d)", "l * tl.exp2(d)"),
        ("    tl.store(lse", "    s = tl.load(kp)\n    tl.store(vp, s)\n    tl.store(lse", "    tl.store(vp, s)\n"),
        ("    for i", "    if lo:\n        m = m + 1.0\n    for i", "        m = m + 1.0 * 1.4426950408889634\n"),
        ("for i in range(lo, hi, STEP)", "while lo < hi", "p = tl.exp2(s - n[:, None])"),
    ],
)  # fmt: skip
def test_each_use_of_a_score_becomes_what_it_must(old: str, new: str, line: str) -> None:
    source = changed(old, new).replace("        l = l * tl.exp(d)", "        d = m - n\n        l = l * tl.exp(d)")
    assert line in rewritten(source)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (" * scale  # scaled", "", "without a scale"),
        (" * scale  # scaled", "\n        q = (q * scale).to(tl.float16)", "without a scale"),
        ("tl.exp(", "tl.math.exp2(", "no tl.exp in this kernel"),
        ("tl.exp(", "libdevice.exp(", "no tl.exp in this kernel"),
        ("scale, lo", "scale: tl.float16, lo", "no factor that is one float32 number"),
        ("* scale  #", "* tl.load(scale)  #", "no factor that is one float32 number"),
        ("* scale  #", "* scale.to(tl.float16)  #", "no factor that is one float32 number"),
        ("tl.load(kp + i))", "tl.load(kp + i), out_dtype=tl.float16)", "rounded to less than float32"),
        ("tl.dot(q, tl.load(kp + i))", "tl.load(kp + i)", "rounded to less than float32"),
        ("* scale  #", "* scale\n        s = s.to(tl.float16)  #", "is no arithmetic of scores"),
        ('float("-inf")', "-3.4e38", "beyond float32"),
        ('float("-inf")', "vp", "the range of the parameter vp is not known"),
        ("tl.max(s, 1)", "tl.max(s, 1, return_indices=True)", "an argument return_indices"),
        ("tl.max(s, 1)", "tl.max(s * s, 1)", "multiplies or divides another score"),
        ("s - n[:, None]", "s - n[:, None] - i", "the loop's variable i goes into an exponential"),
        ("s - n[:, None]", "s - n[:, None] - BIAS", "nothing is known of BIAS"),
        ("s - n[:, None]", "s - tl.cumsum(s, 1)", "is no arithmetic of scores"),
        ("    tl.store(lse, m", "    tl.store(vp, tl.argmax(s, 1))\n    tl.store(lse, m", "answer to their rounding"),
        ("        m = n\n", "        m = tl.where(n > 0.5, n, m)\n", "compares scores with other numbers"),
        ("        m = n\n", "        m = tl.where(n > m, n, m)\n", "compares scores with other numbers"),
        ("        m = n\n", "        (m, n) = both(m, n)\n", "is unpacked from"),
        ("        m = n\n", "        tl.store(vp, (t := n))\n        m = n\n", "an expression that is not followed"),
        ("        m = n\n", "        m = n\n        with i:\n            m = n\n", "a statement of the kind With"),
    ],
)  # fmt: skip
def test_it_does_not_fire_where_a_use_is_not_understood(old: str, new: str, why: str) -> None:
    assert why in reason(rewritten, changed(old, new))


HELPED = """
import triton, triton.language as tl

@triton.jit
def fold(l, m, s):
    n = tl.maximum(m, tl.max(s, 1))
    return l * tl.exp(m - n) + tl.sum(tl.exp(s - n[:, None]), 1), n

@triton.jit
def scored(q, key, scale):
    return tl.dot(q, key) * scale

@triton.jit
def k(q, kp, lse, scale, hi, STEP: tl.constexpr):
    m = tl.full([16], float("-inf"), tl.float32)
    l = tl.zeros([16], tl.float32)
    for i in range(0, hi, STEP):
        l, m = fold(l, m, scored(q, tl.load(kp + i), scale))
    tl.store(lse, m + tl.log(l))
"""


def test_helpers_take_and_give_scores_in_base_2() -> None:
    text = rewritten(HELPED)
    assert "return tl.dot(q, key) * scale_log2e" in text and "tl.store(lse, m * 0.6931471805599453 + tl.log(l))" in text
    assert "return l * tl.exp2(m - n) + tl.sum(tl.exp2(s - n[:, None]), 1), n" in text


def test_a_helper_on_one_line_folds_where_it_multiplies() -> None:
    short = HELPED.replace("def scored(q, key, scale):\n    return", "def scored(q, key, scale): return")
    assert "def scored(q, key, scale): return tl.dot(q, key) * (scale * 1.4426950408889634)\n" in rewritten(short)


def test_a_helper_that_another_kernel_calls_keeps_its_base() -> None:
    other = "\n@triton.jit\ndef other(l, m, s, out):\n    l, m = fold(l, m, s)\n    tl.store(out, m)\n"
    assert "fold is called from elsewhere, too" in reason(rewritten, HELPED + other)


def test_only_the_kernel_and_its_helpers_change() -> None:
    text = rewritten(LOOP + LOOP.replace("def k(", "def twin("))
    assert text.count("tl.exp2(") == 2 and text.endswith(LOOP.replace("def k(", "def twin(").split("triton.jit\n")[1])


def test_a_second_rewrite_finds_nothing_left() -> None:
    assert "no tl.exp in this kernel" in reason(rewritten, rewritten(LOOP))


@pytest.mark.parametrize(
    ("name", "text", "contract"),
    [
        ("_attention", attention.FORWARD, attention.FORWARD_CONTRACT),
        ("_gradient", attention.GRADIENT, attention.GRADIENT_CONTRACT),
    ],
)
def test_rewritten_attention_is_right_on_all_small_cases(tmp_path: Path, name: str, text: str, contract: str) -> None:
    path = compose(tmp_path, text, contract)
    source = rewritten(path.read_text(), name)
    assert "tl.exp(" not in source and "sm_scale_log2e" in source
    found = checked(path, source)
    assert found.verdict == Verdict.CHECKED, found.reason


def test_a_base_that_is_not_converted_back_is_caught(tmp_path: Path) -> None:
    path = compose(tmp_path, attention.FORWARD, attention.FORWARD_CONTRACT)
    wrong = rewritten(path.read_text(), "_attention").replace("peak * 0.6931471805599453", "peak")
    assert checked(path, wrong).verdict == Verdict.WRONG


RUNNING = f"""{HEADER}

@triton.jit
def capped(x, limit):
    return limit * (2 * tl.sigmoid(2 * x / limit) - 1)
"""
VARIANT = """

@triton.jit
def {name}(q_ptr, k_ptr, x_ptr, o_ptr, scale, hi, MASKED: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tile = at[:, None] * SIZE + at[None, :]
    q = tl.load(q_ptr + tile)
    m = {start}
    l = tl.zeros([SIZE], tl.float32)
    for i in range(0, hi):
        s = tl.dot(q, tl.load(k_ptr + i * SIZE * SIZE + tile))
        {scores}
        n = tl.maximum(m, tl.max(s, 1))
        l = l * tl.exp(m - n) + tl.sum(tl.exp(s - n[:, None]), 1)
        m = n
    {end}
    tl.store(o_ptr + at, l)
"""
PLAIN, LAST = "s *= scale", "tl.store(o_ptr + SIZE + at, m)"
LOW = "tl.full([SIZE], float('-inf'), tl.float32)"
VARIANTS = [
    (LOW, PLAIN, LAST),
    ("tl.full([SIZE], -1.0e4, tl.float32)", "s = s * (2 * scale) - 1.5", "m += tl.log(l)\n    " + LAST),
    ("tl.zeros([SIZE], tl.float32) - 7", "s = scale * s * 0.5", "tl.store(o_ptr + SIZE + at, m + tl.log(l))"),
    (LOW, f"{PLAIN}\n        s = tl.where(tile % 3 > 0, s, -1.0e3)", "tl.store(o_ptr + SIZE + at, (m / 2) * m)"),
    (LOW, f"{PLAIN}\n        if MASKED:\n            s = capped(s, 3.0)", LAST),
    (LOW, f"{PLAIN}\n        if MASKED:\n            s += tl.load(x_ptr + at)[None, :]", LAST),
    (LOW, f"{PLAIN}\n        s -= tl.load(x_ptr + tile)\n        tl.store(o_ptr + 2 * SIZE + tile, s)", LAST),
    (LOW, f"{PLAIN}\n        s = s / 3 if MASKED else s", "m = -m\n    " + LAST),
    (LOW, f"{PLAIN}\n        s = tl.where(s == 0, float('-inf'), s)", "if hi > 1:\n        m = tl.abs(m)\n    " + LAST),
    (LOW, "s = s / SIZE * scale", "n = tl.load(x_ptr + at)\n    tl.store(o_ptr + SIZE + at, tl.sum(m) + n)"),
]


def test_every_way_that_scores_go_gives_the_same_up_to_rounding() -> None:
    names = [f"k{i}" for i in range(len(VARIANTS))]
    source = RUNNING + "".join(
        VARIANT.format(name=n, start=a, scores=b, end=c) for n, (a, b, c) in zip(names, VARIANTS, strict=True)
    )
    source += "\n\ndef kernel(q, k, x):\n    o = torch.zeros((" + f"{len(names)}, 2 + 16, 16))\n"
    source += "".join(f"    {n}[(1,)](q, k, x, o[{i}], 0.3, 3, MASKED=True, SIZE=16)\n" for i, n in enumerate(names))
    source += "    return o\n"
    changed = source
    for name in names:
        changed = rewritten(changed, name)
    assert "tl.exp(" not in changed
    call = {"q": torch.randn(16, 16), "k": torch.randn(3, 16, 16), "x": torch.randn(16, 16)}
    (before,), (after,) = outputs(source, call)[0], outputs(changed, call)[0]
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
        assert one.abs().sum() > 0 and not torch.equal(one, other)


SOFTMAX = (
    taken(f"{LIGER}.backends._ascend.ops.grpo_loss", "_selective_log_softmax_kernel")
    + """

def kernel(logits, ids):
    B, rows, N = logits.shape
    log_p = torch.empty((B, rows - 1), device=logits.device, dtype=torch.float32)
    _selective_log_softmax_kernel[(B, 4)](
        logits, ids, log_p, None, 0.7, ids.stride(0), L=rows - 1, N=N, BLOCK_N=64
    )
    return log_p
"""
)


def test_a_kernel_that_nobody_here_wrote_gives_the_same_up_to_rounding() -> None:
    source = rewritten(SOFTMAX, "_selective_log_softmax_kernel")
    assert "tl.exp(" not in source and "inv_temp_log2e = inv_temp * 1.4426950408889634" in source
    calls = [{"logits": 8 * torch.randn(2, 65, n), "ids": torch.randint(n, (2, 64))} for n in (33, 200)]
    for before, after in zip(outputs(SOFTMAX, *calls), outputs(source, *calls), strict=True):
        torch.testing.assert_close(after[0], before[0], rtol=2e-6, atol=2e-6)
        assert not torch.equal(after[0], before[0])


@pytest.mark.parametrize(
    ("module", "kernel", "why"),
    [
        ("softmax", "_softmax_single_block_forward_kernel", "no scale multiplies what goes into 'tl.exp(x - m)'"),
        ("mhc", "_mhc_split_sinkhorn_fwd_kernel", "'mix_res * alpha_res' has no factor that is one float32 number"),
        ("multi_token_attention", "_mask_fwd_kernel", "no tl.exp in this kernel"),
        ("fused_neighborhood_attention", "_fused_neighborhood_attention_qk_kernel", "no tl.exp in this kernel"),
    ],
)
def test_on_kernels_that_nobody_here_wrote_it_says_why_not(module: str, kernel: str, why: str) -> None:
    assert why in reason(rewritten, taken(f"{LIGER}.{module}", kernel), kernel)


@pytest.mark.parametrize("name", ["fa_fwd", "fa_bwd"])
def test_kernels_in_base_2_already_are_left_alone(name: str) -> None:
    assert "no tl.exp in this kernel" in reason(rewritten, (ROOT / "kernels" / f"{name}.py").read_text(), f"_{name}")
