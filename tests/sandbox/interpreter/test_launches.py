"""How Triton's interpreter launches kernels: blocks that wait, grids, undefined lanes, whose fault an error is."""

from pathlib import Path

import pytest
import torch
from pgo_agent.sandbox.interpreter import tensors

from tests.sandbox.interpreting import entry, interpreted

X = torch.arange(8 * 64, dtype=torch.float32).reshape(8, 64)
WAITING = """
@triton.jit
def handed(X, Y, PART, FLAG):
    row, later, i = tl.program_id(0) // 2, tl.program_id(0) % 2, tl.arange(0, 64)
    x = tl.load(X + row * 64 + i)
    if later:
        tl.store(PART + row * 64 + i, x * 2)
        tl.atomic_xchg(FLAG + row, 1)
        while tl.load(FLAG + row, volatile=True) != 2:  # the answer
            pass
        tl.store(Y + row * 64 + i, tl.load(PART + row * 64 + i))
    else:
        while tl.atomic_add(FLAG + row, 0) != 1:
            pass
        tl.store(PART + row * 64 + i, tl.load(PART + row * 64 + i) + 1)
        tl.atomic_xchg(FLAG + row, ANSWER)


def kernel(x):
    y, part = torch.empty_like(x), torch.empty_like(x)
    handed[[16]](x, y, part, torch.zeros(8, dtype=torch.int32, device=x.device))
    return y
"""


def test_blocks_that_wait_for_later_ones_and_for_answers_run_in_turns(tmp_path: Path) -> None:
    found = entry(tmp_path, WAITING.replace("ANSWER", "2"), x=X)
    assert torch.equal(tensors.load(found["outputs"], tmp_path / "out")["0"], X * 2 + 1)
    assert found["not_modelled"] == ["blocks that wait for others: all were taken to run at once"]


def test_blocks_that_wait_for_what_never_comes_are_a_deadlock_with_its_line(tmp_path: Path) -> None:
    source = WAITING.replace("ANSWER", "3")
    found = entry(tmp_path, source, x=X)
    line = 3 + source[: source.index("# the answer")].count("\n")
    assert (found["verdict"], found["line"]) == ("deadlock", line), found
    assert "the 8 blocks that are left" in found["error"]
    assert found["not_modelled"] == [], "they wait for ever however many of them run at once"


SUMMED = """
@triton.jit
def summed(X, Y, n):
    i = tl.arange(0, 64)
    x = tl.load(X + i, mask=i < n)  # undefined
    tl.store(Y, tl.sum(SUMMED))


def kernel(x):
    y = torch.empty(1, device=x.device)
    summed[(1,)](x, y, 40)
    return y
"""


def test_a_result_that_depends_on_undefined_lanes_is_wrong_with_the_line_of_the_load(tmp_path: Path) -> None:
    found = entry(tmp_path, SUMMED.replace("SUMMED", "x"), x=X)
    line = 3 + SUMMED[: SUMMED.index("# undefined")].count("\n")
    assert (found["verdict"], found["line"]) == ("wrong", line), found
    assert "masked load without `other`" in found["error"]


MARKED = """
@triton.jit
def doubled(X, Y, MARK, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.load(MARK + tl.program_id(0)) != 12345:
        tl.store(Y + i, 2 * tl.load(X + i, mask=i < n), mask=i < n)
    tl.store(MARK + tl.program_id(0), 12345)


def kernel(x):
    y, mark = torch.empty_like(x), torch.empty(8, dtype=torch.int32, device=x.device)
    doubled[(8,)](x, y, mark, x.numel(), BLOCK=64)
    return y
"""


def test_a_kernel_that_finds_its_mark_and_leaves_its_work_undone_is_wrong(tmp_path: Path) -> None:
    found = entry(tmp_path, MARKED, x=X)
    assert found["verdict"] == "wrong" and "what an earlier launch of its own left" in found["error"], found


def test_scratch_that_is_written_before_it_is_read_may_hold_anything(tmp_path: Path) -> None:
    (y,) = interpreted(tmp_path, MARKED.replace("!= 12345", "!= 54321"), x=X)
    assert torch.equal(y, 2 * X)


