"""judge/numerics.py on CPU tensors: which outputs pass, which do not, and what is said of them.

Not covered: that expect() wipes the memory it frees (nothing can look at freed memory without hooks).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.errors import TargetFault
from pgo_agent.sandbox.judge.results import numerics, sealed
from pgo_agent.sandbox.judge.results.deviation import Error, compare
from pgo_agent.sandbox.judge.results.numerics import Expected
from pgo_agent.sandbox.judge.results.stress_inputs import SCALED, STRESS_INPUTS, StressInput

from tests.sandbox.judge.results.laid_open import laid_open

CPU = torch.device("cpu")


def target(reference: Callable[..., Any], inputs: Callable[..., Any] | None = None) -> ModuleType:
    """A target of just these names. Without `inputs`: x, 4096 numbers in half precision."""
    module = ModuleType("target")
    module.reference = reference  # type: ignore[attr-defined]
    module.inputs = inputs or half  # type: ignore[attr-defined]
    return module


def half(case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    return {"x": torch.randn(4096, generator=generator, device=generator.device).half()}


def wave(x: torch.Tensor) -> torch.Tensor:
    """Loses much in half precision: 100 x has few digits left behind the point."""
    return (x * 100).sin()


def expect(reference: Callable[..., Any], inputs: Callable[..., Any] | None = None) -> Expected:
    return numerics.expect(target(reference, inputs), "case", {}, 1, CPU)


def low_precision(reference: Callable[..., Any] = wave) -> torch.Tensor:
    """What the reference gives in its own precision, on the inputs of `expect`."""
    out: torch.Tensor = reference(**numerics.make_inputs(target(reference), {}, 1, CPU))
    return out


def problem(output: torch.Tensor, expected: Expected, **tolerance: float) -> str:
    return numerics.check([output], expected, tolerance or None).problem


# the bounds -----------------------------------------------------------------------------------------------------------


def test_the_exact_result_passes() -> None:
    expected = expect(wave)
    assert problem(laid_open(expected.outputs[0]).half(), expected) == ""


def test_an_output_that_errs_as_the_low_precision_reference_passes() -> None:
    found = numerics.check([low_precision()], expect(wave))
    assert found.problem == ""
    assert found.errors == expect(wave).low


def test_an_output_that_errs_two_and_a_half_times_as_much_fails() -> None:
    expected = expect(wave)
    exact = laid_open(expected.outputs[0])
    worse = exact + 2.5 * (low_precision().double() - exact)
    assert problem(worse.half(), expected).startswith("output 0: max error")


@pytest.mark.parametrize(
    ("shipped", "candidate", "right"),
    [(2.2, 2.2, True), (2.2, 2.35, True), (2.2, 2.7, False), (1.0, 2.2, False), (4.0, 4.0, False)],
)
def test_what_errs_no_more_than_the_kernel_as_shipped_near_the_bound_is_right(
    shipped: float, candidate: float, right: bool
) -> None:
    expected = expect(wave)
    exact = laid_open(expected.outputs[0])

    def erring(times: float) -> list[torch.Tensor]:
        return [(exact + times * (low_precision().double() - exact)).half()]

    own = numerics.check(erring(shipped), expected)
    assert numerics.check(erring(candidate), expected).problem
    found = numerics.check(erring(candidate), expected, None, own.errors)
    assert (found.problem == "") == right and found.shipped


def test_a_biased_output_fails_by_its_mean_although_its_worst_element_is_fine() -> None:
    expected = expect(wave)
    (low,) = expected.low
    biased = (laid_open(expected.outputs[0]) + 2 * low.mean).half()
    found = numerics.check([biased], expected)
    assert found.errors[0].worst < found.bounds[0][0]
    assert found.problem.startswith("output 0: mean error")


def test_where_plain_pytorch_is_exact_only_rounding_is_forgiven() -> None:
    expected = expect(lambda x: x)
    (low,) = expected.low
    assert (low.worst, low.mean, low.misplaced) == (0.0, 0.0, 0)
    worst, mean = expected.floors[0]
    assert 0 < worst <= 2 * 0.002  # two roundings of numbers below 8 in half precision
    assert 0 < mean < worst
    assert problem(low_precision(lambda x: x), expected) == ""
    assert "max error" in problem(low_precision(lambda x: x) + 0.01, expected)


def test_the_second_output_is_judged_as_the_first() -> None:
    expected = expect(lambda x: (wave(x), x))
    outputs = [low_precision(), low_precision(lambda x: x) + 0.01]
    assert numerics.check(outputs, expected).problem.startswith("output 1: max error")


def test_a_targets_own_ratios_replace_ours() -> None:
    expected = expect(wave)
    exact = laid_open(expected.outputs[0])
    worse = (exact + 2.5 * (low_precision().double() - exact)).half()
    assert problem(worse, expected, max_ratio=3.0, mean_ratio=3.0) == ""
    assert "max error" in problem(low_precision(), expected, max_ratio=0.5)


def test_integers_must_be_exact() -> None:
    expected = expect(lambda x: (x > 0).cumsum(0, dtype=torch.int32))
    right = low_precision(lambda x: (x > 0).cumsum(0, dtype=torch.int32))
    wrong = right.clone()
    wrong[7] += 1
    assert problem(right, expected) == ""
    assert problem(wrong, expected).startswith("output 0: max error 1 above 0")


def test_booleans_must_be_exact() -> None:
    expected = expect(lambda x: x > 0)
    right = low_precision(lambda x: x > 0)
    wrong = right.clone()
    wrong[7] = ~wrong[7]
    assert (problem(right, expected), problem(wrong, expected)) == ("", "output 0: max error 1 above 0")


def test_long_integers_must_be_exact_too() -> None:
    expected = expect(lambda x: torch.full((8,), 1 << 53))
    assert problem(torch.full((8,), (1 << 53) + 1), expected) != ""


# what a norm of the whole output hides --------------------------------------------------------------------------------


def rows_and_columns(case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """With an offset for each column: the last term of every sum, of 1 and a number below 1."""
    a, b = torch.randn((256, 2048), generator=generator), torch.randn((2048, 256), generator=generator)
    a[:, -1], b[-1] = 1.0, 2 * torch.rand(256, generator=generator) - 1
    return {"a": a.bfloat16(), "b": b.bfloat16()}


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    return (a.to(wide) @ b.to(wide)).to(a.dtype)


@pytest.fixture(scope="module")
def multiplied() -> tuple[Expected, dict[str, Any]]:
    """What a product in bfloat16 must be, and its inputs."""
    module = target(product, rows_and_columns)
    return numerics.expect(module, "case", {}, 1, CPU), numerics.make_inputs(module, {}, 1, CPU)


def test_an_offset_left_out_of_the_last_rows_fails_although_the_whole_output_errs_little(
    multiplied: tuple[Expected, dict[str, Any]],
) -> None:
    expected, given = multiplied
    late = given["a"].clone()
    late[-12:, -1] = 0  # 5 % of the rows
    found = numerics.check([product(late, given["b"])], expected)
    (error,), (bound,) = found.errors, found.bounds
    assert error.worst < bound.worst and error.mean < 0.75 * bound.mean
    assert found.problem.startswith("output 0: a few rows err more than all others may: mean error")


@pytest.mark.parametrize("down", [True, False])
def test_digits_cut_off_in_place_of_rounded_fail_although_their_size_is_allowed(
    multiplied: tuple[Expected, dict[str, Any]], down: bool
) -> None:
    """Down, or towards zero."""
    expected, given = multiplied
    bits = (given["a"].float() @ given["b"].float()).view(torch.int32)
    cut = (bits & -65536).view(torch.float32)
    if down:
        cut = torch.where((cut < 0) & (cut != bits.view(torch.float32)), ((bits & -65536) + 65536).view(cut.dtype), cut)
    found = numerics.check([cut.bfloat16()], expected)
    (error,), (bound,) = found.errors, found.bounds
    assert error.worst < bound.worst and error.mean < bound.mean
    assert found.problem.startswith("output 0: errors lean to one side")


def test_sums_in_other_orders_and_roundings_of_halves_away_from_zero_pass(
    multiplied: tuple[Expected, dict[str, Any]],
) -> None:
    expected, given = multiplied
    a, b = given["a"].float(), given["b"].float()
    parts = sum(a[:, k : k + 64] @ b[k : k + 64] for k in range(0, 2048, 64))
    by_hand = ((parts.view(torch.int32) + 32768) & -65536).view(torch.float32)  # type: ignore[union-attr]
    assert [problem(x.bfloat16(), expected) for x in (parts, a.flip(1) @ b.flip(0), by_hand)] == ["", "", ""]  # type: ignore[union-attr]


def test_a_tolerance_that_is_said_to_admit_an_error_does_and_little_less_does_not(
    multiplied: tuple[Expected, dict[str, Any]],
) -> None:
    expected, given = multiplied
    outputs = [product(given["a"] * 1.1, given["b"])]
    found = numerics.check(outputs, expected)
    assert found.problem and found.admits
    assert numerics.check(outputs, expected, dict(found.admits)).problem == ""
    assert numerics.check(outputs, expected, {n: 0.7 * x for n, x in found.admits.items()}).problem


def test_of_a_result_that_plain_pytorch_has_exactly_no_tolerance_admits_an_error() -> None:
    found = numerics.check([low_precision(lambda x: x) + 0.5], expect(lambda x: x))
    assert found.problem and found.admits is None


def test_a_comparison_counts_its_elements_and_an_empty_output_has_none() -> None:
    both = expect(lambda x: (x, x[:0]))
    found = numerics.check([low_precision(lambda x: x), torch.empty(0).half()], both)
    assert (found.problem, found.elements, found.as_json()["elements"]) == ("", 4096, 4096)


# NaN and infinity -----------------------------------------------------------------------------------------------------


def special(x: torch.Tensor) -> torch.Tensor:
    """NaN at 0, infinities at 1 and 2."""
    out = wave(x)
    out[:3] = torch.tensor([math.nan, math.inf, -math.inf], dtype=out.dtype)
    return out


def test_nan_and_infinities_where_the_reference_has_them_pass() -> None:
    found = numerics.check([low_precision(special)], expect(special))
    assert (found.problem, found.errors[0].misplaced) == ("", 0)


@pytest.mark.parametrize(
    ("at", "value"),
    [(9, math.nan), (9, math.inf), (0, 1.0), (0, math.inf), (1, 65504.0), (1, -math.inf), (2, math.nan)],
)
def test_a_misplaced_nan_or_infinity_fails(at: int, value: float) -> None:
    output = low_precision(special)
    output[at] = value
    said = problem(output, expect(special))
    assert said == "output 0: 1 elements are NaN or infinite where the reference is not, or the reverse"


def test_an_output_that_nobody_wrote_fails() -> None:
    assert "4096 elements are NaN" in problem(torch.full((4096,), math.nan).half(), expect(wave))


# shape and type -------------------------------------------------------------------------------------------------------


def test_another_type_is_named() -> None:
    said = problem(low_precision().float(), expect(wave))
    assert said == "outputs are float32[4096], the reference gives float16[4096]"


def test_another_shape_is_named() -> None:
    said = problem(low_precision().reshape(64, 64), expect(wave))
    assert said == "outputs are float16[64, 64], the reference gives float16[4096]"


def test_a_missing_output_is_named() -> None:
    said = problem(low_precision(), expect(lambda x: (wave(x), x.sum())))
    assert said == "outputs are float16[4096], the reference gives float16[4096], float16[]"


def test_an_empty_output_passes_when_the_reference_is_empty() -> None:
    assert problem(torch.empty(0).half(), expect(lambda x: x[:0])) == ""


def test_a_strided_output_is_compared_by_position() -> None:
    expected = expect(lambda x: x.reshape(64, 64))
    transposed = low_precision(lambda x: x.reshape(64, 64)).T.contiguous().T
    assert not transposed.is_contiguous()
    assert (problem(transposed, expected), problem(transposed.T, expected) != "") == ("", True)


# the reference --------------------------------------------------------------------------------------------------------


def raising(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        raise NotImplementedError("no float64 here")
    return x


def numpy_like(x: torch.Tensor) -> Any:
    return x.tolist()


def growing(x: torch.Tensor) -> torch.Tensor:
    return x[:2] if x.dtype == torch.float64 else x


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (raising, "reference() raised NotImplementedError: no float64 here"),
        (numpy_like, "reference() must return a tensor or a tuple of tensors"),
        (lambda x: (x, None), "reference() must return a tensor or a tuple of tensors"),
        (lambda y: y, "reference() raised TypeError"),
        (growing, "case: reference() gives other shapes in float64"),
    ],
)
def test_a_reference_that_misbehaves_is_the_targets_fault(reference: Callable[..., Any], message: str) -> None:
    with pytest.raises(TargetFault) as fault:
        expect(reference)
    assert fault.value.message.startswith(message)
    assert fault.value.hint


@pytest.mark.parametrize("result", [None, 3])
def test_inputs_that_are_no_dict_are_the_targets_fault(result: object) -> None:
    with pytest.raises(TargetFault, match=r"inputs\(\) raised TypeError"):
        expect(wave, lambda case, generator: result)


def test_a_reference_sees_floats_in_float64_and_all_else_as_it_is() -> None:
    seen: list[dict[str, Any]] = []

    def inputs(case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
        return {"x": torch.ones(2).half(), "at": torch.arange(2), "scale": 0.5, "listed": [torch.ones(1).bfloat16()]}

    def reference(x: torch.Tensor, at: torch.Tensor, scale: float, listed: list[torch.Tensor]) -> torch.Tensor:
        seen.append({"x": x.dtype, "at": at.dtype, "scale": scale, "listed": listed[0].dtype})
        return x

    expect(reference, inputs)
    exact = {"x": torch.float64, "at": torch.int64, "scale": 0.5, "listed": torch.float64}
    assert seen == [exact, exact | {"x": torch.float16, "listed": torch.bfloat16}]


def test_a_seed_gives_the_same_inputs_every_time_and_another_seed_others() -> None:
    one, again, other = (numerics.make_inputs(target(wave), {}, seed, CPU)["x"] for seed in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_an_output_in_fp8_can_be_judged() -> None:
    expected = expect(lambda x: x.to(torch.float8_e4m3fn))
    assert problem(low_precision(lambda x: x.to(torch.float8_e4m3fn)), expected) == ""


# compare() ------------------------------------------------------------------------------------------------------------


def test_errors_in_every_chunk_of_a_large_output_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks and a bit: the worst in the last one, a NaN in the first, and a mean over all."""
    monkeypatch.setattr(sealed, "PIECE", chunk := 1 << 12)
    n = 2 * chunk + 3
    x, exact = torch.zeros(n, dtype=torch.float16), torch.zeros(n, dtype=torch.float64)
    x[0], x[chunk - 1], x[chunk], x[-1] = math.nan, 1.0, 2.0, 4.0
    found = compare(x, exact)
    assert (found.worst, found.mean, found.misplaced) == (4.0, 7.0 / (n - 1), 1)


