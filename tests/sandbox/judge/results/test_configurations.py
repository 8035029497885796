"""Every configuration that may be chosen is checked before it is timed: which on which case, and several at once.

Plans that launch nothing stand for the configurations of a kernel.
"""

import pytest
from pgo_agent.sandbox.bundle.schema import Plan, Storage
from pgo_agent.sandbox.bundle.validate import Bundle
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge.questions import Against
from pgo_agent.sandbox.judge.results import checks
from pgo_agent.sandbox.judge.timing import commands

from tests.sandbox.judge.results.test_stress_inputs import STEPS, X, Y, Z, bench, pick


def bundle(**cases: dict[str, str]) -> Bundle:
    """Case -> label -> what that configuration computes."""
    storages = tuple(Storage(kind, 1536) for kind in ("input", "input", "made", "made"))
    plans = {
        f"CASES/{case}": {n: Plan({"x": X, "y": Y}, storages, STEPS[s], (Z,)) for n, s in labels.items()}
        for case, labels in cases.items()
    }
    return Bundle("candidate", {}, {}, plans)


def test_each_configuration_has_its_smoke_test_on_the_least_case_that_has_it() -> None:
    both = bundle(small={"a": "a sum", "b": "a sum"}, large={"b": "a sum", "c": "a sum"})
    cases = ["CASES/large", "CASES/small"]
    assert commands._least(bench(), both, cases, cases) == {"CASES/small": ["a", "b"], "CASES/large": ["c"]}


def test_what_is_never_timed_needs_none_but_that_of_the_least_case() -> None:
    both = bundle(small={"x": "a sum", "y": "a sum"}, large={"b": "a sum"})
    found = commands._least(bench(), both, ["CASES/small", "CASES/large"], public=["CASES/large"])
    assert found == {"CASES/small": ["x", "y"], "CASES/large": ["b"]}


@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_configurations_are_compared_together_and_the_first_wrong_one_ends_it(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BATCH_BYTES", kept)
    prepared = bench()
    tried = bundle(small={"a": "a sum", "b": "a sum of numbers up to 2", "c": "nothing", "d": "a sum"})
    found = checks.check_labels(prepared, tried, "CASES/small", ["a", "b", "c", "d"], "numerics")
    assert [(label, verdict) for label, verdict, _ in found] == [("a", None), ("b", None), ("c", Verdict.WRONG)]
    assert {label for _, _, label in prepared.verified} == {"a", "b"}


@pytest.mark.parametrize(
    ("shipped", "times", "verdict"),
    [
        ("a sum that is a little larger", 1.0, None),
        ("a sum", 1.0, Verdict.WRONG),
        ("a sum that is a little larger", 0.5, Verdict.WRONG),  # far from the bound: no measure
        ("nothing", 1.0, Verdict.WRONG),
    ],
)
def test_what_errs_as_the_kernel_as_shipped_does_on_the_same_inputs_is_right(
    shipped: str, times: float, verdict: Verdict | None
) -> None:
    prepared = bench()
    prepared.target.TOLERANCE = {"max_ratio": 250 * times, "mean_ratio": 600 * times}  # type: ignore[attr-defined]
    tried = bundle(small={"it": "a sum that is a little larger"})
    alone = checks.check_labels(prepared, tried, "CASES/small", ["it"], "numerics")
    assert [v for _, v, _ in alone] == [Verdict.WRONG]
    beside = checks.check_labels(prepared, tried, "CASES/small", ["it"], "numerics", pick(shipped))
    assert [v for _, v, _ in beside] == [verdict]
    assert beside[0][2].shipped and not alone[0][2].shipped


def test_the_chosen_configuration_comes_first_and_all_others_after_it() -> None:
    three = bundle(small={"a": "a sum", "b": "a sum", "c": "a sum"})
    asked = Against({}, {}, None, public=("CASES/small",), held_out=(), weights=None)
    assert commands._to_check({"CASES/small": (three, "b")}, asked) == {"CASES/small": ["b", "a", "c"]}
