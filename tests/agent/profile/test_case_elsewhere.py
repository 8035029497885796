"""A case that is profiled by a judge elsewhere asks much at once: each round there and back costs a person minutes.

Nobody answers here. The kernels, their builds and the folder between are real.
"""

from pathlib import Path

import pytest
from pgo_agent.agent.profile.case_profile import Means, Wanted, case_profile
from pgo_agent.agent.profile.pass_runner import GpuBudget
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.client import SpoolJudge, Unanswered
from pgo_agent.sandbox.judge.spool.folder import Folder
from pgo_agent.sandbox.profile.kernel_profile import PassName

from tests.agent.command_line import ADD

TWICE = """
@triton.jit
def _halve(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.5, mask=at < n)


"""
H100 = devices.find("h100")


def two_kernels() -> str:
    """A sum, and half of it by a second kernel."""
    text = ADD.replace("def kernel(", TWICE.lstrip() + "def kernel(", 1)
    assert text.count("    return z") == 1
    return text.replace(
        "    return z", "    _halve[(triton.cdiv(z.numel(), 256),)](z, z.numel(), BLOCK=256)\n    return z"
    )


def test_one_round_asks_about_all_kernels_and_for_the_peaks(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(two_kernels())
    subject = target.read(tmp_path / "two.py")
    contents = ContentStore(tmp_path / "contents")
    builder = Builder(subject, H100, box.choose(), contents)
    built = builder.build(subject.source, {"CASES": ["1m"]}, 1)
    assert built.bundle
    judge = SpoolJudge(tmp_path / "box", H100, subject, wait=False)
    judge.begin("add-1", contents, lambda *_: True)
    ((case, (choice,)),) = built.choices.items()
    means = Means(builder, GpuBudget(judge, 1e3), frozenset({PassName.TIMELINE}))
    with judge.scope(case), pytest.raises(Unanswered):
        case_profile(means, Wanted(subject.source, built.bundle, case, choice.label, "why"))
    folder = Folder(tmp_path / "box")
    asked = [protocol.request(folder.request(a)) for a in folder.requests()]
    assert [r.do for r in asked].count("peaks") == 1
    kernels = [(str(r.fields["instrumented"]["bundle"]), str(r.fields["kernel"])) for r in asked if r.do == "timeline"]
    assert {contents.manifest(b)["kernels"][k]["name"] for b, k in kernels} == {"_add", "_halve"}
