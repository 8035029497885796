"""Each example of an answer that a prompt shows is one that the reader of replies makes a candidate of."""

import doctest
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.agent.llm import replies
from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.agent.proposal.prompt import layout
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate.barriers import runs
from pgo_agent.sandbox.gate.barriers.finding import Kind
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.ttgir import edits, reader
from pgo_agent.sandbox.ttgir.pseudocode.view import readable

from tests.agent.facts import FULL, WHOLE

MATMUL = """\
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 16}, num_warps=4)], key=[])
@triton.jit
def _add(a, b, acc, BLOCK: tl.constexpr):
    acc = tl.dot(a, b) + acc


def kernel(a, b):
    _add[(1,)](a, b, 0)
    return a


def reference(a, b):
    return a @ b.T


def inputs(case, generator):
    def tensor(n):
        return torch.randn((n, case["K"]), generator=generator, device=generator.device).to(torch.float16)

    return {"a": tensor(case["M"]), "b": tensor(case["N"])}


CASES = {"4k": dict(M=1000, N=500, K=1024)}
SMALL = {"ragged": dict(M=100, N=40, K=72)}
HELD_OUT = {"other": dict(M=10, N=50, K=128)}


def flops(case):
    return 2 * case["M"] * case["N"] * case["K"]


def bytes_moved(case):
    return 2 * case["K"] * (case["M"] + case["N"])
"""


def form(name: str, **facts: object) -> str:
    """A section as a reply, below a sentence."""
    (section,) = [s for s in layout.sections(replace(FULL, **facts)) if s.name == f"form {name}"]  # type: ignore[arg-type]
    return f"It waits.\n\n{section.text}\n"


def shown(text: str) -> Shown:
    module = reader.parse(text)
    return Shown("CASES/4k", "_add", "b" * 64, "b" * 64, {"BLOCK": 16}, text, module, readable(module))


def example_text() -> str:
    """The kernel that the worked example of edit scripts is about."""
    (found,) = [t for t in doctest.DocTestFinder().find(edits, "edits") if t.examples]
    return str(eval(found.examples[3].source.partition("reader.parse(")[2].strip().removesuffix(")")))


def one(reply: str, source: str = MATMUL, kernel: Shown | None = None) -> replies.Proposed:
    found = replies.parse(reply, source, kernel)
    assert found.errors == [] and len(found.candidates) == 1
    return found.candidates[0]


def test_the_edit_of_source() -> None:
    found = one(form("source"))
    assert found.kind == "source" and "acc = tl.dot(a, b, acc)" in found.source and found.rationale == "It waits."


def test_the_launch_parameters() -> None:
    found = one(form("launch", launch='[{"BLOCK": 32, "num_warps": 8}]'))
    assert found.kind == "launch" and '{"BLOCK": 32}, num_warps=8' in found.source


def test_launch_parameters_of_one_of_several_kernels() -> None:
    two = MATMUL.replace("def kernel(", "_more = triton.jit(lambda x: x)\n\n\ndef kernel(")
    found = one(form("launch", launch=json.dumps({"_add": [{"BLOCK": 64, "num_warps": 8}]})), two)
    assert found.kind == "launch" and '{"BLOCK": 64}, num_warps=8' in found.source


def test_the_edit_script() -> None:
    found = one(form("edits"), kernel=shown(example_text()))
    assert found.kind == "ttgir" and "math.absf" in found.source and "// replaces: " in found.source


def test_the_whole_ttgir() -> None:
    assert FULL.code is not None
    reply = form("ttgir", code=replace(FULL.code, whole=WHOLE))
    found = one(reply, kernel=shown(WHOLE))
    assert found.kind == "ttgir" and "tt.func public @_add()" in found.source


def test_several_candidates() -> None:
    heading = form("several").rpartition("\n\n")[2]
    assert heading.startswith("## Candidate 1: ")
    second = form("launch", launch='[{"BLOCK": 32, "num_warps": 8}]')
    reply = f"{heading}{form('source')}\n{heading.replace('1', '2')}{second}"
    found = replies.parse(reply, MATMUL)
    assert [c.kind for c in found.candidates] == ["source", "launch"] and found.errors == []


def test_the_gluon_kernel_is_one() -> None:
    assert one(form("gluon")).kind == "gluon"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ContentStore, list[str], list[str]]:
    """The Gluon example, traced and compiled for an H200 by the installed Triton: shelf, builds, failures."""
    folder = tmp_path_factory.mktemp("gluon")
    path = Path(folder / "matmul.py")
    path.write_text(MATMUL)
    contents, source = ContentStore(folder / "shelf"), one(form("gluon")).source
    builder = Builder(target.read(path), devices.find("h200"), box.choose("auto"), contents)
    found = builder.build(source, {"CASES": ["4k"], "SMALL": ["ragged"]}, 1)
    keys = list(contents.manifest(found.bundle)["kernels"]) if found.bundle else []
    return contents, keys, [f.message for f in found.failures]


def test_the_gluon_kernel_compiles_with_the_installed_triton(built: tuple[ContentStore, list[str], list[str]]) -> None:
    assert built[1] and built[2] == []


def test_the_barriers_of_the_gluon_kernel_are_in_order(built: tuple[ContentStore, list[str], list[str]]) -> None:
    contents, keys, _ = built
    for build in map(contents.build, keys):
        assert build is not None
        text = contents.get(build["kernel"]["files"]["ttgir"], "ttgir").decode()
        assert runs.simulate(reader.parse(text)).kind is Kind.NONE


def test_what_a_card_imports_from_gluon_is_there() -> None:
    (card,) = [s.text for s in layout.sections(FULL) if s.name == "gluon"]
    for said in re.findall(r"`(from\s+[^`]+)`", card):
        exec(" ".join(said.split()), {})


def test_a_form_is_offered_where_it_can_be_answered() -> None:
    names = {s.name for s in layout.sections(replace(FULL, code=None, gluon=(), launch=""))}
    assert {n for n in names if n.startswith("form ")} == {"form source", "form several"}
