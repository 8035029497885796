"""The end of a run: the compiled reference is timed where it was asked for, and costs a run nothing where it fails."""

from dataclasses import replace
from pathlib import Path

import pytest
from pgo_agent.agent.run.record.run_summary import MeasuredRun
from pgo_agent.agent.search import finish
from pgo_agent.agent.views import summary as display
from pgo_agent.sandbox.judge.interface import Ended
from pgo_agent.sandbox.judge.questions import Final, Timed
from pgo_agent.sandbox.target import COMPILED
from rich.console import Console

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


class Refusing(Compiling):
    """One library ran in no case, for one reason; the results of another are not those of the reference."""

    def ask(self, question: Final) -> Timed:
        timed = super().ask(question)
        refused = dict.fromkeys(timed.times, "not timed: RuntimeError: no kernel for heads of 96")
        wrong = "its results would not be accepted: output 0: max error 1"
        return replace(timed, libraries={"cuDNN": refused, "cuLibrary": {next(iter(timed.times)): wrong}})


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


def test_a_library_that_refuses_cases_is_shown_as_refusing_them_and_says_why_once(tmp_path: Path) -> None:
    summary = finished(tmp_path, Refusing, False)
    console = Console(record=True, width=200)
    display.result(summary, "a-run", "none_found", console)
    printed = " ".join(console.export_text().split())
    cases = ", ".join(c.split("/", 1)[1] for c in summary.times)
    assert printed.count("refused") == len(summary.times)
    assert printed.count(f"cuDNN in {cases}: not timed: RuntimeError: no kernel for heads of 96") == 1
    assert "its results would not be accepted: output 0: max error 1" in printed
