"""gate/screen.py: which torch ops a candidate's launcher may use. Real launchers, traced and built; no GPU.

An op that no plan may hold at all (random numbers) already ends in the bundle's checks.
"""

from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import plan_rules
from pgo_agent.sandbox.gate.evidence import Evidence, side
from pgo_agent.sandbox.gate.reason import FAILS
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.isolation import box

TARGET = """
import torch
import triton
import triton.language as tl


@triton.jit
def _double(x, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def double(x, z):
    _double[(triton.cdiv(x.numel(), 256),)](x, z, x.numel(), BLOCK=256)
    return z


@triton.jit
def _double_in_table(table, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, z = tl.load(table).to(tl.pointer_type(tl.float32)), tl.load(table + 1).to(tl.pointer_type(tl.float32))
    tl.store(z + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def doubled_in_table(x, z):
    table = torch.tensor([x.data_ptr(), z.data_ptr()], device=x.device)
    _double_in_table[(triton.cdiv(x.numel(), 256),)](table, x.numel(), BLOCK=256)
    return z


def kernel(x, way):
    if way == 10:
        return doubled_in_table(x, torch.empty_like(x))
    if way == 11:
        doubled_in_table(x, torch.empty_like(x))  # a fig leaf
        return doubled_in_table(x, torch.empty_like(x))
    if way == 0:
        return double(x, torch.empty_like(x))
    if way == 1:
        return double(x, torch.zeros_like(x))
    if way == 2:
        return double(x, torch.zeros(x.shape, device=x.device, dtype=x.dtype))
    if way == 3:
        return double(x.reshape(-1)[16:].view(-1, 16).T, torch.empty_like(x))
    if way == 4:
        return double(x * 2, torch.empty_like(x))
    if way == 5:
        return double(x, torch.empty_like(x)) + x
    if way == 7:
        double(x, torch.empty_like(x))  # a fig leaf
        return double(x, torch.empty_like(x))
    if way == 8:
        z = double(x, torch.empty_like(x))
        for _ in range(20):
            z = double(x, z)
        return z
    if way == 9:
        between = double(x, torch.empty_like(x))
        return double(between, torch.empty_like(x))
    double(x, torch.empty_like(x))
    return torch.matmul(x, x)


def reference(x, way):
    return x * 2


def inputs(case, generator):
    return {"x": torch.randn(64, 64, generator=generator, device=generator.device), "way": case["way"]}


CASES = {"plain": dict(way=0), "zeros-like": dict(way=1), "zeros": dict(way=2), "views": dict(way=3)}
SMALL = {"product": dict(way=4), "sum": dict(way=5), "leaf": dict(way=7), "many": dict(way=8), "chain": dict(way=9)}
SMALL |= {"table": dict(way=10), "table-leaf": dict(way=11)}
HELD_OUT = {"matmul": dict(way=6)}
flops = bytes_moved = len
"""
Manifest = dict[str, Any]


class Workshop:
    """Builds the launchers of TARGET."""

    def __init__(self, folder: Path, text: str = TARGET) -> None:
        path = folder / "subject.py"
        path.write_text(text)
        subject = target.read(path)
        self.contents = ContentStore(folder / "shelf")
        self.builder = Builder(subject, devices.find("h200"), box.choose(), self.contents)

    def build(self, *kinds: str) -> Built:
        return self.builder.build(self.builder.target.source, dict.fromkeys(kinds), 1)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("screen"))


@pytest.fixture(scope="module")
def manifest(workshop: Workshop) -> Manifest:
    built = workshop.build("CASES", "SMALL")
    assert built.ok and not built.failures, built.failures
    return workshop.contents.manifest(built.bundle)


def only(manifest: Manifest, *cases: str) -> Manifest:
    return manifest | {"plans": {case: manifest["plans"][case] for case in cases}}


def said(workshop: Workshop, candidate: Manifest, original: Manifest) -> Evidence:
    return plan_rules.stage(side(workshop.contents, candidate), side(workshop.contents, original))


@pytest.mark.parametrize("case", ["CASES/plain", "CASES/zeros-like", "CASES/zeros", "CASES/views", "SMALL/chain"])
def test_allocations_zeros_views_and_results_between_kernels_are_allowed(
    workshop: Workshop, manifest: Manifest, case: str
) -> None:
    assert said(workshop, only(manifest, case), only(manifest, "CASES/plain")).verdict is None


@pytest.mark.parametrize(("case", "op"), [("SMALL/product", "aten.mul.Tensor"), ("SMALL/sum", "aten.add.Tensor")])
def test_arithmetic_that_the_original_does_not_do_is_rejected_by_name(
    workshop: Workshop, manifest: Manifest, case: str, op: str
) -> None:
    found = said(workshop, only(manifest, case), only(manifest, "CASES/plain"))
    assert (found.verdict, found.stage) == (Verdict.REJECTED, "screen")
    assert found.reason == f"uses torch ops that the original launcher does not: {op}"


