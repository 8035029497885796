"""Whole runs on several GPUs: the winners of one GPU, nothing judged twice, and what a GPU that hangs leaves behind.

The judge processes make their times up, by the candidate alone (`many.py`); all else is as on a machine of GPUs.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.agent import breaking
from tests.agent.command_line import Done, pgo
from tests.agent.many import overlapping
from tests.agent.many_runs import OPTIMIZE, RESUME, Run, on

JUDGED = ("accepted", "slower", "undecided")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Done]:
    """A run on one GPU that nobody disturbed."""
    run = on(tmp_path_factory.mktemp("alone") / "run", 1)
    return run, run.command(*OPTIMIZE)


@pytest.mark.slow
def test_several_gpus_come_to_the_winners_of_one_and_name_the_gpu_of_all_that_was_measured(
    alone: tuple[Run, Done], tmp_path: Path
) -> None:
    first, done = alone
    assert done.code == 0, done.err
    run = on(tmp_path / "run", 3, first.folder, seconds=0.2)
    assert run.command(*OPTIMIZE).code == 0
    assert run.told() == first.told() and sum(v[3] in JUDGED for v in run.told()) >= 2
    asked = run.machine.asked()
    assert overlapping(asked) == [] and len({a["gpu"] for a in asked if a["do"] in ("look", "judge")}) > 1
    shown = json.loads(pgo("show", "--json", cwd=run.folder).out)
    used = {a["gpu"] for a in asked}
    assert {p["taken_on"]["uuid"] for p in shown["baseline"]["points"]} <= used
    assert shown["summary"]["environment"]["uuid"] in used
    winner = shown["summary"]["winner"]
    said = pgo("show", "last", winner, cwd=run.folder).out
    assert "confirm: measured on GPU " in said and "confirm: measured again on GPU " in said


@pytest.mark.slow
def test_a_killed_run_goes_on_and_judges_nothing_twice(alone: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = alone
    run = on(tmp_path / "run", 2, first.folder, seconds=0.2)
    events = run.killed_when("candidate.verdict", 2, *OPTIMIZE)
    recorded = {e["candidate"] for e in events if e["type"] == "candidate.verdict" and e["verdict"] in JUDGED}
    asked = len(run.machine.asked())
    done = run.command(*RESUME)
    assert done.code == 0, done.err
    breaking.judged_once([*events, *done.events], run.folder)
    assert run.told() == first.told()
    again = {a["candidate"] for a in run.machine.asked()[asked:] if a["do"] in ("judge", "race", "confirm")}
    assert recorded and not again & {bundle for name, bundle in run.bundles().items() if name in recorded}


@pytest.mark.slow
def test_cases_are_profiled_side_by_side_each_on_one_gpu(alone: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = alone
    runs = [on(tmp_path / str(gpus), gpus, first.folder, seconds=0.3) for gpus in (1, 2)]
    told = [json.loads(r.command("profile", "add.py", "--passes", "static,timeline", "--json").out) for r in runs]
    assert told[0]["cases"] == told[1]["cases"] and len(told[0]["cases"]) == 2
    for run in runs:
        asked = run.machine.asked()
        assert overlapping(asked) == [] and len({a["gpu"] for a in asked if a["do"] == "timeline"}) == run.gpus


@pytest.mark.slow
def test_a_run_that_profiles_comes_to_the_same_on_several_gpus(alone: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = alone
    wanted = [a for a in OPTIMIZE if a not in ("--case", "1m", "--profile", "none")]
    runs = [on(tmp_path / str(gpus), gpus, first.folder, seconds=0.1) for gpus in (1, 3)]
    done = [r.command(*wanted) for r in runs]
    assert [d.code for d in done] == [0, 0], done[0].err + done[1].err
    profiled = [[(e["candidate"], e["case"], e["passes"]) for e in d.events if "passes" in e] for d in done]
    assert profiled[0] == profiled[1] and len(profiled[0]) >= 2  # in this order
    assert runs[0].told() == runs[1].told()


@pytest.mark.slow
def test_a_gpu_that_hangs_is_left_out_and_show_says_so(alone: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = alone
    run = on(tmp_path / "run", 2, first.folder, deadline=2, hangs={"GPU-1": ["open"]})
    done = run.command(*OPTIMIZE)
    assert done.code == 0, done.err
    assert run.told() == first.told()
    (event,) = (e for e in done.events if e["type"] == "gpu.quarantined")
    assert (event["uuid"], event["left"]) == ("GPU-1", 1)
    assert "quarantined: GPU 1 (GPU-1): the judge process did not start" in pgo("show", cwd=run.folder).out
    (kept,) = json.loads(pgo("show", "--json", cwd=run.folder).out)["quarantined"]
    assert kept["uuid"] == "GPU-1" and kept["why"] == event["why"]


@pytest.mark.slow
def test_without_a_healthy_gpu_a_run_ends_and_goes_on_when_there_is_one_again(
    alone: tuple[Run, Done], tmp_path: Path
) -> None:
    first, _ = alone
    run = on(tmp_path / "run", 2, first.folder, deadline=2, hangs={"GPU-0": ["open"], "GPU-1": ["open"]})
    done = run.command(*OPTIMIZE)
    assert done.code == 3 and "no GPU is left: 2 quarantined in this run" in done.err
    assert "pgo-agent resume" in done.err
    run.machine.control()
    done = run.command(*RESUME)
    assert done.code == 0, done.err
    assert run.told() == first.told()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 4])
def test_killed_after_any_verdict_it_comes_to_the_same(alone: tuple[Run, Done], tmp_path: Path, count: int) -> None:
    first, _ = alone
    run = on(tmp_path / "run", 4, first.folder, seconds=0.3)
    events = run.killed_when("candidate.verdict", count, *OPTIMIZE)
    done = run.command(*RESUME)
    assert done.code == 0, done.err
    breaking.judged_once([*events, *done.events], run.folder)
    assert run.told() == first.told()


@pytest.mark.slow
def test_two_runs_share_the_gpus_and_say_that_they_wait(alone: tuple[Run, Done], tmp_path: Path) -> None:
    first, _ = alone
    runs = [on(tmp_path / name, 1, first.folder, seconds=1.0) for name in ("a", "b")]
    env = runs[0].env  # they meet in the same folder
    agents = [
        subprocess.Popen(r.machine.command(*OPTIMIZE), cwd=r.folder, env=env, stdout=subprocess.PIPE, text=True)
        for r in runs
    ]
    events = [[json.loads(line) for line in agent.communicate(timeout=600)[0].splitlines()] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0]
    assert overlapping([a for r in runs for a in r.machine.asked()]) == []
    assert any(e["type"] == "gpu.waiting" for told in events for e in told)
    assert runs[0].told() == runs[1].told() == first.told()
