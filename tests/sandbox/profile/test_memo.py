"""A pass works once for each set of arguments; what is damaged, killed or failed is made anew, and a job goes on."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox import json_codec
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.profile import memo
from pgo_agent.sandbox.profile.memo import Artefact
from pgo_agent.sandbox.profile.static_profile import Access, Conversion, Line, MachineLoop, Peak, StaticProfile

from tests.sandbox.bundle.test_store_damage import every_damage


@dataclass(frozen=True)
class PassContext:
    contents: ContentStore
    identity: str = "this machine"


@dataclass(frozen=True)
class Squared(json_codec.Record):
    of: int
    text: Artefact


worked: list[object] = []


@memo.kept("squared", version=1)
def squared(context: PassContext, n: int, factor: int = 1) -> Squared:
    worked.append(n)
    return Squared(n * n * factor, Artefact.put(context.contents, str(n * n).encode(), "txt"))


@memo.kept("squared_anew", version=2)
def squared_anew(context: PassContext, n: int) -> int:
    worked.append(n)
    return n * n


@memo.kept("fourth", version=1)
def fourth(context: PassContext, n: int) -> int:
    return squared(context, n).of ** 2


@pytest.fixture
def context(tmp_path: Path) -> PassContext:
    worked.clear()
    return PassContext(ContentStore(tmp_path))


def test_a_pass_works_once_and_answers_the_same_from_the_shelf(context: PassContext) -> None:
    assert [squared(context, 3), squared(context, n=3), squared(context, 3, 1)] == [
        squared(PassContext(context.contents), 3)
    ] * 3
    assert worked == [3]
    assert squared(context, 3).text.read(context.contents) == b"9"


def test_other_arguments_another_machine_and_another_version_are_other_answers(context: PassContext) -> None:
    keys = {
        squared.key(context, 3),
        squared.key(context, 4),
        squared.key(context, 3, 2),
        squared.key(PassContext(context.contents, "another"), 3),
        squared_anew.key(context, 3),
    }
    assert len(keys) == 5
    newer = memo.Pass(squared.function, squared.name, 2, "cpu")
    assert newer.key(context, 3) not in keys


def test_a_kept_answer_takes_milliseconds(context: PassContext) -> None:
    squared(context, 3)
    started = time.perf_counter()
    for _ in range(50):
        squared(context, 3)
    assert (time.perf_counter() - started) / 50 < 0.01
    assert worked == [3]


@every_damage
def test_a_damaged_answer_is_made_anew(context: PassContext, damage: Any) -> None:
    first = squared(context, 3)
    (path,) = (context.contents.root / "passes").iterdir()
    damage(path)
    assert not squared.known(context, 3)
    assert squared(context, 3) == first
    assert worked == [3, 3]
    assert squared.known(context, 3)


@every_damage
def test_an_answer_whose_artefact_is_damaged_is_made_anew(context: PassContext, damage: Any) -> None:
    digest = squared(context, 3).text.digest
    damage(context.contents.artefacts / f"{digest}.txt")
    assert squared(context, 3).text.read(context.contents) == b"9"
    assert worked == [3, 3]


def test_an_answer_of_another_shape_is_made_anew(context: PassContext) -> None:
    context.contents.put_record("passes", squared.key(context, 3), {"pass": squared.name, "answer": {"of": "nine"}})
    assert squared(context, 3).of == 9


def test_a_measurement_can_be_taken_again_and_replaces_the_answer(context: PassContext) -> None:
    readings = iter((1, 2))

    @memo.kept("reading", version=1)
    def reading(context: PassContext) -> int:
        return next(readings)

    assert [reading(context), reading.again(context), reading(context)] == [1, 2, 2]


def test_an_exception_is_not_kept(context: PassContext) -> None:
    trouble = [ValueError("no"), None]

    @memo.kept("careful", version=1)
    def careful(context: PassContext) -> int:
        if problem := trouble.pop(0):
            raise problem
        return 1

    with pytest.raises(ValueError, match="no"):
        careful(context)
    assert careful(context) == 1


def test_passes_call_passes(context: PassContext) -> None:
    assert fourth(context, 3) == 81
    assert squared.known(context, 3)
    assert fourth(context, 3) == 81
    assert worked == [3]


def test_cpu_passes_run_at_the_same_time(context: PassContext) -> None:
    both = threading.Barrier(2)

    @memo.kept("meets", version=1)
    def meets(context: PassContext, n: int) -> int:
        both.wait(timeout=10)  # breaks unless the other one runs, too
        return n

    assert memo.parallel([lambda: meets(context, 1), lambda: meets(context, 2)], 2) == (1, 2)


def test_one_thread_works_while_the_others_wait_for_its_answer(context: PassContext) -> None:
    @memo.kept("slow", version=1)
    def slow(context: PassContext) -> int:
        worked.append("slow")
        time.sleep(0.05)
        return 1

    assert memo.parallel([lambda: slow(context)] * 8, 8) == (1,) * 8
    assert worked == ["slow"]


def test_a_failing_call_ends_the_others_that_have_not_begun(context: PassContext) -> None:
    def fails() -> int:
        raise ValueError("the first")

    def counts() -> int:
        worked.append("begun")
        time.sleep(0.05)
        return 1

    with pytest.raises(ValueError, match="the first"):
        memo.parallel([fails, *[counts] * 50], 2)
    assert len(worked) < 50


JOB = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.profile import memo

@dataclass(frozen=True)
class Seat:
    contents: ContentStore
    identity: str = "this machine"

@memo.kept("step", version=1)
def step(context: Seat, n: int) -> int:
    print("began", n, flush=True)
    time.sleep(0.2)
    return n * n

def job(context: Seat) -> int:
    return sum(step(context, n) for n in range(5))

print("total", job(Seat(ContentStore(Path(sys.argv[1])))), flush=True)
"""


def test_a_killed_job_goes_on_where_it_was(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB))
    command = [sys.executable, str(script), str(tmp_path / "shelf")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout
    for line in process.stdout:
        if line == "began 2\n":
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait(10) == -signal.SIGKILL
    again = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, env=dict(os.environ))
    assert again.stdout.splitlines() == ["began 2", "began 3", "began 4", "total 30"]


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(st.one_of(*map(st.from_type, (Access, Conversion, Line, MachineLoop, Peak))))
def test_records_come_back_from_json_as_they_were(record: json_codec.Record) -> None:
    assert type(record).from_json(json.loads(json.dumps(record.as_json()))) == record


@pytest.mark.parametrize("spoilt", [{}, {"build": 1}, [], None, "text"])
def test_json_of_another_shape_is_refused(spoilt: Any) -> None:
    with pytest.raises(json_codec.Malformed):
        StaticProfile.from_json(spoilt)