numbers = st.floats(-100, 100, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=50))
def test_compare_gives_the_largest_and_the_mean_difference(rows: list[tuple[float, float]]) -> None:
    a, e = zip(*rows, strict=True)
    found = compare(torch.tensor(a), torch.tensor(e, dtype=torch.float64))
    differences = [abs(x - y) for x, y in rows]
    assert (found.worst, found.misplaced) == (max(differences), 0)
    assert found.mean == pytest.approx(math.fsum(differences) / len(rows), rel=1e-12)


# stress inputs --------------------------------------------------------------------------------------------------------


def integers() -> StressInput:
    return next(s for s in STRESS_INPUTS if s.exact)


def test_a_comparison_names_the_stress_input_of_its_inputs() -> None:
    expected = numerics.expect(target(wave), "case", {}, 1, CPU, SCALED)
    given = numerics.make_inputs(target(wave), {}, 1, CPU, SCALED)
    found = numerics.check([wave(**given)], expected)
    assert (found.problem, found.as_json()["strain"]) == ("", "inputs times 8")
    assert numerics.check([], expected).as_json()["strain"] == "inputs times 8"
    assert numerics.check([low_precision()], expect(wave)).as_json()["strain"] == ""


def test_of_small_integers_an_exact_result_is_demanded_where_plain_pytorch_gives_it() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x.double().to(x.dtype) + x

    module = target(doubled)
    expected = numerics.expect(module, "case", {}, 1, CPU, integers())
    right = doubled(**numerics.make_inputs(module, {}, 1, CPU, integers()))
    wrong = right.clone()
    wrong[7] += 0.0625
    assert (problem(right, expected), problem(wrong, expected)) == ("", "output 0: max error 0.0625 above 0")
    rounded = low_precision(doubled)
    rounded[7] += 2**-9
    assert problem(rounded, expect(doubled)) == "", "of other numbers rounding is forgiven"


