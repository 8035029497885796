"""judge/timing/regression.py: whether a kernel became slower, by samples that an H200 and an H100 gave.

Each recorded session timed the kernel as shipped, the same again (A/A), and the tuned baseline beside them. Where the
tuned baseline is the very same plan, it is a candidate of which the truth is known: it is as fast. Made slower by a
factor, it is a regression whose size is known.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict
from pgo_agent.sandbox.judge.timing import regression
from pgo_agent.sandbox.judge.timing.decision import Samples
from pgo_agent.sandbox.judge.timing.sequential import LOTS

EVALS = Path(__file__).parents[4] / "evals"
FILES = (
    "results/nightly-h200.jsonl",
    "results/nightly-h100.jsonl",
    "results/fa_fwd-claude-h200.jsonl",
    "results/gemm-claude-h200.jsonl",
    "results/fa_bwd-claude-h200.jsonl",
    "field/results/h100.jsonl",
)


def sessions() -> Iterator[Samples]:
    """The recorded sessions, with the cases in which the tuned baseline is the kernel as shipped."""
    for line in (text for name in FILES for text in (EVALS / name).read_text().splitlines()):
        rows = json.loads(line).get("cases")
        timed = {c: row for c, row in rows.items() if "tuned" in row.get("plans", {})} if isinstance(rows, dict) else {}
        alike = {c: r for c, r in timed.items() if r["plans"]["tuned"]["plan_id"] == r["plans"]["shipped"]["plan_id"]}
        found = {c: {"incumbent": r["ms"]["shipped"], "A/A": r["ms"]["A/A"], "candidate": r["ms"]["tuned"]}
                 for c, r in alike.items()}  # fmt: skip
        if found:
            yield found


@cache
def recorded() -> tuple[Samples, ...]:
    return tuple(sessions())


def slowed(times: Samples, by: float) -> Samples:
    return {c: {**sides, "candidate": [by * ms for ms in sides["candidate"]]} for c, sides in times.items()}


def judged(times: Samples, last: bool = True) -> Judgement:
    verdict, why, figures = regression.on_time(times, dict.fromkeys(times, 0.0), "incumbent", None, len(LOTS), last)
    return Judgement(verdict, "time", why, figures, coverage.of(cases=len(times)))


@cache
def firm() -> Counter[Verdict]:
    """What is said of the recorded sessions when no more samples come."""
    return Counter(judged(times).verdict for times in recorded())


def test_the_same_kernel_is_never_called_slower_and_nearly_always_not_slower() -> None:
    counts = firm()
    assert counts[Verdict.SLOWER] == 0
    assert counts[Verdict.NOT_SLOWER] >= 0.9 * len(recorded()) > 30


@pytest.mark.parametrize(("by", "found"), [(1.02, 0.85), (1.05, 0.95)])
def test_a_kernel_that_is_slower_is_found_and_never_passes(by: float, found: float) -> None:
    verdicts = Counter(judged(slowed(times, by)).verdict for times in recorded())
    assert verdicts[Verdict.SLOWER] >= found * len(recorded())
    assert verdicts[Verdict.NOT_SLOWER] == 0


def test_the_loss_is_said_with_its_interval_and_is_true_to_half_a_percent() -> None:
    one = max(recorded(), key=len)
    said = judged(slowed(one, 1.05)).why.for_person()
    assert said.startswith("slower by ") and "CASES/" in said
    mid, low, high = (
        float(x.strip(" %[];,")) for x in said.removeprefix("slower by ").split(";")[0].split() if x != "%"
    )
    assert low <= mid <= high and abs(mid - 5.0) < 0.5


def test_a_loss_in_one_case_of_several_is_named_with_that_case() -> None:
    one = max(recorded(), key=len)
    case = max(one)
    times = {c: slowed({c: sides}, 1.06 if c == case else 1.0)[c] for c, sides in one.items()}
    found = judged(times)
    assert found.verdict == Verdict.SLOWER and case in found.evidence["slower"], found.why  # type: ignore[operator]
    assert all(other not in found.why.for_person() for other in one if other != case)


def test_as_long_as_more_samples_come_only_a_sure_answer_ends_it() -> None:
    open_ = Counter(judged(times, last=False).verdict for times in recorded())
    assert open_[Verdict.UNDECIDED] > firm()[Verdict.UNDECIDED] and open_[Verdict.SLOWER] == 0


def test_a_kernel_that_differs_from_itself_by_more_than_a_regression_tells_nothing() -> None:
    one = {c: {**s, "A/A": [1.08 * ms for ms in s["A/A"]]} for c, s in max(recorded(), key=len).items()}
    assert judged(one).verdict == Verdict.UNDECIDED


def test_what_is_faster_is_not_slower_and_says_so() -> None:
    found = judged(slowed(max(recorded(), key=len), 0.9))
    assert found.verdict == Verdict.NOT_SLOWER and found.why.for_person().startswith("faster: 1.1")


SLOW = {"slower": ["CASES/a", regression.ALL]}


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ((Verdict.NOT_SLOWER, {}), (Verdict.NOT_SLOWER, {}), Verdict.NOT_SLOWER),
        ((Verdict.SLOWER, SLOW), (Verdict.SLOWER, {"slower": ["CASES/a"]}), Verdict.SLOWER),
        ((Verdict.SLOWER, {"slower": ["CASES/b"]}), (Verdict.SLOWER, {"slower": ["CASES/a"]}), Verdict.UNDECIDED),
        ((Verdict.SLOWER, SLOW), (Verdict.NOT_SLOWER, {}), Verdict.UNDECIDED),
        ((Verdict.NOT_SLOWER, {}), (Verdict.UNDECIDED, {}), Verdict.UNDECIDED),
    ],
)
def test_two_sessions_must_agree_and_on_the_same_case(
    first: tuple[Verdict, dict[str, object]], second: tuple[Verdict, dict[str, object]], verdict: Verdict
) -> None:
    said = [
        Judgement(v, "time", plain(f"{v}-{n}"), e, coverage.of(cases=1)) for n, (v, e) in enumerate((first, second))
    ]
    found, why = regression.agreed(*said)
    assert found == verdict
    assert all(str(j.why) in why.for_person() for j in said)
