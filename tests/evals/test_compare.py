"""What became slower: the test is the one that it is called, and a word is only said of code that changed."""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pgo_agent.evals.nightly import load
from pgo_agent.evals.nightly.row import Row
from pgo_agent.evals.regressions import ranks, report
from pgo_agent.evals.regressions.compare import Compared, Standing, compare
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo
from tests.evals.rows import FA_FWD, H200, case, failed, kept_schema, night, row

few = st.lists(st.integers(0, 8), min_size=1, max_size=5)


# the test of ranks ----------------------------------------------------------------------------------------------------


def pairs_won(one: list[int], other: list[int]) -> float:
    """U: in how many pairs the sample of `other` is the larger; equal ones count half."""
    return sum((y > x) + 0.5 * (y == x) for x in one for y in other)


def by_hand(one: list[int], other: list[int]) -> float:
    """The share of all ways to deal the samples out anew that have as large a U, or larger."""
    both, u = [*one, *other], pairs_won(one, other)
    dealt = [set(taken) for taken in itertools.combinations(range(len(both)), len(one))]
    lots = [([both[i] for i in t], [x for i, x in enumerate(both) if i not in t]) for t in dealt]
    return sum(pairs_won(a, b) >= u for a, b in lots) / len(lots)


@given(few, few)
@settings(max_examples=50)
def test_without_ties_the_chance_is_that_of_all_ways_to_deal_the_samples(one: list[int], other: list[int]) -> None:
    each = iter(random.Random(len(one)).sample(range(100), len(one) + len(other)))
    a, b = [next(each) for _ in one], [next(each) for _ in other]
    assert ranks.larger(a, b) == pytest.approx(by_hand(a, b))


@given(st.lists(st.integers(0, 20), min_size=12, max_size=12))
@settings(max_examples=15)
def test_with_ties_the_chance_is_nearly_that(both: list[int]) -> None:
    assume(len(set(both)) >= 6)
    assert ranks.larger(both[:6], both[6:]) == pytest.approx(by_hand(both[:6], both[6:]), abs=0.06)


@pytest.mark.parametrize(
    ("one", "other", "chance"),
    [
        ([1, 2, 3], [4, 5, 6], 1 / 20),  # the most extreme of 20 ways
        (
            range(50),
            [x + 10.5 for x in range(50)],
            0.0005275082355568379,
        ),  # counted, as 2500 pairs are the most that are
        (range(60), [x + 10.5 for x in range(60)], 0.0012834439717620898),  # the normal approximation, for continuity
        ([1.0] * 10 + [2.0] * 10, [1.0] * 5 + [2.0] * 15, 0.05520789868216987),  # the correction for ties
    ],
)
def test_chances_are_those_of_the_formulas(one: Sequence[float], other: Sequence[float], chance: float) -> None:
    """Worked out by other code: Gaussian binomials where they are counted, else Lehmann, Nonparametrics, 1975."""
    assert ranks.larger(one, other) == pytest.approx(chance, rel=1e-9)


def test_equal_samples_are_no_difference() -> None:
    assert ranks.larger([2.0] * 30, [2.0] * 30) == 1.0


def test_nothing_is_compared_with_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        ranks.larger([], [1.0])


@given(st.dictionaries(st.integers(), st.floats(0, 1), max_size=8))
def test_a_corrected_chance_is_no_smaller_and_keeps_the_order(chances: dict[int, float]) -> None:
    found = ranks.holm(chances)
    assert all(chances[k] <= found[k] <= 1 for k in chances)
    ordered = sorted(chances, key=lambda k: chances[k])
    assert all(found[a] <= found[b] for a, b in itertools.pairwise(ordered))
    if chances:
        least = ordered[0]
        assert found[least] == min(1.0, chances[least] * len(chances))


def test_chance_alone_is_seldom_called_a_regression() -> None:
    """Over 100 comparisons of 20 cases each, drawn from one source: a false word in no more than its share."""
    draw = random.Random(7)
    false = 0
    for _ in range(100):
        lots = {n: [[draw.gauss(0, 1) for _ in range(12)] for _ in range(2)] for n in range(20)}
        false += min(ranks.holm({n: ranks.larger(*both) for n, both in lots.items()}).values()) < 0.05
    assert false <= 10  # 5 are expected


# rows -----------------------------------------------------------------------------------------------------------------


def word(before: Row, after: Row) -> Compared:
    (found,) = compare([before], [after]).cases
    return found


def of(ratio: float, codes: str = "one", **told: object) -> Row:
    return row({"CASES/1m": case(ratio, codes, **told)})  # type: ignore[arg-type]


def test_the_same_code_cannot_regress_whatever_its_times_are() -> None:
    assert word(of(1.2), of(1.0, turn=3)).standing == Standing.SAME


def test_other_code_that_is_slower_is_a_regression_and_the_other_way_round_is_none() -> None:
    fast, slow = of(1.2, "one"), of(1.1, "two", turn=5)
    assert word(fast, slow).standing == Standing.SLOWER and word(slow, fast).standing == Standing.FASTER
    assert word(fast, slow).change == pytest.approx(1.2 / 1.1, rel=0.01)


