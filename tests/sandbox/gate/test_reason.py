"""What a model is told of a failure on a held-out case: no name, no bound, no count, whichever stage found it.

Reasons come from the judge itself, on the CPU: its interpreter, its comparisons, and the stages of the gate. Tests of
the stages that build whole bundles (offsets, plan rules, the second build) attack the same beside their own.
"""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.gate import coverage, reason
from pgo_agent.sandbox.gate.evidence import Side
from pgo_agent.sandbox.gate.reason import FAILS, UNTOLD, Clause, Kind, Reason, counted, figure, of_case, plain, quoted
from pgo_agent.sandbox.gate.synchronisation import stage as synchronisation_stage
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.interface import Ended, of_ended
from pgo_agent.sandbox.judge.results import commands, numerics
from pgo_agent.sandbox.judge.spool import protocol
from pgo_agent.sandbox.judge.timing import decision as timing_verdict

from tests import judges
from tests.judges import judge_of
from tests.sandbox.flag_kernels import step_of, tensor, ttgir_of
from tests.shared_builds import lend

ADD = Path(__file__).parents[2] / "kernels" / "add.py"
HIDDEN = ["odd"]  # of that target
SECRETS = ("odd", "9991", "9_991", "held", " above ", "HELD_OUT")
RESULT = "    return z\n"


def secrets_in(text: str) -> list[str]:
    return [s for s in SECRETS if s in text]


@pytest.fixture(scope="module")
def addition() -> GpuJudge:
    return judge_of(ADD)


def judged(judge: GpuJudge, old: str = "", new: str = "") -> Judgement:
    """The same as it comes over the wire."""
    return Judgement.from_json(json.loads(json.dumps(judges.judged(judge, old, new).as_json())))


# Triton's interpreter -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("tl.load(y_ptr + at, mask=inside)", "tl.load(y_ptr + at, mask=inside) * (n != 9991)", Verdict.WRONG),
        (", mask=inside)\n\n", ", mask=inside | (n == 9991))\n\n", Verdict.WRONG),
        ("    z = torch", '    assert x.numel() != 9991, f"odd: {x.numel()}"\n    z = torch', Verdict.BUILD_ERROR),
        (RESULT, f"    if x.numel() == 9991:\n        x.add_(1)\n{RESULT}", None),
    ],
    ids=["a wrong result", "a store outside", "an error of its own", "changed inputs"],
)
def test_of_what_fails_on_a_held_out_case_a_model_hears_only_that_it_does(
    addition: GpuJudge, old: str, new: str, verdict: Verdict | None
) -> None:
    found = judged(addition, old, new)
    assert found.verdict == verdict or (verdict is None and found.verdict in (Verdict.CHEATING, Verdict.REJECTED))
    assert found.reason.startswith("a held-out case: ") and found.why.for_model(HIDDEN) == FAILS


def test_a_candidate_that_tells_the_name_of_a_held_out_case_on_a_public_one_is_not_quoted(addition: GpuJudge) -> None:
    found = judged(addition, "    z = torch", '    raise ValueError("it is odd")\n    z = torch')
    assert "it is odd" in found.reason and found.why.for_model(HIDDEN) == FAILS


def test_a_model_hears_the_error_on_a_public_case_without_its_bound(addition: GpuJudge) -> None:
    found = judged(addition, "mask=inside) + tl.load", "mask=inside) - tl.load")
    bound = found.reason.rpartition(" above ")[2]
    assert found.reason.startswith("even: output 0: max error") and float(bound) > 0
    told = found.why.for_model(HIDDEN)
    assert told == found.reason.removesuffix(f" above {bound}") and not secrets_in(told)
    (clause,) = (c for c in found.why.clauses if c.bound is not None)
    assert clause.kind is Kind.WITHHELD and f"{clause.bound:.3g}" == bound


def test_of_what_is_right_a_model_does_not_hear_how_many_held_out_cases_there_are(addition: GpuJudge) -> None:
    found = judged(addition)
    assert found.verdict == Verdict.CHECKED and ", 1 held-out case, " in found.reason
    told = found.why.for_model(HIDDEN)
    assert told == found.reason.replace(", 1 held-out case", "") and not secrets_in(told)


# the stages on a GPU --------------------------------------------------------------------------------------------------


def comparison(case: str, output: torch.Tensor) -> numerics.Comparison:
    """What the judge says of an output where zeros are expected."""
    target = ModuleType("target")
    target.inputs = lambda case, generator: {"x": torch.zeros(256)}  # type: ignore[attr-defined]
    target.reference = lambda x: x  # type: ignore[attr-defined]
    return numerics.check([output], numerics.expect(target, case, {}, 1, torch.device("cpu")))


@pytest.mark.parametrize(
    "output", [torch.ones(256), torch.full((256,), float("nan")), torch.ones(255)], ids=["far", "NaN", "another shape"]
)
@pytest.mark.parametrize("stage", ["smoke", "numerics", "confirm", "race", "assembler"])
def test_a_comparison_that_fails_on_a_held_out_case_is_told_as_no_more_than_that(
    stage: str, output: torch.Tensor
) -> None:
    found = commands.failed(Verdict.WRONG, stage, "HELD_OUT/odd", comparison("HELD_OUT/odd", output), "BLOCK=64")
    assert found.reason.startswith("a held-out case (BLOCK=64): output") and found.why.for_model(HIDDEN) == FAILS
    public = commands.failed(Verdict.WRONG, stage, "CASES/1m", comparison("CASES/1m", output))
    assert public.why.for_model(HIDDEN).startswith("1m: output") and not secrets_in(public.why.for_model(HIDDEN))


