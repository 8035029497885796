"""The persistent grid: every tile of the old grid is computed once, by the same code, whatever the number of programs.

The kernels are small and their grids larger than the 132 programs that the interpreter's H200 is given.
"""

from pathlib import Path

import pytest
import torch
from pgo_agent.agent.moves.move import RewriteInput
from pgo_agent.agent.moves.rewrites import persistent_grid
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.agent.composing import HEADER, checked, outputs, reason, same_bits, taken
from tests.conftest import ROOT
from tests.sandbox.tracing import build

H200 = devices.find("h200")
SCALE = f"""{HEADER}

@triton.jit
def _scale(X, Y, N, ROWS, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    X += row * N
    Y += row * N
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    tl.store(Y + at, tl.load(X + at, mask=inside) * (row + 1), mask=inside)


def kernel(x):
    rows, N = x.shape
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK"]), rows)  # noqa: E731
    _scale[grid](x, y, N, rows, BLOCK=16)
    return y
"""
SWIGLU = (
    taken("liger_kernel.ops.swiglu", "silu", "_swiglu_forward_kernel")
    + """

def kernel(a, b):
    c = torch.empty_like(a)
    rows, columns = a.shape
    _swiglu_forward_kernel[(rows,)](a, b, c, c.stride(-2), 1.0, n_cols=columns, BLOCK_SIZE=64)
    return c
"""
)


def rewritten(source: str, kernel: str = "_scale", **config: int) -> str:
    return persistent_grid.rewrite(RewriteInput(source, kernel, H200, config))


@pytest.mark.long
def test_a_kernel_whose_tiles_make_descriptors_still_builds(tmp_path: Path) -> None:
    text = f"""{HEADER}
@triton.jit
def _squared(X, Y, n, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    x = tl.make_tensor_descriptor(X + row * n, shape=[ROWS, n], strides=[n, 1], block_shape=[ROWS, ROWS])
    y = tl.make_tensor_descriptor(Y + row * n, shape=[ROWS, n], strides=[n, 1], block_shape=[ROWS, ROWS])
    b = tl.load(X + tl.arange(0, ROWS)[:, None] * n + tl.arange(0, ROWS)[None, :])
    y.store([0, 0], tl.dot(x.load([0, 0]), b).to(Y.dtype.element_ty))


def squared(m):
    y = torch.empty_like(m)
    _squared[(m.shape[0] // 16,)](m, y, m.shape[1], ROWS=16)
    return y
"""
    built = build(tmp_path, rewritten(text, "_squared"))
    assert built.ok and not built.failures, built.failures


@pytest.mark.long
def test_a_grid_of_two_dimensions_is_covered_tile_by_tile() -> None:
    calls = [{"x": torch.randn(rows, n)} for rows, n in ((40, 100), (3, 1000), (1, 5))]
    assert same_bits(outputs(SCALE, *calls), outputs(rewritten(SCALE, "_scale"), *calls))


def test_pointers_that_a_tile_moves_start_anew_with_each_tile() -> None:
    text = rewritten(SCALE, "_scale")
    assert "X_tile = X\n" in text and "X_tile += row * N" in text and "X += row * N" not in text


def test_the_grid_is_limited_to_what_the_device_holds_and_its_old_name_goes() -> None:
    text = rewritten(SCALE, "_scale")
    assert 'min(triton.cdiv(N, meta["BLOCK"]) * rows, programs)' in text
    assert "grid = lambda" not in text and "_scale[persistent](" in text


@pytest.mark.slow
def test_a_size_that_only_the_host_knows_is_passed_on() -> None:
    source = SCALE.replace("N, ROWS, BLOCK", "N, BLOCK").replace("N, rows, BLOCK", "N, BLOCK")
    text = rewritten(source, "_scale")
    assert "BLOCKS_1=rows" in text and "BLOCKS_1):" in text.replace(",\n", "")
    calls = [{"x": torch.randn(40, 100)}]
    assert same_bits(outputs(source, *calls), outputs(text, *calls))


RETURNS = {
    "one": "    if row > 3:\n        return\n",
    "two": "    if row == 1:\n        return\n    X += 0\n    if at_first(row) > 20:\n        return None\n",
    "on a line": "    if row > 3: return\n",
    "of a constant": "    if BLOCK < 8:\n        return\n",
}


@pytest.mark.parametrize("form", RETURNS)
def test_a_program_that_may_return_at_once_does_its_other_tiles(form: str) -> None:
    helper = "@triton.jit\ndef at_first(row):\n    return row\n\n\n@triton.jit\ndef _scale"
    source = SCALE.replace("@triton.jit\ndef _scale", helper).replace("empty_like", "zeros_like")
    source = source.replace("    X += row * N\n", f"{RETURNS[form]}    X += row * N\n")
    text = rewritten(source)
    assert "return" not in text.split("def _scale")[1].split("def kernel")[0]
    calls = [{"x": torch.randn(rows, columns)} for rows, columns in ((40, 100), (1, 7))]
    assert same_bits(outputs(source, *calls), outputs(text, *calls))


