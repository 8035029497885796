"""The compiled reference on a real GPU: it is timed beside the kernel in one session, and what it lacks is a note."""

from contextlib import closing
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge, visible_gpu
from pgo_agent.sandbox.judge.questions import Final, Hello, Timed
from pgo_agent.sandbox.judge.references import plan_ref
from pgo_agent.sandbox.target import COMPILED

from tests.conftest import TARGETS

pytestmark = pytest.mark.gpu
OWN = "return x + y"
WRONG = "return x - y if torch.compiler.is_compiling() else x + y"


def last_session(folder: Path, reference: str) -> Timed:
    """What the judge says of the end of a run of `add` whose reference returns this."""
    text = (TARGETS / "add.py").read_text()
    assert text.count(OWN) == 1
    (folder / "add.py").write_text(text.replace(OWN, reference))
    subject, contents = target.read(folder / "add.py"), ContentStore(folder / "shelf")
    judge = GpuJudge(subject, gpu=visible_gpu() or "0")
    with closing(judge):
        judge.ask(Hello())
        device = devices.named(judge.environment.gpu or "")
        if device is None:
            pytest.skip("no kernel is compiled for this GPU")
        built = Builder(subject, device, box.choose(), contents).build(subject.source, {"CASES": None}, None, 2)
        side = {c: plan_ref(contents, built.bundle, options[0].label) for c, options in built.choices.items()}
        return judge.ask(Final({"shipped": side}, tuple(side), compile_reference=True))


def test_it_is_timed_in_the_same_rounds_as_the_kernel(tmp_path: Path) -> None:
    answer = last_session(tmp_path, OWN)
    assert answer.uncompiled == {}
    for times in answer.times.values():
        assert len(times[COMPILED]) == len(times["shipped"]) == len(times["A/A"])
        fastest = {name: min(ms) for name, ms in times.items()}
        assert 0.5 < fastest[COMPILED] / fastest["shipped"] < 2, "both move the same bytes by one kernel"


def test_results_that_are_not_right_are_a_note_and_all_other_sides_are_timed(tmp_path: Path) -> None:
    answer = last_session(tmp_path, WRONG)
    assert answer.uncompiled is not None
    assert set(answer.uncompiled) == set(answer.times)
    assert all("not right" in why for why in answer.uncompiled.values())
    assert all(set(times) == {"shipped", "A/A"} for times in answer.times.values())
