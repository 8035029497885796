"""A check without a GPU says what it rests on wherever somebody reads of it, and is never right of what did not run."""

import json
from pathlib import Path

import pytest
from pgo_agent.agent.evaluation import coverage_text, interpreter
from pgo_agent.agent.exit_codes import Exit, check_code
from pgo_agent.sandbox.gate import coverage
from pgo_agent.sandbox.tracer.session import _spread

from tests.agent.command_line import ADD, pgo

ASSEMBLY = (
    """tl.inline_asm_elementwise("mov.f32 $0, $1;", "=f,f", [tl.load(x_ptr + at, mask=inside)], tl.float32, True, 1)"""
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a target was checked of which nothing can be interpreted, and which is wrong."""
    folder = tmp_path_factory.mktemp("unseen")
    (folder / "add.py").write_text(ADD.replace("    tl.store(z_ptr + at,", f"    tl.store(z_ptr + at, {ASSEMBLY} +"))
    done = pgo("init", "--check", "add.py", "--judge", "cpu", "--case", "1m", "--json", cwd=folder)
    (folder / "events").write_text(json.dumps([done.code, done.events]))
    return folder


def test_a_target_of_which_nothing_ran_is_not_called_right_and_does_not_end_with_0(place: Path) -> None:
    code, events = json.loads((place / "events").read_text())
    verdict = next(e for e in events if e["type"] == "candidate.verdict")
    assert (code, verdict["verdict"]) == (Exit.BUDGET, "built") and "inline assembly" in verdict["reason"]
    assert verdict["coverage"]["counts"]["small cases"] == [0, 2] and "even" in verdict["coverage"]["skipped"]


def test_show_and_report_say_what_was_covered_and_what_was_left_out(place: Path) -> None:
    (one,) = json.loads(pgo("show", "--json", cwd=place).out)["verdicts"]
    assert one["coverage"]["counts"]["small cases"] == [0, 2]
    shown = " ".join(pgo("show", "last", one["id"], cwd=place).out.split())
    assert "covered: 0 of 2 small cases" in shown and "left out: even, ragged" in shown
    assert pgo("report", cwd=place).code == 0
    for told in (" ".join(p.read_text().split()) for p in place.glob("*-report.*")):
        assert "0 of 2 small cases" in told and "is right" not in told
    assert len(list(place.glob("*-report.*"))) == 2


def test_what_is_only_built_ends_as_what_could_not_be_judged() -> None:
    assert [check_code(v) for v in ("built", "undecided", None)] == [Exit.BUDGET] * 3
    assert [check_code(v) for v in ("checked", "no_change", "wrong")] == [Exit.DONE, Exit.DONE, Exit.NONE_FOUND]


def test_what_is_alike_is_told_once_and_each_reason_once() -> None:
    one = coverage.of(small_cases=(1, 3), skipped={"a": "bf16", "b": "bf16"})
    assert list(coverage_text.counted_alike([one, coverage.NOTHING, one])) == [(2, "1 of 3 small cases")]
    assert coverage_text.left_out_of_any([one, coverage.NOTHING, one]) == "a, b (bf16)"


def test_the_kernels_that_must_have_run_are_those_of_the_public_cases() -> None:
    def plan(*keys: str) -> dict[str, object]:
        return {"steps": [{"kernel": k} for k in keys] + [{"copy": 0}]}

    kernels = {k: {"name": f"_{k}"} for k in "abc"}
    plans = {"CASES/x": {"first": plan("a"), "second": plan("b", "a")}, "HELD_OUT/y": {"first": plan("c")}}
    assert interpreter.launched({"kernels": kernels, "plans": plans}) == ["_a", "_b"]


def test_a_sample_of_a_long_list_has_its_beginning_and_reaches_its_end() -> None:
    found = _spread(list(range(287)), 24)
    assert len(found) == 23 and found[:12] == list(range(12)) and found[-1] > 250 and found == sorted(set(found))
    assert _spread([1, 2, 3], 24) == [1, 2, 3]
