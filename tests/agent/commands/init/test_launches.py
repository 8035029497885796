"""`init FILE -- PROGRAM` where the program itself launches the kernel: the launcher is made of what was launched."""

from pathlib import Path

import pytest

from tests.agent.command_line import PYTEST, Done, pgo

HEAD = "import pytest\nimport torch\nimport triton\nimport triton.language as tl\n\n\n"
FIRST = """@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # each block its own part
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


size = 98432
x = torch.rand(size, device="cuda")
y = torch.rand(size, device="cuda")
output = torch.empty_like(x)
n_elements = output.numel()
grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK"]),)
kernel[grid](x, y, output, n_elements, BLOCK=1024)
expected = x + y
print(f"The largest difference is {torch.max(torch.abs(expected - output))}")
print(triton.testing.do_bench(lambda: kernel[grid](x, y, output, n_elements, BLOCK=1024)))
"""
TEST = """@triton.jit
def softmax(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, i < n, float("-inf"))
    e = tl.exp(x - tl.max(x))
    tl.store(out_ptr + row * stride + i, e / tl.sum(e), i < n)


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, i < n), i < n)


@pytest.mark.parametrize("rows,cols,dtype,warps", [(1024, 512, torch.float32, 4), (4096, 1000, torch.float32, 8)])
def test_softmax(rows, cols, dtype, warps):
    x = torch.randn((rows, cols), device="cuda", dtype=dtype)
    out = torch.empty((rows, cols), device="cuda", dtype=dtype)
    BLOCK = triton.next_power_of_2(cols)
    softmax[(rows,)](x, out, x.stride(0), cols, BLOCK=BLOCK, num_warps=warps)
    double[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), BLOCK=1024)
    assert (out - 2 * torch.softmax(x, dim=1)).abs().max() < 1e-5
"""

IN_PLACE = """@triton.jit
def halve(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, i < n) / 2, i < n)


x = torch.randn(1 << 20, device="cuda")
before = x / 2
halve[(triton.cdiv(x.numel(), 512),)](x, x.numel(), BLOCK=512)
torch.testing.assert_close(x, EXPECTED)
"""


def targeted(folder: Path, text: str, *program: str) -> tuple[str, Done]:
    (folder / "mine.py").write_text(HEAD + text)
    done = pgo("init", "mine.py", "-o", "t.py", "--", *program, "mine.py", cwd=folder)
    return (folder / "t.py").read_text() if done.code == 0 else "", done


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Done, Path]:
    folder = tmp_path_factory.mktemp("first")
    return *targeted(folder, FIRST, "python"), folder


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Done]:
    return targeted(tmp_path_factory.mktemp("tested"), TEST, *PYTEST)


def test_a_script_that_launches_its_kernel_at_top_level_becomes_a_whole_target(first: tuple[str, Done, Path]) -> None:
    text, done, _ = first
    assert "launch_kernel: one call, kernels kernel" in done.out and "0 lines to write" in done.out, done.out + done.err
    launcher = text[text.index("def launch_kernel(x, y)") : text.index("def kernel(x, y)")]
    assert "output = torch.empty_like(x)" in launcher and "triton.cdiv(n_elements, meta['BLOCK'])" in launcher
    assert "98432" not in launcher and "rand" not in launcher
    assert "# Taken from mine.py, sha256 " not in text, "its only function has another name there"


def test_a_kernel_that_is_called_kernel_gets_another_name_and_keeps_its_comments(first: tuple[str, Done, Path]) -> None:
    assert "def their_kernel(x_ptr" in first[0] and "    # each block its own part\n" in first[0]


def test_a_printed_difference_is_a_check(first: tuple[str, Done, Path]) -> None:
    text = first[0]
    assert "expected = x + y\n    return expected" in text[text.index("def reference(x, y)") :]


@pytest.mark.slow
def test_the_target_of_a_script_is_checked_and_right(first: tuple[str, Done, Path]) -> None:
    done = pgo("init", "--check", "t.py", cwd=first[2], seconds=300)
    assert done.code == 0, done.out + done.err


def test_launches_of_one_test_are_one_launcher_and_its_parameters_are_cases(tested: tuple[str, Done]) -> None:
    text, done = tested
    assert "launch_softmax: 2 calls, kernels softmax, double" in done.out, done.out + done.err
    launcher = text[text.index("def launch_softmax(x, warps)") : text.index("def kernel(x, warps)")]
    assert "rows = x.shape[0]\n    cols = x.shape[1]\n" in launcher
    assert launcher.index("softmax[") < launcher.index("double[") < launcher.index("return out")
    assert text.count("# Taken from mine.py, sha256 ") == 1
    assert "dict(rows=4096, cols=1000, warps=8" in text and "dict(rows=1024, cols=512, warps=4" in text


def test_a_number_that_chooses_how_to_launch_is_no_size(tested: tuple[str, Done]) -> None:
    assert "double[triton.cdiv(out.numel(), 1024),](out, out.numel(), BLOCK=1024)" in tested[0]
    assert "2 * torch.softmax(x, dim=1)" in tested[0]


def test_what_a_kernel_changes_in_place_is_compared_with_what_was_computed_before_the_launch(tmp_path: Path) -> None:
    text, done = targeted(tmp_path, IN_PLACE.replace("EXPECTED", "before"), "python")
    assert text[text.index("def bytes_moved") :].count("itemsize") == 2, "it is read and written"
    assert 'IN_PLACE = ("x",)' in text and "before = x / 2\n    return before" in text, done.out + done.err


def test_what_is_computed_of_it_after_the_launch_is_no_reference(tmp_path: Path) -> None:
    _, done = targeted(tmp_path, IN_PLACE.replace("EXPECTED", "x * 1.5"), "python")
    assert "1 lines to write" in done.out, done.out + done.err


REPEATED = """@triton.jit
def copy(x_ptr, i_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + tl.load(i_ptr + i, i < n, 0), i < n), i < n)


x = torch.randn(64, device="cuda")
rows = torch.arange(3).repeat_interleave(torch.tensor([30, 2, 8], pin_memory=True)).to("cuda")
assert rows.shape == (40,)
out = torch.empty(40, device="cuda")
copy[(1,)](x, rows, out, out.numel(), BLOCK=64)
assert torch.equal(out, x[rows])
"""


def test_elements_that_are_repeated_as_often_as_written_numbers_say_are_counted(tmp_path: Path) -> None:
    text, done = targeted(tmp_path, REPEATED, "python")
    assert "0 lines to write" in done.out and "return x[rows]" in text, done.out + done.err


MASKED = """@triton.jit
def total(x_ptr, i_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    own = tl.load(i_ptr + i, i < n, -1) == tl.program_id(0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.where(own, tl.load(x_ptr + i, i < n, 0.0), 0.0)))


def totals(x, groups, count):
    return torch.stack([x[groups == g].sum() if (groups == g).any() else x.new_zeros(()) for g in range(count)])


x = torch.randn(200, device="cuda")
groups = torch.randint(0, 5, (200,), device="cuda")
out = torch.empty(5, device="cuda")
total[(5,)](x, groups, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
torch.testing.assert_close(out, totals(x, groups, 5))
"""


def test_a_reference_that_picks_elements_by_a_mask_is_followed(tmp_path: Path) -> None:
    text, done = targeted(tmp_path, MASKED, "python")
    assert "0 lines to write" in done.out and "return totals(x, groups, 5)" in text, done.out + done.err
    assert "asked which elements hold (mine.py, line 15)" in done.out, "and it is said that none was left out"
