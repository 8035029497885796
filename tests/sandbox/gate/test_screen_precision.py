"""gate/screen.py: dots in a narrower type than the original's are refused, split ones and wider ones are not."""

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

from tests.shared_builds import lend

TARGET = """
import torch
import triton
import triton.language as tl


@triton.jit
def _product(x, y, z, WAY: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(x + at), tl.load(y + at)
    if WAY == "fp8":
        c = tl.dot(a.to(tl.float8e4nv), b.to(tl.float8e4nv)).to(tl.float32)
    elif WAY == "fp16":
        c = tl.dot(a.to(tl.float16), b.to(tl.float16))
    elif WAY == "added up in fp16":
        c = tl.dot(a.to(tl.float16), b.to(tl.float16), out_dtype=tl.float16).to(tl.float32)
    else:
        c = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=WAY)
    tl.store(z + at, c)


def kernel(x, y, way):
    z = torch.empty(64, 64, device=x.device)
    _product[(1,)](x, y, z, WAY=way, N=64)
    return z


def reference(x, y, way):
    return x @ y


def inputs(case, generator):
    x, y = (torch.randn(64, 64, generator=generator, device=generator.device, dtype=torch.float16) for _ in "xy")
    return {"x": x, "y": y, "way": case["way"]}


CASES = {w: dict(way=w) for w in ("fp8", "fp16", "added up in fp16", "tf32", "tf32x3", "ieee")}
SMALL = HELD_OUT = {}
flops = bytes_moved = len
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> tuple[ContentStore, Built]:
    folder = tmp_path_factory.mktemp("precision")
    path = folder / "product.py"
    path.write_text(TARGET)
    found, contents = target.read(path), ContentStore(lend(folder / "shelf"))
    built = Builder(found, devices.find("h200"), box.choose(), contents).build(found.source, {"CASES": None}, 1)
    assert built.ok and not built.failures, built.failures
    return contents, built


def said(workshop: tuple[ContentStore, Built], ours: str, theirs: str) -> Evidence:
    contents, built = workshop
    manifest = contents.manifest(built.bundle)

    def only(way: str) -> dict[str, object]:
        return manifest | {"plans": {"CASES/it": manifest["plans"][f"CASES/{way}"]}}

    return plan_rules.stage(side(contents, only(ours)), side(contents, only(theirs)))


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        ("fp8", "fp16", "operand of its dots is fp8 (e4m3), of the original's fp16 or tf32"),
        ("fp16", "ieee", "operand of its dots is fp16 or tf32, of the original's fp32"),
        ("tf32", "ieee", "operand of its dots is fp16 or tf32, of the original's fp32"),
        ("added up in fp16", "fp16", "accumulator of its dots is fp16 or tf32, of the original's fp32"),
    ],
)
def test_narrower_dots_are_rejected(workshop: tuple[ContentStore, Built], ours: str, theirs: str, reason: str) -> None:
    found = said(workshop, ours, theirs)
    assert found.verdict == Verdict.REJECTED
    assert reason in found.reason


@pytest.mark.parametrize(
    ("ours", "theirs"), [("fp16", "fp16"), ("ieee", "tf32"), ("tf32", "fp16"), ("fp16", "fp8"), ("tf32x3", "ieee")]
)
def test_dots_as_wide_wider_or_split_are_not(workshop: tuple[ContentStore, Built], ours: str, theirs: str) -> None:
    assert said(workshop, ours, theirs).verdict is None


def test_a_held_out_case_with_narrower_dots_is_rejected_and_not_named(workshop: tuple[ContentStore, Built]) -> None:
    contents, built = workshop
    manifest = contents.manifest(built.bundle)
    plans = {way: manifest["plans"][f"CASES/{way}"] for way in ("fp16", "ieee", "tf32")}
    original = {"CASES/it": plans["fp16"], "HELD_OUT/secret": plans["ieee"]}
    sides = [
        side(contents, manifest | {"plans": original | {"HELD_OUT/secret": plans[way]}}) for way in ("tf32", "ieee")
    ]
    refused, fine = (plan_rules.stage(s, side(contents, manifest | {"plans": original})) for s in sides)
    assert (refused.verdict, fine.verdict) == (Verdict.REJECTED, None)
    assert refused.reason.startswith("a held-out case: an operand of its dots is fp16 or tf32")
    assert refused.why.for_model(["secret"]) == FAILS


def test_a_held_out_case_may_use_what_another_configuration_uses_on_inputs_of_the_same_types(
    workshop: tuple[ContentStore, Built],
) -> None:
    contents, built = workshop
    manifest = contents.manifest(built.bundle)
    wide, narrow = (manifest["plans"][f"CASES/{way}"] for way in ("fp16", "fp8"))
    ((label, plan),) = narrow.items()
    of_the_same = {label: plan | {"inputs": next(iter(wide.values()))["inputs"]}}
    public = wide | {"with fp8 dots": of_the_same[label]}
    for configurations, verdict in ((public, None), (wide | {"with fp8 dots": plan}, Verdict.REJECTED)):
        original = manifest | {"plans": {"CASES/it": configurations, "HELD_OUT/secret": wide}}
        candidate = manifest | {"plans": {"CASES/it": wide, "HELD_OUT/secret": of_the_same}}
        assert plan_rules.stage(side(contents, candidate), side(contents, original)).verdict == verdict


def test_a_case_that_the_original_has_no_build_of_is_said_to_be_left_out(workshop: tuple[ContentStore, Built]) -> None:
    contents, built = workshop
    manifest = contents.manifest(built.bundle)
    original = manifest | {"plans": {"CASES/ieee": manifest["plans"]["CASES/ieee"]}}
    found = plan_rules.stage(
        side(contents, original | {"plans": original["plans"] | {"CASES/b": original["plans"]["CASES/ieee"]}}),
        side(contents, original),
    )
    assert found.verdict is None and "b" in found.coverage.skipped
