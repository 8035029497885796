"""`init FILE -- PROGRAM` and `--call`: a user's own test or line is run in the box, and becomes a target.

The kernels are launched in the ways that files have them: by a custom op, an autograd Function, a method, a script.
"""

from pathlib import Path

import pytest
import torch
from pgo_agent.sandbox import target

from tests.agent.command_line import PYTEST, Done, pgo

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
NORM = """@triton.jit
def _forward(X, W, Y, R, N, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, i < N, 0.0).to(tl.float32)
    r = 1 / tl.sqrt(tl.sum(x * x) / N + eps)
    tl.store(R + row, r)
    tl.store(Y + row * N + i, x * r * tl.load(W + i, i < N, 0.0), i < N)


@triton.jit
def _backward(DY, X, W, R, DX, N, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, i < N, 0.0).to(tl.float32)
    m = tl.load(DY + row * N + i, i < N, 0.0).to(tl.float32) * tl.load(W + i, i < N, 0.0)
    r = tl.load(R + row)
    tl.store(DX + row * N + i, r * (m - x * r * (tl.sum(m * x * r) / N)), i < N)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps):
        y, r = torch.empty_like(x), torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
        _forward[(x.shape[0],)](x, w, y, r, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(x, w, r)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, r = ctx.saved_tensors
        dx = torch.empty_like(x)
        _backward[(x.shape[0],)](dy, x, w, r, dx, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return dx, None, None


def test_norm():
    x = torch.randn(512, 300, device="cuda", requires_grad=True)
    w = torch.randn(300, device="cuda")
    y = Norm.apply(x, w, 1e-6)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (300,), w, 1e-6), rtol=1e-3, atol=1e-3)
    (y * 2).sum().backward()
    assert x.grad.abs().max().item() < 100
"""
ROWS = """@triton.jit
def _rows(W, I, O, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(I + tl.program_id(0))
    tl.store(O + tl.program_id(0) * n + at, tl.load(W + row * n + at, at < n, 0.0), at < n)


class Table:
    def __init__(self, w):
        self.w = w

    def __call__(self, i, out):
        rows(self.w, i, out)


def rows(w, i, out):
    _rows[(i.numel(),)](w, i, out, w.shape[1], BLOCK=triton.next_power_of_2(w.shape[1]))
"""
ROWS_TEST = """import pytest
import torch
from rows import Table


@pytest.mark.parametrize("n", [64, 100])
def test_rows(n):
    w = torch.randn(500, n, device="cuda", dtype=torch.float16)
    i = torch.randint(0, 500, (300,), device="cuda")
    out = torch.empty(300, n, device="cuda", dtype=torch.float16)
    Table(w)(i, out)
    expected = w[i]
    torch.testing.assert_close(out, expected)
"""
SCALE = """@triton.jit
def _scale(X, Y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, i < n) * factor, i < n)


@torch.library.triton_op("tests_capture::scale", mutates_args={})
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(_scale)[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), factor, BLOCK=1024)
    return y


if __name__ == "__main__":
    for size in (1 << 20, 1 << 22):
        x = torch.rand(size, device="cuda", dtype=torch.bfloat16)
        assert torch.allclose(scale(x, 3.0), x * 3.0)
        print(triton.testing.do_bench(lambda: scale(x, 3.0)))
"""

PUT = (
    ROWS.replace("O + tl.program_id(0)", "O + row").replace("W + row", "W + tl.program_id(0)")
    + """

if __name__ == "__main__":
    w = torch.randn(300, 64, device="cuda")
    i = torch.randperm(500, device="cuda")[:300]
    out = torch.randn(500, 64, device="cuda")
    expected = out.clone()
    expected[i] = w
    rows(w, i, out)
    torch.testing.assert_close(out, expected)
"""
)
SHIFTED = """@triton.jit
def _total(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(Y, tl.sum(tl.load(X + i, i < n, 0.0)))


def shifted_total(xs):
    ((x,),) = xs
    x -= 1.0
    y = torch.zeros(1, device=x.device)
    _total[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


if __name__ == "__main__":
    x = torch.randn(1 << 16, device="cuda")
    kept = x.clone()
    torch.testing.assert_close(shifted_total([[x]]), (kept - 1.0).sum().reshape(1))
"""


def captured(folder: Path, name: str, text: str, *program: str) -> Done:
    (folder / f"{name}.py").write_text(HEAD + text)
    return pgo("init", f"{name}.py", *program, cwd=folder)


def compares(file: Path, case: dict[str, object]) -> bool:
    """Whether the reference of a target gives what it gives for the same inputs, with outputs of some size."""
    module = target.load(file, f"captured_{file.stem}")
    out = module.reference(**module.inputs(case, torch.Generator().manual_seed(1)))
    listed = out if isinstance(out, tuple) else (out,)
    return all(t.numel() and bool(t.isfinite().all()) for t in listed)


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("norm")
    return folder, captured(folder, "norm", NORM, "--", *PYTEST, "norm.py")


