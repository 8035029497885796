"""A case that is profiled by a judge elsewhere asks much at once: each round there and back costs a person minutes.

Nobody answers here. The kernels, their builds and the folder between are real.
"""

from pathlib import Path

import pytest
from pgo_agent.agent.profile.case_profile import Means, Wanted, case_profile
from pgo_agent.agent.profile.pass_runner import GpuBudget
from pgo_agent.sandbox import target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.spool.client import Unanswered
from pgo_agent.sandbox.profile.kernel_profile import PassName

from tests.agent.command_line import ADD
from tests.sandbox.spooling import H200, Spool

TWICE = """
@triton.jit
def _halve(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.5, mask=at < n)


"""


def two_kernels() -> str:
    """A sum, and half of it by a second kernel."""
    text = ADD.replace("def kernel(", TWICE.lstrip() + "def kernel(", 1)
    assert text.count("    return z") == 1
    return text.replace(
        "    return z", "    _halve[(triton.cdiv(z.numel(), 256),)](z, z.numel(), BLOCK=256)\n    return z"
    )


@pytest.mark.long
def test_one_round_asks_about_all_kernels_and_for_the_peaks(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(two_kernels())
    subject, spool = target.read(path), Spool(tmp_path, path)
    builder, judge = Builder(subject, H200, box.choose(), spool.contents), spool.judge()
    built = builder.build(subject.source, {"CASES": ["1m"]}, 1)
    ((case, (choice,)),) = built.choices.items()
    means = Means(builder, GpuBudget(judge, 1e3), frozenset({PassName.TIMELINE}))
    with judge.scope(case), pytest.raises(Unanswered):
        case_profile(means, Wanted(subject.source, built.bundle, case, choice.label, "why"))
    asked = [protocol.request(spool.folder.request(a)) for a in spool.folder.requests()]
    assert [r.do for r in asked].count("peaks") == 1
    kernels = [(str(r.fields["instrumented"]["bundle"]), str(r.fields["kernel"])) for r in asked if r.do == "timeline"]
    assert {spool.contents.manifest(b)["kernels"][k]["name"] for b, k in kernels} == {"_add", "_halve"}
