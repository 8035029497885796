"""`pgo-agent eval problems`: each problem goes from `init` to a verdict without an edit, and each has its row."""

from pathlib import Path

import pytest
from pgo_agent.agent.commands.problems import kernelbench
from pgo_agent.evals.problems import run
from pgo_agent.evals.problems.run import ProblemRow
from pgo_agent.sandbox.errors import UsageFault

NAMES = [p.stem for p in run.problems([])]


def row(**changes: object) -> ProblemRow:
    plain = {"problem": "p", "level": "level1", "written": True, "right": True, "small": 2, "seconds": 1.0}
    return ProblemRow(**(plain | {"verdicts": {}, "said": ""} | changes))  # type: ignore[arg-type]


def test_there_are_twenty_of_two_levels() -> None:
    assert len(NAMES) == len(set(NAMES)) == 20
    assert {p.parent.name for p in run.problems([])} == {"level1", "level2"}


@pytest.mark.parametrize("path", run.problems([]), ids=NAMES)
def test_a_problem_has_the_form_and_sizes_that_may_change(path: Path) -> None:
    text = path.read_text()
    assert kernelbench.recognised(text, path.name) and kernelbench.read(text).sizes


def test_the_record_has_a_row_for_each_problem() -> None:
    recorded = run.read()
    assert sorted(r.problem for r in recorded) == sorted(NAMES)
    assert all(r.written and r.right for r in recorded)


def test_a_row_comes_to_the_best_that_a_candidate_came_to() -> None:
    assert row(verdicts={"a": "wrong", "b": "checked"}).came_to == "checked"
    assert row(verdicts={"a": "wrong"}).came_to == "wrong"
    assert row().came_to == "right" and row(right=False).came_to == "error"


def test_a_table_says_why_there_is_no_candidate() -> None:
    assert "| it needs no kernel of its own |" in run.table([row(said="it needs no kernel of its own")])
    told = run.table([row(verdicts={"PyTorch's compiler": "checked", "PyTorch's compiler, for rows": "built"})])
    assert "all sizes open: checked; for rows: built" in told


def test_a_name_that_no_problem_has_is_refused() -> None:
    with pytest.raises(UsageFault, match="no problem is called fft"):
        run.problems(["fft"])


@pytest.mark.slow
@pytest.mark.parametrize("path", run.problems([]), ids=NAMES)
def test_a_problem_becomes_a_target_that_is_right(path: Path) -> None:
    (made,) = run.rows([path], "auto")
    assert made.written and made.right, made.said