def test_a_difference_below_the_least_effect_counts_nothing_however_sure_it_is() -> None:
    found = word(of(1.100, "one"), of(1.085, "two", turn=5))
    assert found.standing == Standing.EQUAL and found.chance is not None and found.chance < 1e-6
    (sure,) = compare([of(1.100, "one")], [of(1.085, "two", turn=5)], effect=0.005).cases
    assert sure.standing == Standing.SLOWER


def test_a_slower_clock_is_no_regression_where_a_baseline_is_the_same_code() -> None:
    found = word(of(1.2, "one"), of(1.2, "two", turn=4, slow=1.1))
    assert (found.standing, found.yard) == (Standing.EQUAL, "shipped")


def test_without_code_that_both_have_the_plain_times_are_compared() -> None:
    found = word(of(1.2, "one", base="old"), of(1.2, "two", base="new", turn=4, slow=1.1))
    assert (found.standing, found.yard) == (Standing.SLOWER, "")


def test_what_differs_less_than_the_session_from_itself_counts_nothing() -> None:
    noisy = case(1.1, "two", turn=5)
    noisy = replace(noisy, ms={**noisy.ms, "A/A": [1.15 * x for x in noisy.ms["A/A"]]})
    assert word(of(1.2, "one"), row({"CASES/1m": noisy})).standing == Standing.EQUAL


def test_a_winner_that_is_not_found_any_more_is_a_regression() -> None:
    assert word(of(1.2), of(0)).standing == Standing.SLOWER


def test_a_run_that_fails_now_is_a_regression_and_one_that_failed_before_is_none() -> None:
    assert word(row(), failed()).standing == Standing.FAILS
    assert word(failed(), row()).standing == Standing.WORKS
    assert word(failed(), failed()).standing == Standing.BOTH_FAIL


def test_other_gpus_are_not_compared() -> None:
    with pytest.raises(UsageFault) as fault:
        compare([row()], [row(environment=replace(H200, gpu="NVIDIA B200"))])
    assert "measured on an NVIDIA H200, then on an NVIDIA B200" in str(fault.value)


def test_other_budgets_and_other_work_are_not_compared() -> None:
    more = replace(case(), flops=2)
    for other, why in ((row(budget={"candidates": 9}), "budgets"), (row({"CASES/1m": more}), "asks for other work")):
        found = compare([row(), row(seed=2)], [other, row(seed=2)])
        assert len(found.cases) == 1 and why in found.notes[0]


def test_rows_of_other_cases_are_not_compared() -> None:
    with pytest.raises(UsageFault) as fault:
        compare([row({"CASES/1m": case()})], [row({"CASES/one-million": case()})])
    assert "they have no case in common: 1m, then one-million" in str(fault.value)


def test_a_case_of_one_file_alone_is_said() -> None:
    found = compare([row({"CASES/1m": case(), "CASES/old": case()})], [row({"CASES/1m": case(), "CASES/new": case()})])
    assert [c.place[-1] for c in found.cases] == ["CASES/1m"]
    assert found.notes == (
        "add by embedded, seed 1, old is in the first file alone",
        "add by embedded, seed 1, new is in the second file alone",
    )


def test_rows_of_one_file_alone_and_other_versions_are_said() -> None:
    found = compare([row(), row(seed=2)], [row(environment=replace(H200, driver="9")), row(seed=3)])
    assert found.notes == (
        "add by embedded, seed 2 is in the first file alone",
        "add by embedded, seed 3 is in the second file alone",
        "driver was 1, and is 9",
    )


def test_a_recorded_file_has_no_regression_against_itself() -> None:
    found = load.file(FA_FWD).rows
    assert {c.standing for c in compare(found, found).cases} == {Standing.SAME}


# the command ----------------------------------------------------------------------------------------------------------


def test_the_command_ends_with_one_and_names_the_case_when_something_became_slower(tmp_path: Path) -> None:
    night(tmp_path / "a", [of(1.2, "one")])
    night(tmp_path / "b", [of(1.1, "two", turn=5)])
    done = pgo("eval", "compare", "a", "b", cwd=tmp_path, COLUMNS="160")
    assert done.code == 1 and "1m" in done.out and "1 regression" in done.out


def test_what_is_told_to_programs_names_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = night(tmp_path / "a", [of(1.1, "two", turn=5)]), night(tmp_path / "b", [of(1.2, "one")])
    assert report.main(*files, 0.02, False, True) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    for line in (first, last):
        jsonschema.validate(line, kept_schema("eval-compare"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(last | {"type": "case.compared"}, kept_schema("eval-compare"))
    assert first["place"] == ["add", "embedded", 1, "CASES/1m"] and last["standings"] == {"faster": 1}


def test_two_files_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("monday", "tuesday"):
        (tmp_path / folder).mkdir()
    files = [night(tmp_path / f / "rows.jsonl", [row()], "half a line") for f in ("monday", "tuesday")]
    report.main(files[0], files[1], 0.02, False, True)
    notes = json.loads(capsys.readouterr().out.splitlines()[-1])["notes"]
    assert [n.split(":")[0] for n in notes] == ["monday/rows.jsonl", "tuesday/rows.jsonl"]


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    files = night(tmp_path / "a", [row()]), night(tmp_path / "b", [row(kernel="other")])
    with pytest.raises(UsageFault) as fault:
        report.main(*files, 0.02, False, False)
    assert "add by embedded, seed 1 is in the first file alone" in str(fault.value)
