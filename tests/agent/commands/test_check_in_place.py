"""`check` of kernels that work in place: what a caller would not get, or would get several times, is refused."""

from pathlib import Path

import pytest

from tests.agent.command_line import Done, pgo
from tests.conftest import TARGETS

MOMENTUM = (TARGETS / "momentum.py").read_text()
STEP = "    step(p, g, exp_avg, lr)\n"
CONFIGS = '[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 1024})]'


def tuned(more: str = "") -> str:
    text = MOMENTUM.replace("@triton.jit", f'@triton.autotune(configs={CONFIGS}, key=["n"]{more})\n@triton.jit')
    grid = 'lambda meta: (triton.cdiv(p.numel(), meta["BLOCK"]),)'
    return text.replace(", BLOCK=1024)", ")").replace("(triton.cdiv(p.numel(), 1024),)", grid)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in place")
    (folder / "momentum.py").write_text(MOMENTUM)
    (folder / "sums.py").write_text(SUMS)
    return folder


def checked(place: Path, text: str, target: str = "momentum.py") -> Done:
    assert text not in (MOMENTUM, SUMS)
    (place / "new.py").write_text(text)
    return pgo("check", "new.py", "--target", target, "--judge", "cpu", cwd=place)


def test_a_step_on_a_copy_that_is_returned_is_refused(place: Path) -> None:
    done = checked(place, MOMENTUM.replace(STEP, f"    p, exp_avg = p.clone(), exp_avg.clone()\n{STEP}"))
    assert done.code == 1 and "the kernel as shipped changes p in place; so must a candidate" in done.out, done.out


def test_an_autotuner_that_would_do_the_step_with_every_configuration_is_refused(place: Path) -> None:
    done = checked(place, tuned())
    assert done.code == 1 and "_momentum is autotuned and changes p in place" in " ".join(done.out.split()), done.out


@pytest.mark.slow
def test_an_autotuner_that_restores_what_the_kernel_reads_and_writes_is_checked(place: Path) -> None:
    done = checked(place, tuned(', restore_value=["P"]'))
    assert done.code == 1 and "_momentum is autotuned and changes exp_avg in place" in " ".join(done.out.split())
    done = checked(place, tuned(', restore_value=["P", "M"]'))
    assert done.code == 0 and done.out.startswith("checked: new.py is right"), done.out


SUMS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _sums(X, O, M, N, ROWS: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, 64)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    x = tl.load(X + rows[:, None] * N + columns[None, :], inside, 0.0)
    tl.atomic_add(O + columns, tl.sum(x, 0), columns < N)


def kernel(x):
    o = torch.zeros(x.shape[1], device=x.device)
    _sums[(triton.cdiv(x.shape[0], 64),)](x, o, *x.shape, ROWS=64)
    return o


def reference(x):
    return x.sum(0)


def inputs(case, generator):
    return {"x": torch.randn(case["m"], 64, generator=generator, device=generator.device)}


NONDETERMINISTIC = True
TOLERANCE = {"max_ratio": 8.0, "mean_ratio": 8.0}
CASES, SMALL = {"m": dict(m=8192)}, {"s": dict(m=200)}
HELD_OUT = {"h": dict(m=129)}


def flops(case):
    return case["m"] * 64


def bytes_moved(case):
    return case["m"] * 256
"""
SEVERAL = '[triton.Config({"ROWS": 32}), triton.Config({"ROWS": 64})], key=["M"]'


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [
        f"@triton.autotune({SEVERAL})\n@triton.jit",
        f"from triton import autotune as tuned\n\n\n@tuned({SEVERAL}, pre_hook=lambda *a, **k: None)\n@triton.jit",
    ],
    ids=["as usual", "by another name, with a hook that does nothing"],
)
def test_an_autotuner_that_would_add_to_the_same_zeros_with_every_configuration_is_refused(
    place: Path, how: str
) -> None:
    grid = 'lambda meta: (triton.cdiv(x.shape[0], meta["ROWS"]),)'
    text = SUMS.replace("@triton.jit", how).replace("(triton.cdiv(x.shape[0], 64),)", grid).replace(", ROWS=64)", ")")
    done = checked(place, text, "sums.py")
    said = "_sums is autotuned and changes what aten.zeros.default wrote before"
    assert done.code == 1 and said in " ".join(done.out.split()), done.out
