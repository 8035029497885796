"""The kernels that ship: each builds for an H200 and is right on its small cases. No GPU: nothing is measured here.

The small cases are attacked too: a seeded bug must be found wrong by them. fa_fwd, as shipped and with bugs, is in
test_interpreter.py.
"""

import math
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import plan_rules
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.questions import Check

from tests.judges import judge_of

FOLDER = Path(__file__).parents[3] / "kernels"
KERNELS = sorted(p.stem for p in FOLDER.glob("[!_]*.py") if not p.stem.endswith(".target"))
SETS = ("CASES", "SMALL", "HELD_OUT")
MARKS = {"gemm": [], "fa_bwd": [pytest.mark.long]}  # the others are slow: they take longer still
GRID = 48  # points of a launch grid: each costs a build and, on a GPU, a check and a timing of every case
BUGS = {
    "gemm": {
        "a ragged K without its last column": ("in_k = offs_k < K - k", "in_k = offs_k < K - k - 1"),
        "a last column of C that is not stored": ("offs_n < N)", "offs_n < N - 1)"),
        "a B that is walked as if K were contiguous": ("b_ptrs += BLOCK_K * stride_bk", "b_ptrs += BLOCK_K"),
    },
    "fa_bwd": {
        "a mask of dK and dV that hides the diagonal": ("rows[None, :] >= offs_n", "rows[None, :] > offs_n"),
        "a mask of dQ that hides the diagonal": ("offs_m[:, None] >= cols", "offs_m[:, None] > cols"),
        "a dK without its scale": ("    dk *= sm_scale\n", ""),
        "a dQ without its scale": ("    dq *= sm_scale\n", ""),
        "a dK without delta": ("pt * (dpt - delta[None, :])", "pt * dpt"),
        "a dQ without delta": ("p * (dp - delta[:, None])", "p * dp"),
        "a step of queries that is skipped": ("first = off\n", "first = off + STEP\n"),
        "a K that is read as if it were contiguous": (
            "K += head // H * stride_kb + head % H * stride_kh",
            "K += head * S * D",
        ),
    },
    "attn_decode": {
        "shares that are merged without their weights": ("parts * weights[:, None]", "parts"),
        "a sequence that is as long as the cache": ("length = tl.load(LENGTHS + b)", "length = S"),
        "a last share that ends early": ("tl.minimum(start + share, length)", "tl.minimum(start + share, length - 1)"),
    },
    "gemm_fp8": {
        "a scale of A for all of K": ("        sa_ptrs += stride_sak\n", ""),
        "a scale of B that is a tile's, not a block's": ("tile_n * BLOCK_N // GROUP_K * stride", "tile_n * stride"),
        "a last block of K that is left out": ("range(0, K, GROUP_K)", "range(0, K - GROUP_K, GROUP_K)"),
    },
    "cross_attn": {
        "keys that are counted as queries are": ("inside = start + offs_n < SK", "inside = start + offs_n < SK + 1"),
        "a last block of keys that is left out": ("    if not EVEN_N:\n", "    if EVEN_N:\n"),
        "a block of keys that is read twice": ("0, whole, stride_kn", "0, whole + BLOCK_N, stride_kn"),
    },
    "grouped_gemm": {
        "a group that takes the next one's first row": ("rows[:, None] < end)", "rows[:, None] <= end)"),
        "empty groups that count as a tile": ("tl.cdiv(ends - starts, BLOCK_M)", "tl.cdiv(ends - starts + 1, BLOCK_M)"),
        "a grid without the last tiles of groups": ('meta["BLOCK_M"]) + E)', 'meta["BLOCK_M"]))'),
    },
    "rms_norm_quant": {
        "a scale that leaves room above the largest": ("1e-10) / LARGEST", "1e-10) / (LARGEST - 8)"),
        "a last row that is not stored": ("(rows[:, None] < M) & (columns", "(rows[:, None] < M - 1) & (columns"),
        "a mean over the padded row": ("tl.sum(x * x, 1) / N", "tl.sum(x * x, 1) / COLUMNS"),
    },
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def check(name: str, old: str = "", new: str = "") -> Judgement:
    """The verdict on a kernel, in whose source `old` was replaced, by its small cases in Triton's interpreter."""
    judge = judge_of(FOLDER / f"{name}.py")
    assert old in judge.target.source
    return judge.verdict(Check(source=judge.target.source.replace(old, new) if old else judge.target.source))


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, [pytest.mark.slow])) for n in KERNELS])
def test_a_kernel_is_right_on_its_small_cases(name: str) -> None:
    found = check(name)
    assert found.verdict == Verdict.CHECKED, found.reason


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        pytest.param(n, b, marks=[pytest.mark.slow] if i else MARKS.get(n, [pytest.mark.slow]))
        for n, bugs in BUGS.items()
        for i, b in enumerate(bugs)
    ],
)
def test_a_seeded_bug_is_found_wrong(name: str, bug: str) -> None:
    found = check(name, *BUGS[name][bug])
    assert found.verdict == Verdict.WRONG, found.reason


@every_kernel
@pytest.mark.slow
def test_every_case_of_a_kernel_builds_for_an_h200_without_torch_operations(name: str, tmp_path: Path) -> None:
    """At the first configuration. A torch operation in the original's plan would be allowed to every candidate."""
    found, contents = target.read(FOLDER / f"{name}.py"), ContentStore(tmp_path)
    built = Builder(found, devices.find("h200"), box.choose(), contents).build(found.source, dict.fromkeys(SETS), 1)
    assert built.ok and not built.failures, built.failures
    sets, space = built.described["sets"], built.described["launch_space"]
    assert all(sets.values())
    assert set(built.choices) == {f"{s}/{n}" for s in SETS for n in sets[s]}
    plans = contents.manifest(built.bundle)["plans"].values()
    assert plan_rules.ops_of(plan for choices in plans for plan in choices.values()) == set()
    (first,) = next(iter(built.choices.values()))
    assert not any(built.statics[k]["spill_store_bytes"] for k in first.kernels)
    assert set(space) <= set(first.config)
    assert math.prod(map(len, space.values())) <= GRID
