"""The grid of the tuned baseline is that of the launch it is meant for, by the build of the kernel as shipped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.moves import launch_space
from pgo_agent.agent.moves.launch_config import said
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.errors import TargetFault

from tests.agent.command_line import pgo
from tests.agent.launch_forms import CONTRACT, FORMS, SEVERAL
from tests.agent.targets import builder_of

TWO_STEPS = """
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"WIDTH": 64}, num_warps=1), triton.Config({"WIDTH": 128}, num_warps=1)], key=[])
@triton.jit
def _total(PARTS, Y, parts, WIDTH: tl.constexpr):
    i = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for k in range(0, parts, WIDTH):
        total += tl.load(PARTS + k + i, mask=k + i < parts, other=0.0)
    tl.store(Y, tl.sum(total))


@triton.jit
def _parts(X, PARTS, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(PARTS + tl.program_id(0), tl.sum(tl.load(X + i, mask=i < n, other=0.0)))


def kernel(x):
    BLOCK, n = 1024, x.numel()
    parts, y = torch.empty(triton.cdiv(n, BLOCK), device=x.device), torch.empty(1, device=x.device)
    _parts[(parts.numel(),)](x, parts, n, BLOCK=BLOCK)
    _total[(1,)](parts, y, parts.numel())
    return y
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[str, Built, dict[str, Any]]]:
    """A text as a target, with its build and the manifest of that; each is built once."""
    known = dict[str, tuple[str, Built, dict[str, Any]]]()

    def build(text: str) -> tuple[str, Built, dict[str, Any]]:
        if text not in known:
            source = text + CONTRACT
            builder = builder_of(source, tmp_path_factory.mktemp("space"))
            shipped = builder.build(source, {"CASES": None}, None)
            assert shipped.ok, shipped.failures
            known[text] = source, shipped, builder.contents.manifest(shipped.bundle)
        return known[text]

    return build


Made = Callable[[str], tuple[str, Built, dict[str, Any]]]


def test_a_grid_that_nobody_declared_is_of_the_kernel_that_does_the_work_and_not_of_the_first(built: Made) -> None:
    found = launch_space.varied(*built(SEVERAL), None)
    assert found.kernels == ("_scale",) and found.several and found.points > 1
    assert found.written == {"_scale.BLOCK": 1024, "_scale.num_warps": 4}
    assert all("_fill[(1,)](y, 8, BLOCK=64, num_warps=1)" in text for text, _ in found.texts)
    assert {said(config or {}) for _, config in found.texts} >= {"_scale: BLOCK=512 num_warps=8"}


def test_the_first_step_of_a_reduction_is_the_one_that_does_the_work(built: Made) -> None:
    source, shipped, manifest = built(TWO_STEPS)
    found = launch_space.varied(source, shipped, manifest, None)
    assert found.kernels == ("_parts",) and all("_parts.BLOCK" in (c or {}) for _, c in found.texts)
    assert {c.label.split(":")[0] for cs in shipped.choices.values() for c in cs} == {"_total"}


def test_a_kernel_whose_launch_the_file_does_not_hold_leaves_the_grid_to_the_next(built: Made) -> None:
    source, shipped, manifest = built(SEVERAL)
    unfollowed = source.replace("_scale[", "[_scale][0][")
    assert launch_space.varied(unfollowed, shipped, manifest, None).kernels == ("_fill",)


