"""judge/arithmetic.py on CPU tensors, by its formula: what fp8 tensor cores err, and which matmuls are theirs.

The figure that the formula must give, 1.3e-4 of 2048 products that are promoted every 128, was measured on an H100.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from pgo_agent.sandbox import target
from pgo_agent.sandbox.fp8_sums import accumulated
from pgo_agent.sandbox.judge.results import fp8_arithmetic, numerics
from pgo_agent.sandbox.judge.results.fp8_arithmetic import TensorCores
from pgo_agent.sandbox.judge.results.numerics import Expected

from tests.conftest import TARGETS
from tests.sandbox.judge.results.laid_open import laid_open

CPU = torch.device("cpu")
CASE, LONG = {"M": 128, "N": 128, "K": 512}, {"M": 64, "N": 64, "K": 2048}
MEASURED = 1.3e-4  # of an H100, relative to the norm of the result


@pytest.fixture(scope="module")
def gemm() -> Iterator[ModuleType]:
    """The fp8 GEMM of the tests, on a device whose tensor cores cut off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fp8_arithmetic, "of", lambda _device, _arch: TensorCores())
        yield target.load(TARGETS / "fp8_gemm.py", "fp8_gemm")


@pytest.fixture(scope="module")
def usual(gemm: ModuleType) -> Expected:
    return expect(gemm)


def expect(module: ModuleType, case: dict[str, Any] = CASE) -> Expected:
    return numerics.expect(module, "case", case, 1, CPU)


