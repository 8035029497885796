"""gate/plan_rules.py: where results lie that the original writes into its inputs. Real launchers, traced and built."""

from typing import Any

import pytest
from pgo_agent.sandbox.gate import plan_rules
from pgo_agent.sandbox.gate.evidence import Evidence, side
from pgo_agent.sandbox.gate.verdict import Verdict

from tests.sandbox.gate.test_plan_rules import TARGET, Workshop

KERNEL = """
def kernel(x, way, ys):
    (y,) = ys
    if way == "copied":
        x = x.clone()
    double(x, x)
    double(y, y)
    if way == "fresh":
        out = torch.empty_like(x)
        double(x, out)
        return out, y
    if way == "turned":
        return x.t(), y
    if way == "swapped":
        return y, x
    if way == "part":
        return x, y[1:]
    return x, y


def reference(x, way, ys):
    return x * 2, ys[0] * 2


IN_PLACE = ("x", "ys")


def inputs(case, generator):
    x, y = (torch.randn(64, 64, generator=generator, device=generator.device) for _ in range(2))
    return {"x": x, "way": case["way"], "ys": [y]}


WAYS = ("in place", "copied", "fresh", "turned", "swapped", "part")
CASES = {way: dict(way=way) for way in WAYS}
SMALL, HELD_OUT = {}, {}
flops = bytes_moved = len
"""
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("in place"), TARGET[: TARGET.index("def kernel")] + KERNEL)


@pytest.fixture(scope="module")
def manifest(workshop: Workshop) -> Manifest:
    built = workshop.build("CASES")
    assert built.ok and not built.failures, built.failures
    return workshop.contents.manifest(built.bundle)


def said(workshop: Workshop, manifest: Manifest, way: str, original: str = "in place") -> Evidence:
    """What is said of a launcher of this way, as a candidate for another."""
    ours, theirs = (manifest | {"plans": {"CASES/a": manifest["plans"][f"CASES/{w}"]}} for w in (way, original))
    names = workshop.builder.target.in_place
    return plan_rules.stage(side(workshop.contents, ours), side(workshop.contents, theirs, in_place=names))


@pytest.mark.parametrize("way", ["in place", "copied"])
def test_results_where_those_of_the_original_lie_are_allowed(workshop: Workshop, manifest: Manifest, way: str) -> None:
    found = said(workshop, manifest, way, way)
    assert found.verdict is None, found.reason


@pytest.mark.parametrize(
    ("way", "original", "words"),
    [
        ("copied", "in place", "result 0 lies in memory of its own, and not in x (offset 0, strides [64, 1])"),
        ("fresh", "in place", "result 0 lies in memory of its own, and not in x"),
        (
            "turned",
            "in place",
            "result 0 lies in x (offset 0, strides [1, 64]), and not in x (offset 0, strides [64, 1])",
        ),
        ("swapped", "in place", "result 0 lies in ys (offset 0, strides [64, 1]), and not in x"),
        ("part", "in place", "result 1 lies in ys (offset 64, strides [64, 1]), and not in ys (offset 0"),
        ("in place", "fresh", "result 0 lies in x (offset 0, strides [64, 1]), and not in memory of its own"),
    ],
)
def test_results_elsewhere_are_no_gain_that_anybody_gets(
    workshop: Workshop, manifest: Manifest, way: str, original: str, words: str
) -> None:
    found = said(workshop, manifest, way, original)
    assert found.verdict == Verdict.REJECTED and found.reason.startswith(f"a: {words}"), found.reason
    assert ("the kernel as shipped changes" in found.reason) is (original == "in place")


def test_an_input_that_is_no_result_is_told(manifest: Manifest) -> None:
    plans = {way: list(manifest["plans"][f"CASES/{way}"].values()) for way in ("in place", "fresh")}
    assert plan_rules.unreturned(plans["in place"], ("x", "ys")) == []
    assert plan_rules.unreturned(plans["fresh"], ("x", "ys")) == ["x"]


def test_a_launch_that_only_changes_an_input_for_the_caller_is_not_idle(manifest: Manifest) -> None:
    plan = next(iter(manifest["plans"]["CASES/in place"].values()))
    assert plan_rules.idle(plan, ("x", "ys")) == []
    assert plan_rules.idle(plan) == [0, 1], "without the names nothing may depend on what inputs become"
