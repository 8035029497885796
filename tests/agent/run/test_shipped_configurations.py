"""What becomes of the configurations of a file's own list: the fastest is a baseline, right or not, and each that is
not fit is told by name. The GPU is `made_up.py`.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pgo_agent.agent.run.record.baseline import Baseline, Unfit
from pgo_agent.agent.run.record.store import Store

from tests.agent import made_up
from tests.agent.command_line import FOR_CACHES, Done, pgo, write

LABEL = "BLOCK=1024 num_warps=4 num_stages=3"  # of add.py's own list
RUN = (
    "optimize",
    "add.py",
    "--case",
    "1m",
    "--candidates",
    "1",
    "--profile",
    "none",
    "--judge",
    "spool:box",
    "--no-compiler",
)
PROBLEM = "wrong: output 0: max error 0.1 above 0.01"


def base(folder: Path) -> Baseline:
    with closing(Store(folder / ".pgo-agent")) as store:
        baseline = store.run("last").baseline
    assert baseline is not None
    return baseline


def said(text: str) -> str:
    """Whatever the width of a terminal does to lines."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done, Done]:
    """A run whose autotuner picks a wrong configuration, and one that goes on all the same."""
    folder = tmp_path_factory.mktemp("wrong")
    write(folder, *FOR_CACHES)
    with made_up.answering(folder, how=("--wrong", LABEL), faster=0.9):
        return folder, pgo(*RUN, cwd=folder), pgo(*RUN, "--drop-wrong", cwd=folder)


def test_where_the_autotuner_picks_what_is_wrong_the_run_stops_and_says_what_admits_it(
    wrong: tuple[Path, Done, Done],
) -> None:
    _, asked, _ = wrong
    assert asked.code == 2
    told = said(asked.err + asked.out)
    assert f"on 1m triton.autotune picks {LABEL} (1 ms), and that is not right: {PROBLEM}" in told
    assert "TOLERANCE = dict(max_ratio=24, mean_ratio=1.5) in the file admits it" in told
    assert "--drop-wrong to go on without it" in told


def test_a_run_that_goes_on_says_first_that_nothing_was_gained_over_it(wrong: tuple[Path, Done, Done]) -> None:
    _, _, done = wrong
    told = said(done.out)
    lost, table = told.index("Nothing was gained against what triton.autotune picks today"), told.index("Measured on")
    assert done.code == 1 and lost < table
    assert f"by {LABEL}" in told and "it was left out, for it is not right by the rule here" in told


def test_the_record_keeps_as_shipped_and_what_the_autotuner_picks_apart(wrong: tuple[Path, Done, Done]) -> None:
    found = base(wrong[0])
    case = "CASES/1m"
    assert (found.autotuned[case].said, found.autotuned[case].problem) == (LABEL, PROBLEM)
    assert found.shipped[case].said != LABEL and not found.shipped[case].problem
    assert found.unfit == (Unfit(case, LABEL, PROBLEM, 1.0),)


@pytest.mark.parametrize("ask", [("show", "last"), ("report", "last", "--markdown", "-")])
def test_it_is_named_with_its_reason_where_a_run_is_told_of(wrong: tuple[Path, Done, Done], ask: Sequence[str]) -> None:
    told = said(pgo(*ask, cwd=wrong[0]).out)
    assert LABEL in told and "max error 0.1 above 0.01" in told
    assert "othing was gained against what triton.autotune picks today" in told


@pytest.mark.long
def test_a_configuration_that_ends_the_process_costs_no_other_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, *FOR_CACHES)
    with made_up.answering(tmp_path, how=("--ends", LABEL), faster=0.9):
        done = pgo(*RUN, cwd=tmp_path)
    assert done.code == 1, "no candidate is faster"
    found = base(tmp_path)
    assert found.unfit == (Unfit("CASES/1m", LABEL, "crashed: made up: an illegal memory access", None),)
    assert found.autotuned["CASES/1m"].plan_id == found.shipped["CASES/1m"].plan_id
    assert f"{LABEL} on 1m: crashed" in said(done.out)