@pytest.mark.long
def test_an_autograd_function_becomes_one_target_of_both_its_kernels(norm: tuple[Path, Done]) -> None:
    folder, done = norm
    assert done.code == 0, done.err
    assert "kernels _forward, _backward" in done.out and "0 lines to write" in done.out
    text = (folder / "norm_target.py").read_text()
    assert "Norm.forward(ctx, x, w, eps)" in text and "Norm.backward(ctx, dy)" in text


@pytest.mark.long
def test_its_reference_is_what_the_test_compares_with_and_its_gradient(norm: tuple[Path, Done]) -> None:
    text = (norm[0] / "norm_target.py").read_text()
    assert "rms_norm(x, (x.shape[1],), w, eps)" in text, "for sizes of any case"
    assert "torch.autograd.grad(out, (x,), (dy,))" in text
    assert compares(norm[0] / "norm_target.py", {"M": 5, "N": 7, "dtype": "float32"})


@pytest.mark.slow
def test_the_target_is_checked_and_right(norm: tuple[Path, Done]) -> None:
    done = pgo("init", "--check", "norm_target.py", cwd=norm[0], seconds=300)
    assert done.code == 0, done.out + done.err
    assert "2 kernels" in done.out


@pytest.mark.long
def test_the_tolerance_of_the_users_own_check_is_shown(norm: tuple[Path, Done]) -> None:
    assert "own check allows rtol=0.001, atol=0.001" in (norm[0] / "norm_target.py").read_text()


@pytest.mark.long
def test_a_function_behind_a_method_in_another_file_is_found_and_each_call_is_a_case(tmp_path: Path) -> None:
    (tmp_path / "test_rows.py").write_text(ROWS_TEST)
    done = captured(tmp_path, "rows", ROWS, "--", *PYTEST, "test_rows.py")
    assert done.code == 0 and "rows: 2 calls" in done.out and "0 lines to write" in done.out, done.out + done.err
    text = (tmp_path / "rows_target.py").read_text()
    assert 'IN_PLACE = ("out",)' in text and "clone" not in text and "return expected" in text
    assert text[text.index("def bytes_moved") :].count("itemsize") == 3, "the result is written, and not read"
    assert 'integers(0, case["M"], (case["K"],), torch.int64)' in text, "whole numbers as the test drew them"
    assert "dict(M=500, N=100, K=300" in text and "dict(M=500, N=64, K=300" in text
    assert compares(tmp_path / "rows_target.py", {"M": 9, "N": 4, "K": 6, "dtype": "float16"})
    assert (tmp_path / "rows.py").read_text() == HEAD + ROWS


@pytest.mark.long
def test_a_script_that_launches_through_a_custom_op_and_times_it(tmp_path: Path) -> None:
    done = captured(tmp_path, "scale", SCALE, "--", "python", "scale.py")
    assert done.code == 0 and "scale: 2 calls" in done.out, done.out + done.err
    text = (tmp_path / "scale_target.py").read_text()
    assert "return x * factor" in text and '"4194304": dict(M=4194304, dtype="bfloat16")' in text


def test_a_line_is_enough_and_the_reference_is_then_to_write(tmp_path: Path) -> None:
    tensors = ("torch.randn(8, 32)", "torch.zeros(4, dtype=torch.int64)", "torch.empty(4, 32)")
    done = captured(tmp_path, "rows", ROWS, "--call", f"rows({', '.join(f'{t}.cuda()' for t in tensors)})")
    assert done.code == 0 and "1 lines to write" in done.out, done.out + done.err


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (("--call", "3 + 4"), "called no function of rows.py that launches kernels"),
        (
            ("--call", "rows(1)"),
            "ended before it called a function of rows.py that launches kernels: TypeError: rows()",
        ),
        (("--call", "import notthere"), "install notthere for the interpreter that --python names"),
        (("--", "make", "test"), "this is run by no Python: make test"),
    ],
)
def test_a_program_that_shows_nothing_is_refused_with_the_reason(
    tmp_path: Path, program: tuple[str, ...], why: str
) -> None:
    done = captured(tmp_path, "rows", ROWS, *program)
    assert done.code == 2 and why in done.err, done.err
    assert not (tmp_path / "rows_target.py").exists()


def test_the_program_sees_the_repository_and_nothing_else_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("kept")
    peek = "import os\nassert not os.path.exists('secret.txt')\nopen('/etc/new', 'w')\n"
    (tmp_path / "peek.py").write_text(peek)
    done = captured(tmp_path, "rows", ROWS, "--", "python", "peek.py")
    assert done.code == 2 and "peek.py, line 3" in done.err, done.err


