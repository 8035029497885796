"""All GPUs of a machine in one run: each judge process is on the GPU that it names, and what is measured says where.

Needs two GPUs of one model that sandbox/devices.py knows. Some five minutes.
"""

import json
import signal
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.agent.commands import optimize
from pgo_agent.agent.run.facts import GivenFile
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.run import Run
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import target
from pgo_agent.sandbox.gate.verdict import Verdict
from pgo_agent.sandbox.judge import gpus
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.gpu_lock import GpuLock
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.pool import GpuPool
from pgo_agent.sandbox.judge.questions import Peaks

from tests.agent import breaking
from tests.agent.command_line import command, pgo, write
from tests.conftest import FA_FWD

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(gpus.visible_gpus()) < 2, reason="fewer than two NVIDIA GPUs are visible here"),
]
OPTIMIZE = ("optimize", "add.py", "--judge", "gpu", "--candidates", "8", "--width", "4", "--json")
CASES = ("--case", "d128-4k", "--case", "d128-4k-causal")  # some gain of which is larger than the noise
ATTENTION = ("optimize", str(FA_FWD), "--judge", "gpu", *CASES, "--candidates", "8")


def ran(folder: Path, *args: str) -> list[dict[str, Any]]:
    done = pgo(*args, cwd=folder, seconds=1800)
    assert done.code in (0, 1), done.err
    return done.events


def test_each_judge_process_is_on_the_gpu_that_evidence_names() -> None:
    found = gpus.usable()
    judges = GpuPool([GpuJudge(target.read(FA_FWD), gpu=g.uuid, lock=GpuLock(g)) for g in found])

    def asked() -> Environment:
        judges.ask(Peaks("CASES/d128-4k"))
        return judges.environment

    try:
        told = [e for _, e in judges.together({str(i): asked for i in range(2 * len(found))})]
    finally:
        judges.close()
    assert {(e.uuid, e.index) for e in told} == {(g.uuid, g.index) for g in found}
    assert all(e.uuid == f"GPU-{e.cuda_uuid}" for e in told)


def test_a_run_spreads_over_the_gpus_and_says_where_each_case_and_candidate_was_measured(tmp_path: Path) -> None:
    write(tmp_path)
    events = ran(tmp_path, *OPTIMIZE)
    known = {g["uuid"] for g in events[0]["gpus"]}
    shown = json.loads(pgo("show", "--json", cwd=tmp_path).out)
    of_case = {(p["case"], p["taken_on"]["uuid"]) for p in shown["baseline"]["points"]}
    assert len(known) >= 2 and {uuid for _, uuid in of_case} <= known
    assert max(Counter(case for case, _ in of_case).values()) == 1  # times of a case are of one GPU
    db = breaking.database(tmp_path)
    bodies = [json.loads(b) for (b,) in db.execute("SELECT body FROM evidence WHERE stage IN ('quick', 'time')")]
    db.close()
    assert bodies and all(b["taken_on"]["uuid"] in known for b in bodies)


def test_a_killed_run_judges_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path)
    events = []
    with subprocess.Popen(command(*OPTIMIZE), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        for line in agent.stdout:
            events.append(json.loads(line))
            if sum(e["type"] == "candidate.verdict" for e in events) == 2:
                break
        agent.send_signal(signal.SIGKILL)
    breaking.judged_once([*events, *ran(tmp_path, "resume", "--json")], tmp_path)


def test_one_gpu_of_several_can_be_chosen(tmp_path: Path) -> None:
    write(tmp_path)
    last = gpus.usable()[-1]
    (chosen,) = ran(tmp_path, *OPTIMIZE, "--case", "1m", "--gpus", last.index)[0]["gpus"]
    assert chosen["uuid"] == last.uuid


def judged_again(store: Store, of: Run, names: list[str]) -> tuple[str | None, dict[str, list[float]]]:
    """The winner among a run's candidates on these GPUs, and the confirmed interval of each that was accepted."""
    untried = (None, Verdict.BUILD_ERROR, Verdict.REJECTED, Verdict.NO_CHANGE)
    fit = [c for c in store.candidates(of.id) if c.verdict not in untried]
    given = [GivenFile(c.id, "ttgir" if c.kind == "ttgir" else "source", c.source) for c in fit]
    settings = RunSettings(candidates=len(fit), width=len(fit), minutes=600.0, patience=1, judge="gpu", alone=True,
                           cases=of.settings.cases, gpus=",".join(names))  # fmt: skip
    optimize.start(Path(of.target), settings, store, lambda _: None, given)
    run = store.run("last")

    def confirmed(c: Candidate) -> list[float]:
        return list(store.evidence(run.id, c.id)["confirm"]["again"]["speedup"])

    accepted = {c.id: confirmed(c) for c in store.candidates(run.id) if c.verdict == Verdict.ACCEPTED}
    assert isinstance(run.summary, MeasuredRun)
    return run.summary.winner, accepted


@pytest.mark.slow
def test_the_winners_are_the_same_on_one_gpu_and_on_all(tmp_path: Path) -> None:
    """As far as the clock can tell: where two candidates win, their intervals overlap in both runs."""
    ran(tmp_path, *ATTENTION, "--json")
    found = [g.uuid for g in gpus.usable()]
    with closing(Store(tmp_path / ".pgo-agent", create=False)) as store:
        of = store.run("last")
        runs = [judged_again(store, of, names) for names in (found[:1], found)]
    (one, _), (other, _) = runs
    if one != other:
        for _, accepted in runs:
            a, b = accepted[str(one)], accepted[str(other)]
            assert a[0] <= b[-1] and b[0] <= a[-1]
