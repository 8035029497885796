"""A twin of a bundle is a valid bundle of the same launches, compiled in another way; one that fails says why."""

import contextlib
import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build import variants
from pgo_agent.sandbox.build.builder import Builder, Built, limits_of
from pgo_agent.sandbox.bundle import elf, validate
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.compiler import ptxas
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation import box

from tests.sandbox.conftest import ADD

ATTENTION = Path(__file__).parents[3] / "evals" / "corpus" / "targets" / "attention_specialized.py"


@pytest.mark.slow
def test_a_warp_specialized_kernel_gets_a_twin_that_asserts_and_needs_scratch(tmp_path: Path) -> None:
    subject, contents = target.read(ATTENTION), ContentStore(tmp_path)
    builder = Builder(subject, devices.find("h200"), box.choose(), contents)
    built = builder.build(subject.source, {"SMALL": None}, 1)
    assert built.ok, built.failures
    ((case, (choice,)),) = built.choices.items()
    found = variants.sanitized(builder, built.bundle, {case: choice.label})
    assert not found.problem
    allowed = replace(limits_of(builder.device), variables=True)
    twin = validate.load(contents.bundle(found.bundle), contents.artefacts, allowed)
    ((key, kernel),) = twin.kernels.items()
    assert kernel.global_scratch_size + kernel.profile_scratch_size > 0
    assert kernel.name == "_attention"
    assert b"__assertfail" in contents.get(kernel.files["ptx"], "ptx")
    assert key not in built.codes  # never the build that is timed
    with pytest.raises(BadBundle, match="device variables"):
        validate.load(contents.bundle(found.bundle), contents.artefacts, limits_of(builder.device))
    assert twin.plans[case][choice.label].launches[0].grid == (2, 2, 1)
    assert variants.miscounts(contents, found) == (version("triton") == "3.6.0")  # both halves of Q have one barrier


SHARED = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _product(a, b, C, K, N: tl.constexpr):
    i, acc = tl.arange(0, N), tl.zeros([N, N], tl.float32)
    for k in tl.range(0, K, 64, num_stages=3):
        acc = tl.dot(a.load([0, k]), b.load([0, k]).T, acc)
    tl.store(C + i[:, None] * N + i[None, :], acc)


def kernel(a, b):
    c = torch.empty((128, 128), device=a.device, dtype=torch.float32)
    _product[(1,)](*(TensorDescriptor.from_tensor(t, [128, 64]) for t in (a, b)), c, a.shape[1], N=128, num_warps=8)
    return c


def reference(a, b):
    return a.to(torch.float32) @ b.to(torch.float32).T


def inputs(case, generator):
    return {n: torch.randn((128, 512), generator=generator, device=generator.device).half() for n in "ab"}


def flops(case):
    return 2 * 128 * 128 * 512


def bytes_moved(case):
    return 2 * 128 * 512 * 2 + 4 * 128 * 128


CASES = SMALL = HELD_OUT = {"it": {}}
"""


@pytest.mark.slow
def test_a_sanitizer_that_takes_copies_for_arrivals_is_known_by_its_build(tmp_path: Path) -> None:
    """Triton 3.6.0 does: both tiles of a turn complete on one barrier, and its picture of that turns twice."""
    path = tmp_path / "shared.py"
    path.write_text(SHARED)
    contents, subject = ContentStore(tmp_path / "shelf"), target.read(path)
    builder = Builder(subject, devices.find("h200"), box.choose(), contents)
    built = builder.build(subject.source, {"CASES": None}, 1)
    assert built.ok, built.failures
    ((case, (choice,)),) = built.choices.items()
    found = variants.sanitized(builder, built.bundle, {case: choice.label})
    assert not found.problem
    assert variants.miscounts(contents, found) == (version("triton") == "3.6.0")


def test_a_twin_that_does_not_compile_says_why(add_contents: ContentStore) -> None:
    subject = target.read(ADD)
    builder = Builder(subject, devices.find("h200"), box.choose(), add_contents)
    built = builder.build(subject.source, {"SMALL": ["even"]}, 1)
    ((case, (choice,)),) = built.choices.items()
    (key,) = choice.kernels
    text = add_contents.get(add_contents.manifest(built.bundle)["kernels"][key]["files"]["ttgir"], "ttgir")
    told = (add_contents.build(key) or {})["options"] | {"sanitize": True}
    add_contents.put_build(builder.key(text, told), {"error": "error: operation destroyed but still has uses"})
    found = variants.sanitized(builder, built.bundle, {case: choice.label})
    assert (found.bundle, found.problem) == ("", "error: operation destroyed but still has uses")


def test_a_lined_twin_is_the_same_code_and_says_where_it_comes_from(
    add_contents: ContentStore, add_built: Built
) -> None:
    builder = Builder(target.read(ADD), devices.find("h200"), box.choose(), add_contents)
    ((case, (choice,)),) = add_built.choices.items()
    found = variants.lined(builder, add_built.bundle, {case: choice.label})
    assert not found.problem
    ((key, kernel),) = validate.load(
        add_contents.bundle(found.bundle), add_contents.artefacts, limits_of(builder.device)
    ).kernels.items()
    assert key not in choice.kernels
    own = add_contents.manifest(add_built.bundle)["kernels"][choice.kernels[0]]["files"]
    code = [
        [s.data for s in elf.sections(add_contents.get(d, "cubin")) if s.name.startswith(".text")]
        for d in (own["cubin"], kernel.files["cubin"])
    ]
    assert code[0] == code[1]
    lines = {int(n) for n in re.findall(rb'ttgir", line (\d+)', add_contents.get(kernel.files["sass"], "sass"))}
    text = add_contents.get(own["ttgir"], "ttgir").decode().splitlines()
    assert {op for n in lines for op in ("tt.load", "tt.store") if op in text[n - 1]} == {"tt.load", "tt.store"}


def second_ptxas() -> bool:
    with contextlib.suppress(BadBundle):
        return bool(ptxas.second())
    return False


@pytest.mark.skipif(not second_ptxas(), reason="needs the extra `assembler`: the package nvidia-cuda-nvcc")
def test_a_second_ptxas_makes_other_code_for_the_same_launches(tmp_path: Path) -> None:
    subject, contents = target.read(ADD), ContentStore(tmp_path)
    builder = Builder(subject, devices.find("h200"), box.choose(), contents)
    built = builder.build(subject.source, {"SMALL": ["even", "ragged"]}, 1)
    labels = {case: options[0].label for case, options in built.choices.items()}
    found = variants.reassembled(builder, built.bundle, labels)
    assert not found.problem
    own, other = (contents.manifest(b) for b in (built.bundle, found.bundle))
    assert {c: [s["grid"] for p in ps.values() for s in p["steps"]] for c, ps in own["plans"].items()} == {
        c: [s["grid"] for p in ps.values() for s in p["steps"]] for c, ps in other["plans"].items()
    }
    assert not {k["files"]["cubin"] for k in own["kernels"].values()} & {
        k["files"]["cubin"] for k in other["kernels"].values()
    }