@pytest.mark.parametrize("case", ["SMALL/product", "SMALL/sum"])
def test_what_the_original_used_is_allowed(workshop: Workshop, manifest: Manifest, case: str) -> None:
    assert said(workshop, only(manifest, case), only(manifest, case)).verdict is None


def test_one_bad_plan_among_good_ones_is_enough(workshop: Workshop, manifest: Manifest) -> None:
    found = said(workshop, only(manifest, "CASES/plain", "SMALL/product", "SMALL/sum"), only(manifest, "SMALL/product"))
    assert found.reason.endswith(": aten.add.Tensor")


def test_a_second_configuration_is_looked_at_as_the_first(workshop: Workshop, manifest: Manifest) -> None:
    (plain,), (product,) = (manifest["plans"][c].values() for c in ("CASES/plain", "SMALL/product"))
    candidate = manifest | {"plans": {"CASES/plain": {"first": plain, "second": product}}}
    assert said(workshop, candidate, only(manifest, "CASES/plain")).verdict == Verdict.REJECTED


def test_a_launch_that_nothing_depends_on_is_rejected(workshop: Workshop, manifest: Manifest) -> None:
    found = said(workshop, only(manifest, "SMALL/leaf"), only(manifest, "CASES/plain"))
    assert found.verdict == Verdict.REJECTED
    assert "leaf: nothing depends on launch 1 (_double)" in found.reason


def test_a_launch_is_given_what_its_table_holds_addresses_of(workshop: Workshop, manifest: Manifest) -> None:
    original = only(manifest, "SMALL/table")
    assert said(workshop, original, original).verdict is None
    found = said(workshop, only(manifest, "SMALL/table-leaf"), original)
    assert "table-leaf: nothing depends on launch 1 (_double_in_table)" in found.reason


def test_such_a_launch_of_the_originals_own_is_left_alone(workshop: Workshop, manifest: Manifest) -> None:
    assert said(workshop, only(manifest, "SMALL/leaf"), only(manifest, "SMALL/leaf")).verdict is None


def test_many_more_launches_than_the_originals_are_rejected(workshop: Workshop, manifest: Manifest) -> None:
    found = said(workshop, only(manifest, "SMALL/many"), only(manifest, "CASES/plain"))
    assert found.verdict == Verdict.REJECTED
    assert "many: 21 launches, where 10 are the most" in found.reason


@pytest.mark.parametrize("case", ["SMALL/leaf", "SMALL/many"])
def test_what_a_held_out_case_launches_is_told_to_no_model(workshop: Workshop, manifest: Manifest, case: str) -> None:
    plans = {"HELD_OUT/rare": manifest["plans"][case]}
    found = said(workshop, manifest | {"plans": plans}, only(manifest, "CASES/plain"))
    assert found.reason.startswith("a held-out case: ") and found.why.for_model(["rare"]) == FAILS


def test_a_matmul_in_the_launcher_is_rejected(workshop: Workshop, manifest: Manifest) -> None:
    """As the tracer records it: one step beside the launch of a kernel that does nothing for the result."""
    (plan,) = only(manifest, "CASES/plain")["plans"]["CASES/plain"].values()
    out = plan["out"]
    product = {"op": "aten.mm.default", "args": [out[0], out[0]], "kwargs": {}, "out": out}
    candidate = manifest | {"plans": {"CASES/plain": {"as written": plan | {"steps": [*plan["steps"], product]}}}}
    found = said(workshop, candidate, manifest)
    assert found.verdict == Verdict.REJECTED
    assert "aten.mm.default" in found.reason


def test_a_matmul_of_torch_in_place_of_the_kernel_is_rejected(workshop: Workshop, manifest: Manifest) -> None:
    built = workshop.build("HELD_OUT")
    found = said(workshop, workshop.contents.manifest(built.bundle), manifest)
    assert found.verdict == Verdict.REJECTED and "aten.mm.default" in found.reason


def test_a_candidate_that_launches_nothing_is_rejected_where_the_original_launches(
    workshop: Workshop, manifest: Manifest
) -> None:
    (plan,) = only(manifest, "SMALL/product")["plans"]["SMALL/product"].values()
    alone = plan | {"steps": [s for s in plan["steps"] if "op" in s]}
    candidate = manifest | {"plans": {"SMALL/product": {"as written": alone}}}
    found = said(workshop, candidate, only(manifest, "SMALL/product"))
    assert found.verdict == Verdict.REJECTED and found.reason.endswith(
        "launches no kernel, where the kernel as shipped does"
    )


def test_a_product_may_stand_for_one_with_something_added(workshop: Workshop, manifest: Manifest) -> None:
    (plan,) = only(manifest, "CASES/plain")["plans"]["CASES/plain"].values()
    out = plan["out"][0]
    added = {"op": "aten.addmm.default", "args": [out, out, out], "kwargs": {}, "out": [out]}
    product = {"op": "aten.mm.default", "args": [out, out], "kwargs": {}, "out": [out]}

    def beside(step: dict[str, Any]) -> Manifest:
        return manifest | {"plans": {"CASES/plain": {"as written": plan | {"steps": [*plan["steps"], step]}}}}

    assert said(workshop, beside(product), beside(added)).verdict is None
