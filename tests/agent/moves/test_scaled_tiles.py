"""Tile sizes that a launcher computes are scaled where the grid or a loop of the kernel follows them."""

import pytest
from pgo_agent.agent.moves import Best, Proposal, catalogue
from pgo_agent.agent.moves.launch_sites import sites
from pgo_agent.agent.moves.scaled_tiles import steps, tiles
from pgo_agent.sandbox import devices

H200 = devices.find("h200")
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
ROWS = """
@triton.jit
def _rows(X, Y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(Y + row + i, tl.load(X + row + i, mask=i < n), mask=i < n)
"""
FLAT = """
@triton.jit
def _flat(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, mask=i < n), mask=i < n)
"""
WHOLE = ROWS.replace("for start in range(0, n, BLOCK):", "if True:").replace("start + ", "")
FORMAT = ROWS.replace("tl.store(Y", "tl.store(Y + start // BLOCK")


def file(kernel: str, launcher: str, given: str = "min(len(x), 256)") -> str:
    own = f"def launch(x, size):\n    y, n = torch.empty_like(x), x.shape[-1]\n{launcher}\n    return y\n"
    return f"{HEAD}{kernel}\n\n{own}\n\ndef kernel(x, many):\n    return launch(x, {given})\n"


def scaled(source: str) -> list[str]:
    """What stands in the file instead, twice as large."""
    changed = [t.scaled(source, (2, 1)) for t in tiles(source)]
    for text in changed:
        compile(text, "it", "exec")
    return [new for t in changed for old, new in zip(source.splitlines(), t.splitlines(), strict=True) if old != new]


@pytest.mark.parametrize(
    ("kernel", "launcher", "expected"),
    [
        (ROWS, "    _rows[(len(x),)](x, y, n, BLOCK=min(n, 1024))", "BLOCK=min(n, 1024) * 2)"),
        (ROWS, "    _rows[(len(x),)](x, y, n, BLOCK=64 if n < 99 else 128)", "BLOCK=(64 if n < 99 else 128) * 2)"),
        (ROWS, "    block = min(n, 1024)\n    _rows[(len(x),)](x, y, n, BLOCK=block)", "block = min(n, 1024) * 2"),
        (ROWS, "    block = min(n, 1024) * 2\n    _rows[(len(x),)](x, y, n, block)", "block = min(n, 1024) * 4"),
        (ROWS, "    block = min(n, 1024) // 2\n    _rows[(len(x),)](x, y, n, block)", "block = min(n, 1024)"),
        (ROWS, "    _rows[(len(x),)](x, y, n, BLOCK=size)", "BLOCK=size * 2)"),
        (FLAT, "    _flat[lambda meta: (n // meta['BLOCK'],)](x, y, n, BLOCK=size)", "BLOCK=size * 2)"),
        (
            FLAT,
            "    b = min(n, 512)\n    grid = (triton.cdiv(n, b),)\n    _flat[grid](x, y, n, b)",
            "b = min(n, 512) * 2",
        ),
    ],
)
def test_it_is_multiplied_where_grid_and_launch_share_it(kernel: str, launcher: str, expected: str) -> None:
    (line,) = scaled(file(kernel, launcher))
    assert line.strip().endswith(expected)


@pytest.mark.parametrize(
    ("kernel", "launcher"),
    [
        (WHOLE, "    _rows[(len(x),)](x, y, n, BLOCK=triton.next_power_of_2(n))"),  # a program holds a whole row
        (FORMAT, "    _rows[(len(x),)](x, y, n, BLOCK=size)"),  # the format of the data, which something is divided by
        (FLAT, "    _flat[(triton.cdiv(n, min(n, 512)),)](x, y, n, BLOCK=min(n, 512))"),  # the grid would not follow
        (FLAT, "    _flat[(triton.cdiv(n, size),)](x, y, n, BLOCK=size)"),  # nor here
        (ROWS, "    _rows[(len(x),)](x, y, n, BLOCK=x.shape[0])"),  # a size of the data
        (ROWS, "    _, block = x.shape\n    _rows[(len(x),)](x, y, n, BLOCK=block)"),
        (ROWS, "    _rows[(len(x),)](x, y, n, BLOCK=1024)"),  # a number, which is for the levers of a launch
    ],
)
def test_a_size_that_is_no_choice_of_the_launcher_stays(kernel: str, launcher: str) -> None:
    assert scaled(file(kernel, launcher)) == []


