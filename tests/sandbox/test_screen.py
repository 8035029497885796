"""gate/screen.py: which torch ops a candidate's launcher may use. Real launchers, traced and built; no GPU.

An op that no plan may hold at all (a matrix product) already ends in the bundle's checks; the screen refuses it, too.
"""

from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import box, devices, target
from pgo_agent.sandbox.build import Builder, Built
from pgo_agent.sandbox.bundle.shelf import Shelf
from pgo_agent.sandbox.gate import screen
from pgo_agent.sandbox.gate.verdict import Verdict

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


def kernel(x, way):
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
    double(x, torch.empty_like(x))
    return torch.matmul(x, x)


def reference(x, way):
    return x * 2


def inputs(case, generator):
    return {"x": torch.randn(64, 64, generator=generator, device=generator.device), "way": case["way"]}


CASES = {"plain": dict(way=0), "zeros-like": dict(way=1), "zeros": dict(way=2), "views": dict(way=3)}
SMALL = {"product": dict(way=4), "sum": dict(way=5)}
HELD_OUT = {"matmul": dict(way=6)}
flops = bytes_moved = len
"""
Manifest = dict[str, Any]


class Workshop:
    """Builds the launchers of TARGET."""

    def __init__(self, folder: Path) -> None:
        path = folder / "subject.py"
        path.write_text(TARGET)
        subject = target.read(path)
        self.shelf = Shelf(folder / "shelf")
        self.builder = Builder(subject, devices.find("h200"), box.choose(), self.shelf)

    def build(self, *kinds: str) -> Built:
        return self.builder.build(self.builder.target.source, dict.fromkeys(kinds), 1)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("screen"))


@pytest.fixture(scope="module")
def manifest(workshop: Workshop) -> Manifest:
    built = workshop.build("CASES", "SMALL")
    assert built.ok and not built.failures, built.failures
    return workshop.shelf.manifest(built.bundle)


def only(manifest: Manifest, *cases: str) -> Manifest:
    return manifest | {"plans": {case: manifest["plans"][case] for case in cases}}


@pytest.mark.parametrize("case", ["CASES/plain", "CASES/zeros-like", "CASES/zeros", "CASES/views"])
def test_allocations_zeros_and_views_are_allowed(manifest: Manifest, case: str) -> None:
    assert screen.screen(only(manifest, case), set()) is None


@pytest.mark.parametrize(("case", "op"), [("SMALL/product", "aten.mul.Tensor"), ("SMALL/sum", "aten.add.Tensor")])
def test_arithmetic_that_the_original_does_not_do_is_rejected_by_name(manifest: Manifest, case: str, op: str) -> None:
    judged = screen.screen(only(manifest, case), screen.ops_of(only(manifest, "CASES/plain")))
    assert judged is not None
    assert (judged.verdict, judged.stage) == (Verdict.REJECTED, "screen")
    assert judged.reason == f"uses torch ops that the original launcher does not: {op}"


@pytest.mark.parametrize("case", ["SMALL/product", "SMALL/sum"])
def test_what_the_original_used_is_allowed(manifest: Manifest, case: str) -> None:
    candidate = only(manifest, case)
    assert screen.screen(candidate, screen.ops_of(candidate)) is None


def test_one_bad_plan_among_good_ones_is_enough(manifest: Manifest) -> None:
    judged = screen.screen(manifest, {"aten.mul.Tensor"})
    assert judged is not None and judged.reason.endswith(": aten.add.Tensor")


def test_a_second_configuration_is_looked_at_as_the_first(manifest: Manifest) -> None:
    (plain,), (product,) = (manifest["plans"][c].values() for c in ("CASES/plain", "SMALL/product"))
    candidate = manifest | {"plans": {"CASES/plain": {"first": plain, "second": product}}}
    assert screen.screen(candidate, set()) is not None


def test_a_matmul_in_the_launcher_is_rejected(manifest: Manifest) -> None:
    """As the tracer records it: one step beside the launch of a kernel that does nothing for the result."""
    (plan,) = only(manifest, "CASES/plain")["plans"]["CASES/plain"].values()
    out = plan["out"]
    product = {"op": "aten.mm.default", "args": [out[0], out[0]], "kwargs": {}, "out": out}
    candidate = manifest | {"plans": {"CASES/plain": {"as written": plan | {"steps": [*plan["steps"], product]}}}}
    judged = screen.screen(candidate, screen.ops_of(manifest))
    assert judged is not None and judged.verdict == Verdict.REJECTED
    assert "aten.mm.default" in judged.reason


def test_a_matmul_in_the_launcher_does_not_even_build(workshop: Workshop) -> None:
    built = workshop.build("HELD_OUT")
    assert not built.ok
    (failure,) = built.failures
    assert failure.kind == "rejected"
    assert "aten.mm.default" in failure.message