@pytest.mark.parametrize("timed_out", [True, False])
@pytest.mark.parametrize("stage", ["smoke", "quick", "numerics", "confirm", "race", "launches"])
def test_a_hang_or_a_crash_on_a_held_out_case_is_told_as_no_more_than_that(stage: str, timed_out: bool) -> None:
    found = of_ended("judge", Ended(f"{stage} HELD_OUT/odd", timed_out, "an illegal memory access at 9991"))
    assert (found.stage, found.why.for_model(HIDDEN)) == (stage, FAILS)


@pytest.mark.parametrize("candidate", [0.9999, 1.0, 0.999])
def test_a_model_does_not_hear_how_much_of_a_gain_counts_as_one(candidate: float) -> None:
    sides = {"incumbent": [1.0, 1.001] * 6, "A/A": [1.0, 1.001] * 6, "candidate": [candidate, candidate + 0.001] * 6}
    _, why, found = timing_verdict.on_time({"CASES/1m": sides}, {"CASES/1m": 0.0}, "incumbent", None)
    assert f" above {found['threshold']:.3f}" in why.for_person()
    assert "above" not in why.for_model(HIDDEN) and f"{found['threshold']:.3f}" not in why.for_model(HIDDEN)


def test_what_hangs_in_the_launch_of_a_held_out_case_is_told_as_no_more_than_that(tmp_path: Path) -> None:
    contents = ContentStore(lend(tmp_path))
    kernel = {"name": "_grid", "files": {"ttgir": contents.put(ttgir_of("grid").encode(), "ttgir")}, "arch": 90}
    kernel |= {"launch_pdl": False, "launch_cooperative_grid": False, "shared": 0, "num_warps": 4, "num_ctas": 1}
    zero = {"op": "aten.zero_.default", "args": [tensor(2)], "out": [tensor(2)]}
    plan = {"steps": [zero, step_of("grid", 9001)]}

    def evidence(case: str) -> Any:
        side = Side(contents, {"kernels": {"grid": kernel}}, {case: [plan]}, {"grid": {"registers": 32}})
        none = Side(contents, {"kernels": {"grid": kernel}}, {}, {})
        return synchronisation_stage.stage(side, none)

    held_out, public = evidence("HELD_OUT/odd"), evidence("CASES/1m")
    assert held_out.verdict == public.verdict == Verdict.DEADLOCK
    assert "9001" in public.why.for_model(HIDDEN) and held_out.why.for_model(HIDDEN) == FAILS


# reasons as such ------------------------------------------------------------------------------------------------------

_WORDS = st.text("abcdefgh .:", max_size=20)
_CASES = st.sampled_from(["CASES/1m", "even", "HELD_OUT/odd"])
_REASONS = st.one_of(
    _WORDS.map(plain),
    st.builds(quoted, st.one_of(_WORDS, st.sampled_from(["odd", "on a held-out case", "HELD_OUT/x", "at odd:"]))),
    st.builds(of_case, _CASES, _WORDS),
    st.builds(figure, _WORDS, st.integers(0, 3), st.floats(), st.just(1.5e-7)),
    st.builds(
        lambda small, held: counted(coverage.of(small_cases=(small, 2), **{"held-out_cases": (held, 7)})),
        st.integers(0, 2),
        st.integers(0, 7),
    ),
)


@given(st.lists(_REASONS, max_size=5))
def test_however_a_reason_is_put_together_a_model_sees_no_name_bound_or_count(parts: list[Reason]) -> None:
    whole = reason.joined("; ", parts)
    told = whole.for_model(HIDDEN)
    assert not secrets_in(told) and "1.5e-07" not in told and "of 7" not in told
    assert told == FAILS or "held-out case:" not in whole.for_person()
    assert reason.from_json(str(whole), json.loads(json.dumps(whole.as_json()))) == whole


@pytest.mark.parametrize(
    "text",
    ["1m: output 0: max error 3 above 0.02", "odd: wrong", "right on 2 small cases, 1 held-out case", "in HELD_OUT/x"],
)
def test_prose_that_came_without_its_clauses_is_not_shown_in_doubt(text: str) -> None:
    old = Judgement.from_json({"verdict": "wrong", "stage": "numerics", "reason": text, "evidence": {}})
    assert (old.reason, old.why.for_model(HIDDEN)) == (text, UNTOLD)
    slower = {"verdict": "slower", "stage": "quick", "reason": "0.98x of the incumbent", "evidence": {}}
    fine = Judgement.from_json(slower)
    assert fine.why.for_model(HIDDEN) == "0.98x of the incumbent"


def test_a_judge_elsewhere_answers_with_clauses_and_none_that_nobody_knows() -> None:
    found = Judgement(Verdict.WRONG, "numerics", of_case("HELD_OUT/odd") + figure("max error", 0, 3e38, float("inf")))
    protocol._verdict(json.loads(json.dumps(found.as_json())))
    forged = found.as_json() | {"why": [Clause("x").as_json() | {"kind": "shown"}]}
    with pytest.raises(protocol.BadBundle):
        protocol._verdict(forged)