def test_where_few_different_results_are_exact_by_chance_the_usual_errors_are_still_forgiven() -> None:
    usual = expect(wave)
    lucky = replace(usual, low=(Error(0.0, 0.0, 0),), floors=((0.0, 1e-9),), stress_input="equal rows")
    found = numerics.forgiving(lucky, usual)
    (low,), (own,) = found.low, usual.low
    assert (low.worst, low.mean, found.floors, found.stress_input) == (own.worst, own.mean, usual.floors, "equal rows")
    assert numerics.forgiving(usual, lucky).floors == usual.floors


def test_a_demand_for_exact_results_is_not_forgiven() -> None:
    def added(x: torch.Tensor) -> torch.Tensor:
        return x + x + 0.1 * (x != x.round())

    module = target(added)
    exact = numerics.expect(module, "case", {}, 1, CPU, integers())
    usual = numerics.expect(module, "case", {}, 1, CPU)
    assert (exact.low[0].worst, exact.floors) == (0.0, ((0.0, 0.0),))
    assert usual.low[0].worst > 0
    assert numerics.forgiving(exact, usual) == exact


def test_a_reference_that_overflows_in_its_own_precision_is_not_reliable() -> None:
    assert expect(wave).reliable
    assert not expect(lambda x: x * 60000).reliable


def test_a_stress_input_that_finds_nothing_to_change_is_the_targets_fault() -> None:
    with pytest.raises(TargetFault, match="inputs\\(\\) holds nothing for wholly masked rows"):
        numerics.make_inputs(target(wave), {}, 1, CPU, STRESS_INPUTS[-1])


def test_looser_ratios_are_a_targets_own_or_ours_multiplied() -> None:
    assert numerics.looser(None, 8.0) == {"max_ratio": 16.0, "mean_ratio": 12.0}
    assert numerics.looser({"max_ratio": 3.0}, 1.0) == {"max_ratio": 3.0, "mean_ratio": 1.5}


def test_under_a_stress_input_an_infinity_may_come_out_as_a_nan_but_never_as_a_number() -> None:
    exact = torch.tensor([float("inf"), float("nan"), 1.0], dtype=torch.float64)
    other = torch.tensor([float("nan"), -float("inf"), 1.0])
    assert compare(other, exact).misplaced == 2
    assert compare(other, exact, kinds=False).misplaced == 0
    assert compare(torch.tensor([0.0, float("nan"), 1.0]), exact, kinds=False).misplaced == 1