def test_what_the_target_itself_is_called_with_stays() -> None:
    launcher = "    _rows[(len(x),)](x, y, n, BLOCK=size)"
    assert scaled(file(ROWS, launcher, "many")) == [] != scaled(file(ROWS, launcher))


def moves(source: str, dots: int, **config: int) -> list[str]:
    (site,) = sites(source)
    static = {"name": site.kernel, "registers": 32, "shared": 0, "pipeline_depth": 0, "sass": {"all": 9}}
    static |= {"dots": dots, "notes": [], "spill_store_bytes": 0, "num_warps": 4, "loop_flops": 0}
    best = {"CASES/x": Best(config, static, {site.kernel: static})}
    return [p.move for p in catalogue.propose(source, best, [], H200) if isinstance(p, Proposal) and p.kind == "launch"]


def test_without_dots_it_is_first_made_larger_and_with_dots_smaller() -> None:
    source = file(ROWS, "    _rows[(len(x),)](x, y, n, BLOCK=min(n, 1024))")
    assert [m for m in moves(source, 0) if m.endswith("BLOCK")] == ["four times BLOCK", "twice BLOCK", "half BLOCK"]
    assert [m for m in moves(source, 2) if m.endswith("BLOCK")] == ["half BLOCK", "twice BLOCK"]


def test_all_tiles_of_a_kernel_are_halved_at_once_before_each_alone() -> None:
    kernel = ROWS.replace("BLOCK: tl", "BLOCK: tl.constexpr, TILE: tl")
    kernel = kernel.replace(
        "    row =", "    for k in range(0, n, TILE):\n        tl.zeros([TILE], tl.int8)\n    row ="
    )
    source = file(kernel, "    _rows[(len(x),)](x, y, n, BLOCK=min(n, 64), TILE=size)")
    (text,) = [t for name, _, t, _ in steps(source, tiles(source), dots=True) if name == "half BLOCK, TILE"]
    assert "BLOCK=min(n, 64) // 2, TILE=size // 2)" in text


def test_stages_that_a_launcher_computes_are_set_where_the_build_has_no_pipeline() -> None:
    source = file(ROWS, "    stages = 1 if n < 64 else len(x)\n    _rows[(len(x),)](x, y, n, 64, num_stages=stages)")
    assert {"num_stages=2", "num_stages=3"} <= set(moves(source, 2))
    assert not [m for m in moves(source, 0) if m.startswith("num_stages")]


def test_without_dots_sizes_and_warps_are_tried_together_by_the_elements_of_a_thread() -> None:
    source = file(FLAT, "    b = 1024\n    _flat[(triton.cdiv(n, b),)](x, y, n, BLOCK=b)")
    found = moves(source, 0, BLOCK=1024)
    assert {"BLOCK=2048 num_warps=8", "BLOCK=2048 num_warps=4", "BLOCK=512", "num_warps=16"} <= set(found[:12])
    assert "BLOCK=1024 num_warps=4" not in found  # it stands there
    assert not [m for m in moves(source, 2, BLOCK=256) if m.startswith("BLOCK=512")]


def test_a_row_that_a_program_holds_whole_keeps_its_size() -> None:
    source = file(WHOLE, "    _rows[(len(x),)](x, y, n, BLOCK=4096)")
    assert not [m for m in moves(source, 0, BLOCK=4096) if m.startswith("BLOCK")]


def test_a_program_gets_more_of_what_the_grid_counts() -> None:
    body = FLAT.replace("BLOCK: tl", "SPLIT: tl.constexpr, BLOCK: tl").replace("BLOCK)", "SPLIT * BLOCK)")
    launcher = "    many = 1\n    _flat[(triton.cdiv(n, many * 64),)](x, y, n, SPLIT=many, BLOCK=64)"
    source = file(body.replace("* BLOCK +", "* SPLIT * BLOCK +"), launcher)
    assert {"SPLIT=2", "SPLIT=4", "SPLIT=8"} <= set(moves(source, 0, SPLIT=1, BLOCK=64))