@pytest.mark.parametrize(
    ("declared", "kernels", "points"),
    [
        ({"num_warps": [2, 8]}, ("_parts",), 2),
        ({"WIDTH": [32, 256, 512]}, ("_total",), 3),
        ({"BLOCK": [512, 2048], "num_warps": [4, 8]}, ("_parts",), 4),
        ({"_total": {"num_warps": [1, 2]}}, ("_total",), 2),
        ({"_total": {"WIDTH": [32, 256]}, "_parts": {"num_warps": [1, 2, 8]}}, ("_total", "_parts"), 6),
    ],
)
def test_a_declared_grid_is_of_the_kernel_that_it_names_or_that_takes_it(
    built: Made, declared: dict[str, Any], kernels: tuple[str, ...], points: int
) -> None:
    found = launch_space.varied(*built(TWO_STEPS), declared)
    assert set(found.kernels) == set(kernels) and found.points == points
    for text, _ in found.texts:
        compile(text, "grid", "exec")
        assert ("_parts[(parts.numel(),)](x, parts, n, BLOCK=BLOCK)" in text) is ("_parts" not in kernels)
        assert ('triton.Config({"WIDTH": 64}, num_warps=1), triton' in text) is ("_total" not in kernels)


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"_none": {"BLOCK": [64]}}, "names the kernel _none, which no public case launches"),
        ({"_parts": {"WIDTH": [64]}}, "names WIDTH, which no launch of _parts takes"),
        ({"BLOCKS": [64]}, "names BLOCKS, which no launch of the kernel takes"),
        ({"WIDTH": [64], "BLOCK": [64]}, "no launch takes all that LAUNCH_SPACE names"),
        ({"_parts": {"BLOCK": [64]}, "num_warps": [4]}, "names kernels, and num_warps beside them"),
        ({"BLOCK": 64}, "gives 'BLOCK' as 64"),
        ({"_parts": {"BLOCK": []}}, "gives 'BLOCK' for _parts as"),
        ({"BLOCK": [64.5]}, "gives 'BLOCK' as"),
        (["BLOCK"], "is no dict"),
        ({"BLOCK": list(range(16, 2048, 16)), "num_warps": [1, 2, 4]}, "at most 256"),
    ],
)
def test_a_grid_that_no_launch_could_have_is_refused_with_what_there_is(built: Made, declared: Any, why: str) -> None:
    with pytest.raises(TargetFault, match=why):
        launch_space.varied(*built(TWO_STEPS), declared)


def test_warps_that_the_launcher_computes_are_varied_and_else_stay_computed(built: Made) -> None:
    found = launch_space.varied(*built(FORMS["settings of a function"]), None)
    assert [c for _, c in found.texts] == [{"num_warps": 4}, {"num_warps": 8}]
    staged = launch_space.varied(*built(FORMS["settings of a function"]), {"num_stages": [1, 2]})
    assert [c for _, c in staged.texts] == [{"num_stages": 1}, {"num_stages": 2}]
    assert all("num_warps=num_warps, num_stages=" in text for text, _ in staged.texts)


def test_a_parameter_that_a_launch_computes_is_refused_with_how(built: Made) -> None:
    with pytest.raises(TargetFault, match="BLOCK of _scale cannot be set: its launch gives it as BLOCK"):
        launch_space.varied(*built(FORMS["settings of a function"]), {"BLOCK": [64]})


def test_where_nothing_can_be_varied_it_is_said_why(built: Made) -> None:
    assert launch_space.varied(*built(FORMS["by position"]), None).why == "the launch names no parameter to vary"
    unfollowed = FORMS["literals"].replace("_scale[", "[_scale][0][")
    assert "a launch is not followed: line" in launch_space.varied(*built(unfollowed), None).why
    alone = launch_space.varied(*built(FORMS["literals"]), {"BLOCK": [1024], "num_warps": [4]})
    assert alone.texts == () and alone.why == "LAUNCH_SPACE holds nothing but what stands in the file"


@pytest.mark.slow
def test_what_is_printed_names_the_kernel_that_was_varied(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(SEVERAL + CONTRACT + "LAUNCH_SPACE = {'BLOCK': [512, 1024]}\n")
    done = pgo("optimize", "it.py", "--candidates", "1", cwd=tmp_path)
    assert done.code == 0 and "building 2 points of its launch grid of _scale" in done.err, done.err
    assert "best of the launch grid" in done.out and "_scale: BLOCK=" in done.out


@pytest.mark.slow
def test_the_best_of_a_grid_is_not_printed_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(FORMS["by position"] + CONTRACT)
    done = pgo("optimize", "it.py", "--candidates", "1", cwd=tmp_path)
    assert done.code == 0 and "the launch names no parameter to vary" in done.err, done.err
    assert "best of the launch grid" not in done.out and "as shipped" in done.out
