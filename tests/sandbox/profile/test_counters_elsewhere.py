"""Counters of a GPU elsewhere: the judge there has them counted, and who asked reads what they mean.

The judge's process is made up; the folder between, and the process that counts, are real. A program called ncu refuses
in the real one's words.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.build.result import Built
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.json_codec import JsonObject
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge
from pgo_agent.sandbox.judge.machine import Environment
from pgo_agent.sandbox.judge.questions import Count
from pgo_agent.sandbox.judge.references import plan_ref
from pgo_agent.sandbox.judge.spool.client import SpoolJudge
from pgo_agent.sandbox.judge.spool.folder import Folder
from pgo_agent.sandbox.judge.spool.server import Worker
from pgo_agent.sandbox.profile.counters.collect import asked
from pgo_agent.sandbox.profile.counters.metrics import DURATION, EXECUTED, L2_HIT
from pgo_agent.sandbox.profile.counters.ncu import PERMISSION
from pgo_agent.sandbox.profile.counters.ncu_report import Facts, Metric, Seen
from pgo_agent.sandbox.profile.counters.types import Counters
from pgo_agent.sandbox.profile.kernel_profile import Missing
from pgo_agent.sandbox.profile.timeline.instrumented_build import KernelRef

from tests.sandbox.conftest import ADD
from tests.sandbox.ncu_samples import needs_reader
from tests.sandbox.profile.test_counters_collect import GPU
from tests.sandbox.profile.test_counters_ncu import BANNER, FORBIDDEN

H200 = devices.find("h200")
METRICS = {DURATION: Metric(4000.0, "ns"), EXECUTED: Metric(90.0, "inst"), L2_HIT: Metric(75.0, "%")}
STALLED = Seen(0, "LDG.E R1, [R2]", 60, {"long_scoreboard": 3, "selected": 1})


@dataclass
class Counting:
    """A judge process that says it counted this."""

    said: JsonObject
    commands: list[str] = field(default_factory=list)
    busy: float = 0.0

    def open(self) -> Environment:
        return Environment(H200.name, driver="made up", torch="made up", triton="made up")

    def answer(self, command: str, _: JsonObject) -> JsonObject:
        self.commands.append(command)
        self.busy += 2.0
        return self.said if command == Count.do else {}

    def fresh(self) -> None:
        """There is no process."""

    def close(self) -> None:
        """There is nothing to end."""


@dataclass(frozen=True)
class Place:
    builder: Builder
    kernel: KernelRef
    name: str
    folder: Path

    @contextmanager
    def answered(self, said: JsonObject) -> Iterator[SpoolJudge]:
        """A judge elsewhere, which answers so meanwhile."""
        subject, counting = self.builder.target, Counting(said)
        judge = SpoolJudge(self.folder / "box", H200, subject)
        over = threading.Event()
        judge.folder.make()

        def work() -> None:
            with closing(Worker(Folder(judge.folder.root), {subject.digest: subject}, lambda _: counting)) as worker:
                while not over.wait(0.05):
                    worker.serve(once=True, say=lambda _: None)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            judge.begin("run-1", self.builder.contents, lambda *_: True)
            yield judge
        finally:
            over.set()
            thread.join()


@pytest.fixture
def place(tmp_path: Path, add_contents: ContentStore, add_built: Built) -> Place:
    builder = Builder(target.read(ADD), H200, box.choose(), add_contents)
    ((case, (choice,)),) = add_built.choices.items()
    kernel = choice.kernels[0]
    name = add_contents.manifest(add_built.bundle)["kernels"][kernel]["name"]
    return Place(builder, KernelRef(add_built.bundle, case, choice.label, kernel), name, tmp_path)


def counted(kernel: str, seen: Sequence[Seen] = (STALLED,)) -> JsonObject:
    return {"tool": "ncu 2025.3.1", "facts": Facts(kernel, METRICS, tuple(seen)).as_json()}


def test_what_was_counted_elsewhere_is_read_as_what_is_counted_here(place: Place) -> None:
    with place.answered(counted(place.name)) as judge:
        found = asked(judge, place.builder, place.kernel)
    assert isinstance(found, Counters)
    assert (found.tool, found.duration_ns, found.l2_hit, found.executed) == ("ncu 2025.3.1", 4000.0, 0.75, 60)
    assert found.stalls == {"long_scoreboard": 0.75, "selected": 0.25} and judge.busy >= 2.0


@pytest.mark.parametrize("why", [PERMISSION, "Nsight Compute is not installed: no ncu on PATH, nor beside CUDA"])
def test_why_nothing_was_counted_there_is_told_here(place: Place, why: str) -> None:
    with place.answered({"problem": why}) as judge:
        assert asked(judge, place.builder, place.kernel) == Missing("counters", why)


def test_counters_of_another_kernel_are_none_of_this_one(place: Place) -> None:
    with place.answered(counted("_other")) as judge:
        assert asked(judge, place.builder, place.kernel) == Missing(
            "counters", f"ncu profiled _other in place of {place.name}"
        )


@pytest.mark.parametrize(
    "damage",
    [{"facts": {"kernel": "k", "metrics": {}}}, {"tool": 7}, {"facts": None}, {"more": 1}],
)
def test_an_answer_of_another_form_is_refused(place: Place, damage: dict[str, Any]) -> None:
    with (
        place.answered(counted(place.name) | damage) as judge,
        pytest.raises(EnvironmentFault, match="is no answer"),
    ):
        asked(judge, place.builder, place.kernel)


@needs_reader
def test_the_process_that_counts_says_in_one_line_what_is_missing_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = BANNER.format("2025.3.1.0 (build 36398880) (public-release)")
    refuses = f"if [ \"$1\" = --version ]; then printf '{version}'; exit; fi; echo '{FORBIDDEN}'; exit 1"
    for name, does in (("ncu", refuses), ("nvidia-smi", f"echo 'GPU 0: NVIDIA H200 (UUID: {GPU})'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    plain = plan_ref(place.builder.contents, place.kernel.bundle, place.kernel.choice)
    question = Count(place.kernel.case, place.kernel.kernel, plain)
    judge = GpuJudge(place.builder.target, gpu="0")
    assert judge.answer(question.do, question.as_json()) == {"problem": PERMISSION}
    assert judge.busy > 0