KERNELS = """
import triton
import triton.language as tl


@triton.jit
def _turned(X, A, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, i < n, 0.0) * tl.load(A + i % 64), i < n)
"""
OPS = """
import torch
from kernels import _turned


def _launch(x, angles, y):
    _turned[(triton_cdiv(x.numel(), 256),)](x, angles, y, x.numel(), BLOCK=256)


def triton_cdiv(a, b):
    return -(-a // b)


def turned(x, angles):
    y = torch.empty_like(x)
    _launch(x, angles, y)
    return y, None
"""
PROGRAM = """
import torch
from ops import turned


def reference(x, angles):
    return (x.float().view(-1, 64) * angles).view_as(x)


rows = 96
x = torch.randn(rows, 128, device="cuda", dtype=torch.bfloat16)
angles = (torch.arange(64, device="cuda") / 64).cos()
kept = x.clone()
results = turned(kept * 1.0, angles)
for got, want in zip(results[:1], [reference(x, angles).to(torch.bfloat16)]):
    torch.testing.assert_close(got.float(), want.float(), rtol=1e-2, atol=1e-2)
"""


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Done]:
    """The target of a kernel whose launcher lies in another file, and whose results a program checks."""
    folder = tmp_path_factory.mktemp("spread")
    for name, text in (("kernels", KERNELS), ("ops", OPS), ("program", PROGRAM)):
        (folder / f"{name}.py").write_text(text)
    done = pgo("init", "kernels.py", "-o", "t.py", "--", "python", "program.py", cwd=folder)
    return (folder / "t.py").read_text() if done.code == 0 else "", done


@pytest.mark.long
def test_the_launcher_whose_results_are_checked_is_found_in_another_file(spread: tuple[str, Done]) -> None:
    text, done = spread
    assert "turned: one call, kernels _turned" in done.out, done.out + done.err
    assert "0 lines to write" in done.out
    assert "@triton.jit\ndef _turned" in text and "from kernels import" not in text, "with the kernel in it"


@pytest.mark.long
def test_a_check_of_a_cast_in_a_loop_gives_the_reference_of_the_copied_argument(spread: tuple[str, Done]) -> None:
    text, _ = spread
    assert "their_reference(x, angles)" in text and "cast(x, torch.float32)" in text
    assert "randn" not in text[text.index("\ndef reference(x, angles)") : text.index("\ndef inputs")]


@pytest.mark.long
def test_inputs_that_are_computed_are_made_as_the_program_makes_them(spread: tuple[str, Done]) -> None:
    text, _ = spread
    inside = text[text.index("\ndef inputs") : text.index("\nCASES")]
    assert "angles = (torch.arange(case[" in inside and ".cos()" in inside
    assert "device=generator.device" in inside and "cuda" not in inside


def test_of_a_tensor_that_is_written_in_part_no_more_bytes_move_than_are_put_there(tmp_path: Path) -> None:
    """More would be a floor that the kernel itself is below."""
    done = captured(tmp_path, "put", PUT, "--", "python", "put.py")
    assert done.code == 0, done.err
    text = (tmp_path / "put_target.py").read_text()
    assert 'IN_PLACE = ("out",)' in text and "dict(M=300, N=64, K=500" in text, text
    assert text[text.index("def bytes_moved") :].count('case["K"]') == 0
    assert compares(tmp_path / "put_target.py", {"M": 9, "N": 4, "K": 12, "dtype": "float32"})


def test_a_list_that_a_launcher_changes_by_torch_is_named_and_atomic_sums_of_floats_may_differ(
    tmp_path: Path,
) -> None:
    done = captured(tmp_path, "shifted", SHIFTED, "--", "python", "shifted.py")
    text = (tmp_path / "shifted_target.py").read_text()
    assert done.code == 0, done.err
    assert 'IN_PLACE = ("xs",)' in text and "clone" not in text
    assert "NONDETERMINISTIC = True" in text


SUMMED = """import torch
import triton
import triton.language as tl


@triton.jit
def _summed(X, Y, T, N, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, i < N, 0.0)
    tl.store(Y + row * N + i, 2 * x, i < N)
    tl.store(T + row, tl.sum(x))


def summed(x):
    y, total = torch.empty_like(x), x.new_empty(x.shape[0])
    _summed[(x.shape[0],)](x, y, total, x.shape[1], triton.next_power_of_2(x.shape[1]))
    return total, x, y


x = torch.randn(300, 100, device="cuda")
_, _, y = summed(x)
torch.testing.assert_close(y, 2 * x)
"""


def test_a_result_that_the_program_compares_with_nothing_is_to_write_and_may_not_be_left_out(tmp_path: Path) -> None:
    done = captured(tmp_path, "summed", SUMMED, "--", "python", "summed.py")
    text = (tmp_path / "summed_target.py").read_text()
    assert done.code == 0 and "1 lines to write" in done.out, done.out + done.err
    assert "return results[0], results[2]" in text and "result 0, which the program compares with nothing" in text
    assert "return None, " in text
