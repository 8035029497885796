"""The end of a run: the compiled reference is timed where it was asked for, and costs a run nothing where it fails."""

from pathlib import Path

import pytest
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.search import finish
from pgo_agent.agent.views import summary as display
from pgo_agent.sandbox.judge.interface import Ended
from pgo_agent.sandbox.judge.questions import Final, Timed
from pgo_agent.sandbox.target import COMPILED

from tests.agent import reported
from tests.conftest import TARGETS

CASE = "CASES/2k"
STEP = f"compile the reference {CASE}"


class Compiling(reported.Bench):
    """A judge that compiles the reference where it is asked to; `ends`: its process ends with that."""

    ends = False

    def ask(self, question: Final) -> Timed:
        answer = super().ask(question)
        if not question.compile_reference:
            return answer
        if self.ends:
            raise Ended(STEP, True, "no answer before the deadline")
        return Timed({c: {**t, COMPILED: tuple(reported.around(3.0, 30))} for c, t in answer.times.items()}, {})


class Ending(Compiling):
    ends = True


def finished(folder: Path, judge: type[Compiling], compile_reference: bool) -> MeasuredRun:
    (folder / "spilling.py").write_text((TARGETS / "spilling.py").read_text())
    ctx = reported.begin(folder, folder / "spilling.py", compile_reference=compile_reference)
    ctx.gpu = judge(ctx.target, reported.made_up_final)  # type: ignore[assignment]
    summary = finish.finish(ctx)
    ctx.store.close()
    assert isinstance(summary, MeasuredRun)
    return summary


@pytest.mark.parametrize("asked", [True, False])
def test_the_compiled_reference_is_a_side_of_the_last_session_where_it_was_asked_for(
    tmp_path: Path, asked: bool
) -> None:
    summary = finished(tmp_path, Compiling, asked)
    assert [COMPILED in sides for sides in summary.times.values()] == [asked] * len(summary.times)
    assert summary.uncompiled == ({} if asked else None)


def test_a_judge_that_hangs_while_it_compiles_costs_the_run_nothing_but_that_side(tmp_path: Path) -> None:
    summary = finished(tmp_path, Ending, True)
    assert all("tuned" in sides and COMPILED not in sides for sides in summary.times.values())
    assert f"in 2k: the judge's process did not come to an end at '{STEP}'" in " ".join(display.uncompiled(summary))