def by_tensor_cores(a: Any, b: Any, sa: Any, sb: Any, promoted: int = 128, bits: int = 13) -> Any:
    """What a kernel gives that promotes its sum so often."""
    scale_b = sb.repeat_interleave(128, 0)[: len(b)]
    total = torch.zeros(len(a), len(b))
    for at in range(0, a.shape[1], promoted):
        j = slice(at, at + promoted)
        part = accumulated(a[:, j].float(), b[:, j].float(), bits=bits)
        total += part * sa[:, at // 128, None] * scale_b[None, :, at // 128]
    return total


def given(module: ModuleType, case: dict[str, Any] = CASE) -> dict[str, Any]:
    return numerics.make_inputs(module, case, 1, CPU)


def relative(x: Any, exact: Any) -> float:
    return float((x.double() - exact).norm() / exact.norm())


def test_the_reference_errs_as_much_as_was_measured_on_the_hardware(gemm: ModuleType) -> None:
    expected = expect(gemm, LONG)
    (low,), exact = expected.low, laid_open(expected.outputs[0])
    assert low.mean / float(exact.abs().mean()) == pytest.approx(MEASURED, rel=0.1)
    assert expected.yardstick.startswith("fp8 tensor core accumulation (14 bits")


def test_what_tensor_cores_give_is_right_and_says_by_what_it_was_measured(gemm: ModuleType) -> None:
    expected, inputs = expect(gemm, LONG), given(gemm, LONG)
    out = by_tensor_cores(**inputs)
    found = numerics.check([out], expected)
    assert relative(out, laid_open(expected.outputs[0])) == pytest.approx(MEASURED, rel=0.05)
    assert (found.problem, found.as_json()["yardstick"]) == ("", expected.yardstick)


def test_what_a_cuda_core_gives_is_right_too(gemm: ModuleType, usual: Expected) -> None:
    assert numerics.check([gemm.reference(**given(gemm))], usual).problem == ""


def test_without_such_tensor_cores_the_same_result_is_wrong(gemm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8_arithmetic, "of", lambda _device, _arch: None)
    found = numerics.check([by_tensor_cores(**given(gemm))], expect(gemm))
    assert "max error" in found.problem and not found.yardstick


def never_promoted(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    """Scales first, by the mean of each row, and the whole sum in the tensor cores."""
    mean_a, mean_b = sa.mean(1), sb.mean(1).repeat_interleave(128, 0)[: len(b)]
    left = (a.float() * sa.repeat_interleave(128, 1) / mean_a[:, None]).to(a.dtype)
    right = b.float() * sb.repeat_interleave(128, 0)[: len(b)].repeat_interleave(128, 1) / mean_b[:, None]
    return accumulated(left.float(), right.to(b.dtype).float()) * mean_a[:, None] * mean_b[None, :]


WRONG: dict[str, Callable[..., Any]] = {
    "the scales of A of the block before": lambda a, b, sa, sb: by_tensor_cores(a, b, sa.roll(1, 1), sb),
    "the scales of B of the block before": lambda a, b, sa, sb: by_tensor_cores(a, b, sa, sb.roll(1, 1)),
    "one scale for two blocks": lambda a, b, sa, sb: by_tensor_cores(a, b, sa, sb, promoted=256),
    "two bits less": lambda a, b, sa, sb: by_tensor_cores(a, b, sa, sb, bits=11),
    "no promotion": never_promoted,
    "a result in bfloat16": lambda a, b, sa, sb: by_tensor_cores(a, b, sa, sb).bfloat16().float(),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_errs_more_than_the_hardware_is_wrong(gemm: ModuleType, usual: Expected, name: str) -> None:
    assert numerics.check([WRONG[name](**given(gemm))], usual).problem


def test_a_sum_that_is_never_promoted_errs_six_times_as_much(gemm: ModuleType) -> None:
    """Where scales are all the same the fp8 numbers are, too: nothing but the promotion is left to tell them apart."""
    inputs = given(gemm, LONG)
    a, b = inputs["a"].float(), inputs["b"].float()
    exact = a.double() @ b.double().T
    often = sum(accumulated(a[:, k : k + 128], b[:, k : k + 128]) for k in range(0, 2048, 128))
    assert relative(accumulated(a, b), exact) > 6 * relative(often, exact)


# which matmuls of a reference are the tensor cores' -------------------------------------------------------------------


def in_a_loop(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    wide, scale_b = torch.promote_types(sa.dtype, torch.float32), sb.repeat_interleave(128, 0)[: len(b)]
    return sum(
        torch.nn.functional.linear(a[:, 128 * j : 128 * j + 128].to(wide), b[:, 128 * j : 128 * j + 128].to(wide))
        * sa[:, j, None]
        * scale_b[None, :, j]
        for j in range(sa.shape[1])
    )


def by_einsum(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    wide, scale_b = torch.promote_types(sa.dtype, torch.float32), sb.repeat_interleave(128, 0)[: len(b)]
    left = a.to(wide).unflatten(1, (-1, 128)) * sa[..., None]
    return torch.einsum("mgk,ngk->mn", left, b.to(wide).unflatten(1, (-1, 128)) * scale_b[..., None])


def of_batches(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    """Two halves of the rows as a batch, in place."""
    wide, scale_b = torch.promote_types(sa.dtype, torch.float32), sb.repeat_interleave(128, 0)[: len(b)]
    left = a.to(wide).unflatten(1, (-1, 128))
    left *= sa[..., None]
    right = (b.to(wide).unflatten(1, (-1, 128)) * scale_b[..., None]).flatten(1).T
    return torch.bmm(left.flatten(1).unflatten(0, (2, -1)), right.expand(2, -1, -1)).flatten(0, 1)


@pytest.mark.parametrize("reference", [in_a_loop, by_einsum, of_batches])
def test_however_a_reference_is_written_its_matmuls_of_fp8_are_found(
    gemm: ModuleType, usual: Expected, monkeypatch: pytest.MonkeyPatch, reference: Callable[..., Any]
) -> None:
    monkeypatch.setattr(gemm, "reference", reference)
    other = expect(gemm)
    assert other.yardstick and other.low[0].mean == pytest.approx(usual.low[0].mean, rel=1e-3)


def test_matmuls_of_other_numbers_stay_as_they_are() -> None:
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    fp8 = x.to(torch.float8_e4m3fn)
    plain = (x @ x.T, fp8.float() @ x.T, (fp8.float() + 1) @ fp8.float().T)
    with TensorCores() as cores:
        within = (x @ x.T, fp8.float() @ x.T, (fp8.float() + 1) @ fp8.float().T)
    assert all(torch.equal(p, w) for p, w in zip(plain, within, strict=True)) and not cores.summary


def test_numbers_that_were_written_over_are_not_taken_for_fp8() -> None:
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).to(torch.float8_e4m3fn)
    with TensorCores() as cores:
        wide = x.float()
        wide[:, :4] = 0.1  # by a view of it
        out = wide @ x.float().T
    assert torch.equal(out, wide @ x.float().T) and not cores.summary
