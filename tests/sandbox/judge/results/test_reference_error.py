"""judge/reference_error.py: results of few elements are judged by errors that are no matter of chance."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from pgo_agent.sandbox.judge.results import numerics, reference_error
from pgo_agent.sandbox.judge.results.reference_error import Spread

from tests.sandbox.judge.results.laid_open import laid_open

CPU = torch.device("cpu")
SEEDS = 200


class Drawn:
    """A target whose results are sums of rows, and how often its inputs were made."""

    def __init__(self, rows: int, reference: Callable[..., Any] = lambda x: x.sum(-1)) -> None:
        self.rows, self.made = rows, 0
        self.module = ModuleType("target")
        self.module.reference = reference  # type: ignore[attr-defined]
        self.module.inputs = self.inputs  # type: ignore[attr-defined]

    def inputs(self, case: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
        self.made += 1
        return {"x": 2 * torch.randn((self.rows, 1000), generator=generator, device=generator.device)}

    def x(self, seed: int) -> torch.Tensor:
        x: torch.Tensor = numerics.make_inputs(self.module, {}, seed, CPU)["x"]
        return x


def alike(x: Any) -> Any:
    """Sums that are all about as large."""
    return x.abs().sum(-1)


def in_blocks(x: torch.Tensor) -> torch.Tensor:
    """The same sums in another order, as a kernel takes them that walks a row in blocks of 256."""
    total = torch.zeros(x.shape[0])
    for block in x.split(256, 1):
        total = total + block.sum(1)
    return total


@pytest.mark.parametrize("rows", [1, 2, 5, 16])
def test_a_sum_in_another_order_is_right_whatever_the_seed(rows: int) -> None:
    drawn = Drawn(rows)
    case = Spread(drawn.module, CPU)
    wrong = [s for s in range(SEEDS) if numerics.check([in_blocks(drawn.x(s))], case.expect("case", {}, s)).problem]
    assert wrong == []


def test_by_its_own_inputs_alone_a_sum_is_often_called_wrong() -> None:
    drawn = Drawn(1)
    alone = [numerics.expect(drawn.module, "case", {}, s, CPU) for s in range(SEEDS)]
    wrong = [s for s, e in enumerate(alone) if numerics.check([in_blocks(drawn.x(s))], e).problem]
    assert len(wrong) > SEEDS / 10


@pytest.mark.parametrize("rows", [1, 5])
def test_a_sum_that_was_rounded_to_half_precision_on_its_way_is_wrong_whatever_the_seed(rows: int) -> None:
    drawn = Drawn(rows)
    case = Spread(drawn.module, CPU)
    right = [
        s
        for s in range(SEEDS)
        if not numerics.check([drawn.x(s).half().float().sum(-1)], case.expect("case", {}, s)).problem
    ]
    assert right == []


def test_inputs_are_made_again_only_where_few_elements_tell_too_little() -> None:
    few, many, whole = Drawn(4, alike), Drawn(reference_error.ENOUGH, alike), Drawn(4, lambda x: x.argmax(-1))
    for drawn in (few, many, whole):
        Spread(drawn.module, CPU).expect("case", {}, 0)
    assert (few.made, many.made, whole.made) == (reference_error.MOST, 1, 1)


def test_of_many_elements_those_count_that_are_large() -> None:
    drawn = Drawn(5, lambda x: torch.softmax(5 * x, -1))
    expected, alone = Spread(drawn.module, CPU).expect("case", {}, 0), numerics.expect(drawn.module, "case", {}, 0, CPU)
    assert drawn.made > 10
    assert expected.low[0].worst >= alone.low[0].worst and expected.low[0].mean == alone.low[0].mean


def test_a_case_is_looked_into_once() -> None:
    drawn = Drawn(16, alike)
    case = Spread(drawn.module, CPU)
    first, second = (case.expect("case", {}, seed) for seed in (0, 1))
    assert drawn.made == reference_error.ENOUGH / 16 + 1
    assert (first.seed, second.seed) == (0, 1) and not torch.equal(
        laid_open(first.outputs[0]), laid_open(second.outputs[0])
    )


def test_a_reference_that_takes_long_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_error, "SECONDS", 0.0)
    drawn = Drawn(1)
    own = Spread(drawn.module, CPU).expect("case", {}, 0)
    assert drawn.made == 1 and own == numerics.expect(drawn.module, "case", {}, 0, CPU)