def test_a_number_of_the_file_is_known_in_the_grid() -> None:
    source = SCALE.replace('"BLOCK"]), rows)', '"BLOCK"] * SIZE // SIZE), rows)').replace(
        "\n\ndef kernel", "\n\nSIZE = 2\n\n\ndef kernel"
    )
    text = rewritten(source)
    assert "BLOCK * 2 // 2" in text
    calls = [{"x": torch.randn(40, 100)}]
    assert same_bits(outputs(source, *calls), outputs(text, *calls))
    shadowed = source.replace("def kernel(x):", "def kernel(x, SIZE=4):")
    assert "depends on SIZE" in reason(rewritten, shadowed)
    for other in ("SIZE = 2\n\n\ndef grown():\n    global SIZE\n    SIZE += 1\n", "SIZE = 2\nSIZE = 3\n"):
        assert "depends on SIZE" in reason(rewritten, source.replace("SIZE = 2\n", other))


def test_a_launch_in_a_function_that_makes_kernels_counts() -> None:
    twice = """def twice(x):
    @triton.jit
    def _other(x):
        tl.store(x, 0.0)
    _scale[(triton.cdiv(x.numel(), 16),)](x, x, x.numel(), 1, BLOCK=16)
    return x
"""
    assert "outside of the functions that are followed" in reason(rewritten, f"{SCALE}\n\n{twice}")


@pytest.mark.long
def test_a_kernel_that_it_has_never_seen_keeps_its_bits() -> None:
    text = rewritten(SWIGLU, "_swiglu_forward_kernel")
    calls = [{"a": torch.randn(rows, 50), "b": torch.randn(rows, 50)} for rows in (300, 1)]
    assert same_bits(outputs(SWIGLU, *calls), outputs(text, *calls))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    inside = at", "    if row:\n        if N > 3:\n            return\n    inside = at", "in the middle of"),
        ('meta["BLOCK"]), rows)', 'meta["BLOCK"] * SIZE), rows)', "depends on SIZE"),
        ("    inside = at", "    tl.atomic_cas(Y, 0, 1)\n    inside = at", "wait for one another (atomic_cas)"),
        ("row = tl.program_id(1)", "row = tl.program_id(1) % tl.num_programs(1)", "counts its programs already"),
        ("_scale[grid](x", "_scale[pick(grid)](x", "not a tuple: pick(grid)"),
        ('meta["BLOCK"]), rows)', 'meta["BLOCK"] + len(x)), rows)', "depends on len"),
        ('meta["BLOCK"]), rows)', 'meta["WIDTH"]), rows)', "asks for meta[\"WIDTH\"]"),
        ("    grid = lambda", "    grid = None\n    grid = lambda", "not assigned once"),
        ("    return y\n", "    _scale[grid](y, x, N, rows, BLOCK=16)\n    return y\n", "2 launches"),
        ("tl.program_id(0) * BLOCK", "tl.program_id(axis=0) * tl.program_id(BLOCK - 16)", "by a number"),
        ("import torch\n", "import torch as t\n", "does not import torch"),
        ("import triton.language as tl\n", "tl = triton.language\n", "does not import triton.language"),
        ("def kernel(", "def min(*given):\n    return 1\n\n\ndef kernel(", "gives min another meaning"),
    ],
)  # fmt: skip
def test_it_does_not_fire_where_it_cannot_tell_a_tile_from_another(old: str, new: str, why: str) -> None:
    assert old in SCALE
    assert why in reason(rewritten, SCALE.replace(old, new))


def test_keywords_at_the_launch_of_another_kernel_say_nothing_of_this_one() -> None:
    tuned = SCALE.replace(
        "@triton.jit\n", '@triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=["N"])\n@triton.jit\n'
    ).replace("_scale[grid](x, y, N, rows, BLOCK=16)", "_scale[grid](*(x, y), N, rows)")
    for source in (tuned, f"{tuned}\n\ndef elsewhere(x):\n    other[(1,)](x, BLOCK=16)\n"):
        text = rewritten(source, BLOCK=16)
        assert "blocks_0 = tl.cdiv(N, BLOCK)\n" in text and "blocks_0 * ROWS, tl.num_programs(0))" in text


def test_a_helper_that_asks_for_the_program_itself_is_not_followed() -> None:
    helper = "@triton.jit\ndef place():\n    return tl.program_id(1)\n\n\n@triton.jit\ndef _scale("
    source = SCALE.replace("@triton.jit\ndef _scale(", helper).replace("row = tl.program_id(1)", "row = place()")
    assert "helper place" in reason(rewritten, source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kernel", "config"),
    [
        ("gemm", "_gemm", ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")),
        ("fa_bwd", "_fa_bwd", ("BLOCK", "STEP")),
    ],
)
def test_shipped_kernels_are_right_on_all_small_cases(name: str, kernel: str, config: tuple[str, ...]) -> None:
    path: Path = ROOT / "kernels" / f"{name}.py"
    found = checked(path, rewritten(path.read_text(), kernel, **dict.fromkeys(config, 64)))
    assert found.verdict == Verdict.CHECKED, found.reason
