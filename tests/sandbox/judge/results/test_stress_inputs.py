"""judge/stress_inputs.py, and what the judges do with it: which inputs a stress input makes, and whose failure counts.

What both judges share is tested on CPU tensors; plans that launch nothing stand for kernels in the GPU judge's stages.
"""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pgo_agent.sandbox import target
from pgo_agent.sandbox.bundle.schema import Op, Plan, Storage, Tensor
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.results import checks, numerics, stress_inputs, stress_runs
from pgo_agent.sandbox.judge.results.checks import Pick, TargetSession
from pgo_agent.sandbox.judge.results.stress_inputs import STRESS_INPUTS, Layout, StressInput
from pgo_agent.sandbox.judge.results.stress_runs import StressOutcome
from pgo_agent.sandbox.judge.timing.measured_peaks import Peaks

CPU = torch.device("cpu")
FA_BWD = Path(__file__).parents[4] / "kernels" / "fa_bwd.py"
NAMED = {s.name: s for s in STRESS_INPUTS}
Inputs = Callable[[torch.Generator], dict[str, Any]]


def drawn(generator: torch.Generator) -> dict[str, Any]:
    return {"x": torch.randn(8, 512, generator=generator), "y": torch.rand(8, 512, generator=generator).half()}


def made(inputs: Inputs, stress_input: StressInput | None, seed: int = 7) -> dict[str, Any]:
    if stress_input is None:
        return inputs(torch.Generator().manual_seed(seed))
    given = tried(inputs, stress_input, seed)
    assert given is not None
    return given


def tried(inputs: Inputs, stress_input: StressInput, seed: int = 7) -> dict[str, Any] | None:
    def layout() -> Layout:
        return stress_inputs.layout(inputs, CPU)

    return stress_inputs.make(inputs, lambda: torch.Generator().manual_seed(seed), stress_input, layout)


# what a stress input makes --------------------------------------------------------------------------------------------


def test_scaled_inputs_are_the_same_numbers_times_eight() -> None:
    plain, under_stress = made(drawn, None), made(drawn, NAMED["inputs times 8"])
    assert torch.equal(under_stress["x"], 8 * plain["x"])
    assert torch.equal(under_stress["y"], 8 * plain["y"])


def test_large_numbers_are_beyond_half_precision_and_do_not_count_where_the_type_ends_there() -> None:
    large = NAMED["large numbers"]
    assert float(made(drawn, large)["x"].abs().median()) > torch.finfo(torch.float16).max
    assert tried(drawn, large.of_draw(1)) is None  # y is half

    def masked(generator: torch.Generator) -> dict[str, Any]:
        return {"x": torch.randn(8, 512, generator=generator), "bias": torch.full((8,), -math.inf)}

    assert float(made(masked, large)["x"].abs().max()) > torch.finfo(torch.float16).max  # that was infinite before


def test_outliers_are_few_and_all_else_stays_as_it_is() -> None:
    plain, under_stress = made(drawn, None), made(drawn, NAMED["outliers"])
    changed = under_stress["x"] != plain["x"]
    assert 1 <= int(changed.sum()) <= 4  # of 4096 elements; the same place may be drawn twice
    assert torch.equal(under_stress["x"][changed].abs(), 64 * plain["x"][changed].abs().clamp_min(1.0))
    assert torch.equal(under_stress["x"].sign(), plain["x"].sign())


def test_equal_rows_are_all_like_the_first() -> None:
    plain, under_stress = made(drawn, None), made(drawn, NAMED["equal rows"])
    assert torch.equal(under_stress["x"], plain["x"][:1].expand(8, 512))


def test_small_integers_are_integers_and_no_negative_zeros() -> None:
    x = made(drawn, NAMED["small integers"])["x"]
    assert set(x.unique().tolist()) == set(map(float, range(-4, 5)))
    assert not torch.signbit(x[x == 0]).any()