LEAVING = """
@triton.jit
def masked(X, Y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    positive = tl.load(X + at, at < n, 0.0) > 9.0
    tl.store(Y + at, positive, (at < n) & (positive == False))  # the others stay as they are


def kernel(x):
    y = ALLOCATED
    masked[(8,)](x, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.mark.parametrize(
    "allocated",
    [
        "torch.empty(x.shape, dtype=torch.bool, device=x.device)",
        "torch.ops.aten.empty.memory_format(x.shape, dtype=torch.bool, device='cuda')",
    ],
)
def test_results_that_are_right_by_what_unwritten_memory_holds_are_wrong(tmp_path: Path, allocated: str) -> None:
    """Bytes of 0xFF are true: a mask whose true elements nobody writes would be right."""
    found = entry(tmp_path, LEAVING.replace("ALLOCATED", allocated), x=X)
    assert found["verdict"] == "wrong" and "memory that it allocates and does not write" in found["error"], found


def test_undefined_lanes_that_are_left_out_change_nothing(tmp_path: Path) -> None:
    (y,) = interpreted(tmp_path, SUMMED.replace("SUMMED", "tl.where(i < n, x, 0)"), x=X)
    assert y.item() == X.reshape(-1)[:40].sum()


SCALED = """
@triton.jit
def scaled(X, R, Y, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    r = tl.load(R + row, row < n, OTHER)  # one lane
    tl.store(Y + row * BLOCK + i, tl.load(X + row * BLOCK + i) * r)


def kernel(x, r):
    y = torch.empty_like(x)
    scaled[(x.shape[0],)](x, r, y, r.shape[0], BLOCK=x.shape[1])
    return y
"""


@pytest.mark.parametrize("other", [0.0, 2.0])
def test_a_scalar_that_is_masked_off_is_its_other_also_when_that_is_zero(tmp_path: Path, other: float) -> None:
    r = torch.rand(2)
    (y,) = interpreted(tmp_path, SCALED.replace("OTHER", str(other)), x=X, r=r)
    factors = torch.cat([r, torch.full((X.shape[0] - 2,), other)])
    assert torch.equal(y, X * factors[:, None])


ADDED = """
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def added(D, n):
    D.atomic_add([tl.program_id(0) * 0, 32], tl.full((4, 32), 1.0, tl.bfloat16))


def kernel(x):
    y = torch.zeros(8, 64, device=x.device, dtype=torch.bfloat16)
    added[lambda meta: (meta["n"] // 2, 1)](TensorDescriptor.from_tensor(y, [4, 32]), 6)
    added[(0, 5)](TensorDescriptor.from_tensor(y, [4, 32]), 6)
    return y
"""


def test_descriptors_add_in_memory_and_a_grid_may_depend_on_arguments(tmp_path: Path) -> None:
    (y,) = interpreted(tmp_path, ADDED, x=X)
    wanted = torch.zeros(8, 64, dtype=torch.bfloat16)
    wanted[:4, 32:] = 3
    assert torch.equal(y, wanted)


ERRING = """
@triton.jit
def scaled(X, Y, FLAG: tl.constexpr):
    i = tl.arange(0, 64)
    x = tl.load(X + i)
    KERNEL
    tl.store(Y + i, x)


@triton.jit
def twice(x):
    return x * 2


def kernel(x):
    y = torch.empty_like(x)
    LAUNCH
    return y
"""
USUAL = "scaled[(1,)](x, y, True)"
LACKING = {
    "a scalar function mapped": ("x = tl.map_elementwise(twice, x)", USUAL),
    "assembly": ('x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [x], tl.float32, True, 1)', USUAL),
    "the registers of a kernel": ("", f"{USUAL}.n_regs"),
    "what is known of a kernel": ("", "scaled.device_caches"),
    "an operation that torch lacks on the CPU": ("", "x.to(torch.float8_e4m3fn) + 1"),
}
MISTAKES = {
    "a name that is not there": ("x = nowhere", USUAL, "NameError"),
    "an assertion": ("tl.static_assert(FLAG == 7)", USUAL, "AssertionError"),
    "an argument that is missing": ("", "scaled[(1,)](x, y)", "TypeError"),
    "a view that does not fit": ("", "x.view(3, 5)", "RuntimeError"),
}


@pytest.mark.parametrize("what", LACKING)
def test_what_the_interpreter_lacks_is_its_own_fault_whatever_it_raises(what: str, tmp_path: Path) -> None:
    kernel, launch = LACKING[what]
    found = entry(tmp_path, ERRING.replace("KERNEL", kernel).replace("LAUNCH", launch), x=X)
    assert found["unsupported"], found


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_of_the_candidates_is_its_own_with_its_line(what: str, tmp_path: Path) -> None:
    kernel, launch, kind = MISTAKES[what]
    source = ERRING.replace("KERNEL", kernel).replace("LAUNCH", launch)
    found = entry(tmp_path, source, x=X)
    line = 3 + source[: source.index(kernel or launch)].count("\n")
    assert (found["unsupported"], found["line"], found["error"].split(":")[0]) == (False, line, kind), found


def test_a_result_in_place_of_an_input_is_named(tmp_path: Path) -> None:
    found = entry(tmp_path, ERRING.replace("KERNEL", "x = x + 1").replace("LAUNCH", "y = x; " + USUAL), x=X)
    assert (found["changed"], found["in_place"]) == (["x"], ["x"])


ASKING = """
import os


@triton.jit
def plain(X, Y, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kind = X.dtype.element_ty
    tl.store(Y + i, tl.load(X + i, i < n) * scale.to(kind.value), i < n)


class Entry:
    def __init__(self, fn):
        assert isinstance(fn, triton.runtime.JITFunction) and "tl.program_id(0)" in fn.cache_key
        self.fn, self.names = fn, [p.name for p in fn.params if not p.is_constexpr]

    def __getitem__(self, grid):
        def launch(*args, **options):
            first = self.fn.run(*args, grid=grid, warmup=False, **options)
            first[grid](*args, **options)

        return launch


class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **options):
        raise RuntimeError("a library's own tuner would take times")


tuned = (lambda *_: lambda fn: fn) if os.environ.get("TRITON_INTERPRET") else Tuner
scaled = tuned(plain, plain.arg_names, [triton.Config({"BLOCK": 64})], [], None, None)


def kernel(x):
    y, z = torch.empty_like(x), torch.empty_like(x)
    scaled[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](x, y, 512, 2.0)
    entry = Entry(plain)
    assert entry.names == ["X", "Y", "n", "scale"]
    entry[(8,)](x, z, 512, 3.0, BLOCK=64)
    return y, z
"""


def test_a_launcher_that_asks_how_kernels_are_compiled_sees_none_that_is_interpreted(tmp_path: Path) -> None:
    y, z = interpreted(tmp_path, ASKING, x=X)
    assert torch.equal(y, X * 2) and torch.equal(z, X * 3)


EARLY = """
from triton.language.extra.cuda import gdc_wait


@triton.jit
def doubled(X, Y):
    i = tl.arange(0, 64)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(Y + i, tl.load(X + i) * 2)


@triton.jit
def more(Y):
    i = tl.arange(0, 64)
    WAIT
    tl.store(Y + i, tl.load(Y + i) + 1)


def kernel(x):
    y = torch.empty(64, device=x.device)
    doubled[(1,)](x, y)
    more[(1,)](y, launch_pdl=True)
    return y
"""
ASSEMBLY = 'tl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'


@pytest.mark.parametrize("wait", ["gdc_wait()", ASSEMBLY], ids=["function", "instruction"])
def test_a_launch_that_may_begin_early_begins_in_its_turn(tmp_path: Path, wait: str) -> None:
    (y,) = interpreted(tmp_path, EARLY.replace("WAIT", wait), x=X)
    assert torch.equal(y, X.reshape(-1)[:64] * 2 + 1)