@pytest.mark.parametrize(
    ("name", "first", "last", "is_it"),
    [("a NaN", 1, 0, torch.isnan), ("an infinity", 0, 1, torch.isposinf)],
)
def test_one_special_value_stands_in_the_last_row_of_one_draw(
    name: str, first: int, last: int, is_it: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    given = made(drawn, NAMED[name])
    assert (int(is_it(given["x"]).sum()), int(is_it(given["y"]).sum())) == (first, last)
    assert int(is_it(given["x" if first else "y"][-1]).sum()) == 1
    other = made(drawn, NAMED[name].as_turn(1))
    assert (int(is_it(other["x"]).sum()), int(is_it(other["y"]).sum())) == (last, first)
    again = made(drawn, NAMED[name].as_turn(2))
    assert (int(is_it(again["x"]).sum()), int(is_it(again["y"]).sum())) == (first, last)


def test_the_place_of_a_special_value_follows_from_the_secret_seed() -> None:
    places = [int(made(drawn, NAMED["a NaN"], seed)["x"].isnan().nonzero()[0, 1]) for seed in (1, 1, 2, 3, 4)]
    assert places[0] == places[1]
    assert len(set(places)) > 1


def test_rows_are_masked_wholly_in_masks_of_either_meaning() -> None:
    def inputs(generator: torch.Generator) -> dict[str, Any]:
        hidden = torch.rand(6, 32, generator=generator) < 0.5
        return {"keep": ~hidden, "bias": torch.zeros(6, 32).masked_fill(hidden, -math.inf), "at": torch.arange(6)}

    given = made(inputs, NAMED["wholly masked rows"])
    assert (not given["keep"][-1].any(), bool(given["keep"][0].all())) == (True, True)
    assert bool((given["bias"][-1] == -math.inf).all())
    assert torch.equal(given["at"], torch.arange(6))


def test_without_a_mask_nothing_can_be_masked() -> None:
    assert tried(drawn, NAMED["wholly masked rows"]) is None


def test_without_floats_there_is_no_stress_input() -> None:
    def inputs(generator: torch.Generator) -> dict[str, Any]:
        return {"x": torch.randint(9, (8,), generator=generator), "n": 3}

    assert all(tried(inputs, s) is None for s in STRESS_INPUTS)


def test_a_tensor_that_is_the_same_for_every_seed_has_its_turn_behind_the_draws() -> None:
    """What is made of a draw has none: it would no longer be what the draw makes it."""

    def inputs(generator: torch.Generator) -> dict[str, Any]:
        x = torch.randn(8, 512, generator=generator)
        return {"x": x, "twice": 2 * x, "weights": torch.ones(512), "at": torch.arange(8)}

    assert stress_inputs.layout(inputs, CPU).tensors == 2
    of = [made(inputs, NAMED["a NaN"].of_draw(n)) for n in range(2)]
    assert [[int(g[n].isnan().sum()) for n in ("x", "twice", "weights")] for g in of] == [[1, 1, 0], [0, 0, 1]]


def test_what_is_made_of_the_drawn_numbers_stays_consistent() -> None:
    """fa_bwd derives O and LSE from Q, K and V: of stress inputs they must be what the forward pass gives."""
    module = target.load(FA_BWD, "stressed_target")
    case = module.SMALL["d64-ragged-bshd"]
    plain = numerics.make_inputs(module, case, 7, CPU)
    given = numerics.make_inputs(module, case, 7, CPU, NAMED["inputs times 8"])
    assert torch.equal(given["q"], 8 * plain["q"])
    scores = given["q"].double() @ given["k"].double().mT * case["D"] ** -0.5
    assert torch.allclose(given["lse"].double(), torch.logsumexp(scores, -1), rtol=1e-5)
    assert torch.allclose(given["o"].double(), torch.softmax(scores, -1) @ given["v"].double(), atol=0.02)


def test_a_stress_input_of_zeros_tiny_negative_or_dominant_numbers_holds_what_it_says() -> None:
    plain = made(drawn, None)
    assert not made(drawn, NAMED["zeros"])["x"].any() and made(drawn, NAMED["zeros"])["y"].any()
    tiny, normal = made(drawn, NAMED["tiny numbers"]), {t: torch.finfo(t).tiny for t in (torch.float32, torch.float16)}
    for t in tiny.values():
        below = (t != 0) & (t.abs() < normal[t.dtype])
        assert 0.05 < float(below.float().mean()) < 0.95 and t.abs().max() < 64 * normal[torch.float16]
    assert all(bool((t < 0).all()) for t in made(drawn, NAMED["negative numbers"]).values())
    row = made(drawn, NAMED["a dominant row"])["y"]
    assert int((row == 32 * plain["y"]).all(-1).sum()) == 1 and int((row == plain["y"]).all(-1).sum()) == 7
    element = made(drawn, NAMED["a dominant element in each row"])["x"]
    assert bool((element.abs().max(-1).values >= 32).all()) and int((element != plain["x"]).sum()) == 8
    assert bool((element.sign() == plain["x"].sign()).all()), "a sum over rows would grow with their number"


@pytest.mark.parametrize("stress_input", [s for s in STRESS_INPUTS if not (s.masks or s.finite)], ids=lambda s: s.name)
def test_stress_inputs_have_the_layout_of_the_usual_ones(stress_input: StressInput) -> None:
    def inputs(generator: torch.Generator) -> dict[str, Any]:
        packed = torch.randn(3, 40, generator=generator).half()
        return {"q": packed[0], "k": packed[1:, 1:].T, "listed": [packed[2]], "count": torch.arange(3), "scale": 0.5}

    plain, under_stress = made(inputs, None), made(inputs, stress_input)
    for name in ("q", "k"):
        assert under_stress[name].stride() == plain[name].stride()
        assert under_stress[name].storage_offset() == plain[name].storage_offset()
    assert under_stress["q"].untyped_storage().data_ptr() == under_stress["listed"][0].untyped_storage().data_ptr()
    assert torch.equal(under_stress["count"], plain["count"]) and under_stress["scale"] == 0.5


def test_rows_lie_apart_by_another_gap_in_each_matrix_and_their_values_are_the_same() -> None:
    plain, under_stress = made(drawn, None), made(drawn, stress_inputs.STRIDED)
    assert all(torch.equal(plain[n], under_stress[n]) for n in "xy")
    assert (under_stress["x"].stride(), under_stress["y"].stride()) == ((512 + 4, 1), (512 + 16, 1))
    assert tried(lambda g: {"x": torch.randn(8, generator=g)}, stress_inputs.STRIDED) is None


def test_floats_that_were_not_drawn_are_changed_once_for_each_storage() -> None:
    def inputs(generator: torch.Generator) -> dict[str, Any]:
        x = torch.randint(1, 9, (4, 10), generator=generator).float()
        return {"x": x, "row": x[1], "list": [x[2:, 1:]], "other": torch.ones(4)}

    plain, under_stress = made(inputs, None), made(inputs, NAMED["inputs times 8"])
    assert torch.equal(under_stress["x"], 8 * plain["x"]) and torch.equal(under_stress["list"][0], 8 * plain["list"][0])
    assert under_stress["row"].data_ptr() == under_stress["x"][1].data_ptr()
    assert torch.equal(under_stress["other"], torch.full((4,), 8.0))


def test_draws_of_zeros_and_ones_and_of_another_generator_are_left_alone() -> None:
    def inputs(generator: torch.Generator) -> dict[str, Any]:
        x = torch.empty(64).normal_(generator=generator)
        kept = torch.bernoulli(torch.full((64,), 0.5), generator=generator)
        return {"x": x, "kept": kept, "other": torch.rand(64, generator=torch.Generator().manual_seed(1))}

    plain, under_stress = made(inputs, None), made(inputs, NAMED["inputs times 8"])
    assert torch.equal(under_stress["x"], 8 * plain["x"])
    assert torch.equal(under_stress["kept"], plain["kept"]) and torch.equal(under_stress["other"], plain["other"])


# the GPU judge's stages, on plans that launch nothing -----------------------------------------------------------------

SIZE = (4, 96)
X, Y, Z, W = (Tensor(i, "float32", SIZE, (96, 1), 0) for i in range(4))
BEHIND = Tensor(2, "float32", (1,), (1,), 4 * 96)  # no bundle with such a view passes check.py
SUM = Op("aten.add.Tensor", (X, Y), {}, (Z,))
STEPS = {
    "a sum": (SUM,),
    "a sum of numbers up to 2": (  # min(x, 2) = 2 - relu(2 - x)
        Op("aten.full.default", (SIZE, 2.0), {}, (W,)),
        Op("aten.sub.Tensor", (W, X), {}, (Z,)),
        Op("aten.relu.default", (Z,), {}, (Z,)),
        Op("aten.sub.Tensor", (W, Z), {}, (Z,)),
        Op("aten.add.Tensor", (Z, Y), {}, (Z,)),
    ),
    "a sum of positive numbers": (Op("aten.abs.default", (X,), {}, (W,)), Op("aten.add.Tensor", (W, Y), {}, (Z,))),
    "a sum that divides by what may be zero": (  # x / x is 1, but of zero
        Op("aten.div.Tensor", (X, X), {}, (W,)),
        Op("aten.mul.Tensor", (X, W), {}, (W,)),
        Op("aten.add.Tensor", (W, Y), {}, (Z,)),
    ),
    "a sum that is a little larger": (
        SUM,
        Op("aten.full.default", (SIZE, 1.00001), {}, (W,)),
        Op("aten.mul.Tensor", (Z, W), {}, (Z,)),
    ),
    "nothing": (Op("aten.zero_.default", (W,), {}, (W,)),),
    "a sum, and one more element": (SUM, Op("aten.fill_.Scalar", (BEHIND, 1.0), {}, (BEHIND,))),
    "a sum of what it puts into its input": (Op("aten.relu.default", (X,), {}, (X,)), SUM),
}


def pick(steps: str, cases: tuple[str, ...] = ("CASES/small",)) -> Pick:
    storages = tuple(Storage(kind, 1536) for kind in ("input", "input", "made", "made"))
    plan = Plan({"x": X, "y": Y}, storages, STEPS[steps], (Z,))
    bundle = Bundle(steps, {}, {}, {c: {"it": plan} for c in cases})
    return dict.fromkeys(cases, (bundle, "it"))


def positive(case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    return {n: torch.rand(SIZE, generator=generator) for n in "xy"}


def signed(case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
    return {n: torch.randn(SIZE, generator=generator) for n in "xy"}


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def bench(inputs: Callable[..., Any] = positive, reference: Callable[..., Any] = added) -> TargetSession:
    """A judge's bench for sums, without a timer."""
    module = ModuleType("target")
    module.inputs = inputs  # type: ignore[attr-defined]
    module.reference = reference  # type: ignore[attr-defined]
    module.flops = lambda case: case["work"]  # type: ignore[attr-defined]
    timer: Any = None  # nothing here is timed
    cases = {"CASES/large": {"work": 2}, "CASES/small": {"work": 1}}
    made = TargetSession(module, cases, CPU, timer, lambda stage, seconds: None, Peaks(1.0, 1.0))
    made.new_seeds()
    return made


@pytest.mark.parametrize(
    ("steps", "verdict", "problem"),
    [
        ("a sum", None, ""),
        ("a sum of numbers up to 2", None, ""),
        ("nothing", Verdict.WRONG, "its outputs change with what its buffers held before"),
        ("a sum, and one more element", Verdict.WRONG, "wrote "),  # up to 4 bytes: one may be as the guard zone's was
    ],
)
def test_a_case_in_full_gives_the_verdict_on(steps: str, verdict: Verdict | None, problem: str) -> None:
    found, comparison = checks.check_case(bench(), pick(steps), "CASES/small", "numerics")
    assert (found, comparison.problem[: len(problem)]) == (verdict, problem)
    assert bool(comparison.problem) == bool(verdict)


def test_right_results_do_not_excuse_a_changed_input() -> None:
    prepared = bench(signed, lambda x, y: x.relu() + y)
    found, comparison = checks.check_case(prepared, pick("a sum of what it puts into its input"), "CASES/small", "full")
    assert (found, comparison.problem) == (Verdict.CHEATING, "the inputs were changed")


SUMS = ("CASES/small",)
MASKED = "wholly masked rows"  # nothing here has a mask


def under_stress(
    prepared: TargetSession, candidate: str, own: str = "a sum", cases: tuple[str, ...] = SUMS
) -> StressOutcome:
    return stress_runs.check_stress_inputs(prepared, pick(candidate, cases), pick(own, cases), "numerics")


def names(found: StressOutcome) -> set[str]:
    return {c.stress_input.split(" in input")[0] for c in found.checks}


def test_a_sum_bears_every_stress_input_that_there_is_something_for() -> None:
    found = under_stress(bench(), "a sum")
    assert found.verdict is None
    assert names(found) == {s.name for s in STRESS_INPUTS} - {MASKED}
    assert all((c.case, bool(c.errors), c.problem) == ("CASES/small", True, "") for c in found.checks)
    assert MASKED in {d["strain"] for d in found.dropped}
    assert len(STRESS_INPUTS) < len(found.checks) + len(found.dropped) <= found.possible


def test_a_stress_input_of_one_tensor_is_tried_with_each_in_turn() -> None:
    """A kernel that loses a NaN of its second operand alone was right as long as the first had it."""
    tried = {c.stress_input for c in under_stress(bench(), "a sum").checks}
    assert {"a NaN", "a NaN in input 2", "an infinity", "an infinity in input 2"} <= tried


def test_what_is_right_of_the_usual_inputs_alone_is_wrong_with_stress_inputs() -> None:
    found = under_stress(bench(), "a sum of numbers up to 2")
    assert found.verdict == Verdict.WRONG
    assert (found.checks[-1].stress_input, found.checks[-1].problem[:19]) == ("inputs times 8", "output 0: max error")


@pytest.mark.parametrize(
    ("steps", "stress_inputs"),
    [
        ("a sum of positive numbers", {"negative numbers"}),
        ("a sum that divides by what may be zero", {"zeros", "small integers"}),  # round to zero, too
    ],
)
def test_what_is_right_of_positive_numbers_alone_is_wrong_with(steps: str, stress_inputs: set[str]) -> None:
    found = under_stress(bench(), steps)
    assert found.verdict == Verdict.WRONG and found.checks[-1].stress_input in stress_inputs


def test_a_stress_input_that_the_targets_own_kernel_does_not_bear_is_dropped_and_said_to_be() -> None:
    own = "a sum of numbers up to 2"
    found = under_stress(bench(), own, own)
    assert found.verdict is None
    assert not {"inputs times 8", "outliers"} & names(found)
    why = {d["strain"]: d["why"] for d in found.dropped}
    assert why["inputs times 8"].startswith("the target's own kernel: output 0: max error")


def test_a_stress_input_that_breaks_the_reference_itself_is_dropped() -> None:
    def delicate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert x.max() <= 1
        return x + y

    found = under_stress(bench(positive, delicate), "a sum")
    assert "reference() raised AssertionError" in {d["strain"]: d["why"] for d in found.dropped}["inputs times 8"]
    assert "equal rows" in names(found)


def test_what_the_own_kernel_bears_is_found_out_once() -> None:
    prepared = bench()
    first = under_stress(prepared, "a sum")
    again = under_stress(prepared, "a sum", own="nothing")
    assert [(c.stress_input, c.seed) for c in first.checks] == [(c.stress_input, c.seed) for c in again.checks]


def test_a_candidate_gets_the_very_inputs_that_the_own_kernel_bore() -> None:
    prepared = bench()
    first = under_stress(prepared, "a sum")
    prepared.new_seeds()
    second = under_stress(prepared, "a sum")
    assert [(c.stress_input, c.seed) for c in first.checks] == [(c.stress_input, c.seed) for c in second.checks]


BOTH = ("CASES/large", "CASES/small")


def test_every_case_gets_a_stress_input_that_with_the_least_work_gets_all() -> None:
    found = under_stress(bench(), "a sum", cases=BOTH)
    of = {c: {x.stress_input for x in found.checks if x.case == c} for c in BOTH}
    assert {x.split(" in input")[0] for x in of["CASES/small"]} == {s.name for s in STRESS_INPUTS} - {MASKED}
    assert len(of["CASES/large"]) <= stress_runs.MORE
    assert "CASES/large" in {c for c, _ in stress_runs.drawn_trials(bench(), BOTH[::-1])[0]}
    assert len(found.checks) + len(found.dropped) < found.possible


def test_which_stress_inputs_other_cases_get_is_drawn_anew_by_each_process() -> None:
    drawn = {tuple(stress_runs.drawn_trials(bench(), ("CASES/small", "CASES/large"))[0]) for _ in range(8)}
    assert len(drawn) > 1
    one = bench()
    assert len({tuple(stress_runs.drawn_trials(one, BOTH)[0]) for _ in range(4)}) == 1


def test_a_write_outside_under_a_stress_input_is_wrong() -> None:
    found = under_stress(bench(), "a sum, and one more element")
    assert (found.verdict, found.checks[-1].problem[:6]) == (Verdict.WRONG, "wrote ")
