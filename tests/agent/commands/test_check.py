"""`check` judges any file as a candidate: only its kernel part counts, and it runs in the sandbox or not at all."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pgo_agent.agent.commands import check
from pgo_agent.agent.run.target_file import locate
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import ADD, Done, command, pgo, write

PART = ADD[: ADD.index("def reference")]
SUM = "tl.load(x_ptr + at, mask=inside) + tl.load"
WRONG = ADD.replace(SUM, SUM.replace("+ tl.load", "- tl.load"))
RIGHT = PART.replace("    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=inside) +",
                     "    x = tl.load(x_ptr + at, mask=inside)\n    tl.store(z_ptr + at, 1.0 * x +")  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the target; its workspace keeps what was compiled from test to test."""
    folder = tmp_path_factory.mktemp("place")
    write(folder)
    return folder


def checked(place: Path, text: str, *more: str, name: str = "new.py", **env: str) -> Done:
    """`pgo-agent check` of a text as a candidate for the target."""
    (place / name).write_text(text)
    return pgo("check", name, "--target", "add.py", "--case", "1m", *more, cwd=place, **env)


def runs(place: Path) -> int:
    found = pgo("runs", "--json", cwd=place)
    return len(json.loads(found.out)) if found.code == 0 else 0  # no workspace yet


# what it says ---------------------------------------------------------------------------------------------------------


def test_a_right_kernel_part_is_checked_and_recorded_as_a_run_like_any_other(place: Path) -> None:
    done = checked(place, RIGHT)
    assert done.code == 0, done.err
    assert done.out.startswith("checked: new.py is right as far as can be told without a GPU (stage interpreter: ")
    assert "errors against the float64 reference" in done.out and "ragged" in done.out and "registers" in done.out
    assert "points of its launch grid" not in done.err  # nothing is timed here: the grid would be for nothing
    shown = json.loads(pgo("show", "--json", cwd=place).out)
    assert shown["state"] == "done" and [v["move"] for v in shown["verdicts"]] == ["given"]
    one = shown["verdicts"][0]["id"]
    assert "given as new.py" in pgo("show", "last", one, cwd=place).out
    assert "1.0 * x" in pgo("diff", "shipped", one, cwd=place).out
    assert "TTGIR: " in pgo("diff", "shipped", one, cwd=place).out
    source = pgo("show", "last", one, "--source", cwd=place).out
    assert target.same_contract(source, ADD) and "1.0 * x" in source
    assert "checked, not accepted" in pgo("apply", "last", one, "--yes", cwd=place).err


@pytest.mark.slow
def test_a_wrong_kernel_ends_with_one_and_shows_its_errors(place: Path) -> None:
    done = checked(place, WRONG)
    assert done.code == 1 and done.out.startswith("wrong: new.py gives wrong results (stage interpreter: even: ")
    assert "max error" in done.out and "allowed" in done.out


@pytest.mark.slow
def test_a_kernel_that_does_not_build_ends_with_one_and_says_why(place: Path) -> None:
    done = checked(place, ADD.replace("tl.arange(0, BLOCK)\n", "tl.arange(0, BLOCK + 1)\n"))
    assert done.code == 1 and done.out.startswith("build_error: new.py does not build (stage build: ")
    assert "arange's range must be a power of 2" in done.out.splitlines()[0] and "diff shipped" not in done.out


@pytest.mark.slow
def test_the_target_itself_is_no_change_and_was_judged_all_the_same(place: Path) -> None:
    done = checked(place, ADD + "# a remark\n", "--json")
    verdict = next(e for e in done.events if e["type"] == "candidate.verdict")
    assert (done.code, verdict["verdict"], verdict["stage"]) == (0, "no_change", "interpreter")
    assert "the same statements as the target; right on 2 small cases" in verdict["reason"]


@pytest.mark.slow
def test_of_a_long_list_the_targets_best_and_one_other_are_judged_even_when_it_spills(place: Path) -> None:
    listed = ", ".join(f'triton.Config({{"BLOCK": 16384}}, num_warps=4, maxnreg={r})' for r in (24, 32, 40))
    done = checked(place, PART.replace("configs=[", f"configs=[{listed}, "))
    assert done.code == 0 and done.out.startswith("checked: "), done.out  # optimize would prune it unseen
    one = json.loads(pgo("show", "--json", cwd=place).out)["verdicts"][0]["id"]
    choices = json.loads(pgo("show", "last", one, "--json", cwd=place).out)["built"]["choices"]
    assert {case: len(options) for case, options in choices.items()} == {"CASES/1m": 3, "HELD_OUT/odd": 3}
    kept = [o["config"]["BLOCK"] for o in choices["CASES/1m"]]
    assert sorted(kept) == [1024, 2048, 16384] and "B spilled" in done.out


@pytest.mark.slow
def test_a_module_that_only_lies_beside_the_file_is_named_with_what_to_do(place: Path) -> None:
    (place / "elsewhere.py").write_text(PART)
    done = checked(place, "from elsewhere import kernel\n")
    assert done.code == 1 and "No module named 'elsewhere'" in done.out
    assert "put what it needs of elsewhere into the file" in " ".join(done.out.split())


# what ends it ---------------------------------------------------------------------------------------------------------


def test_a_spent_budget_is_not_taken_for_a_fine_kernel(place: Path) -> None:
    done = checked(place, RIGHT, "--minutes", "0")
    assert done.code == 4 and "more --minutes" in done.out


@pytest.mark.slow
def test_a_killed_check_goes_on_and_ends_with_its_own_exit_code(place: Path) -> None:
    (place / "new.py").write_text(WRONG)
    args = command("check", "new.py", "--target", "add.py", "--case", "1m", "--json")
    run = subprocess.Popen(args, cwd=place, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    for line in run.stdout:
        if "tracing and compiling" in line:
            break
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    time.sleep(0.5)
    (place / "new.py").write_text("what the file says by now does not matter")
    done = pgo("resume", cwd=place)
    assert done.code == 1 and "wrong: new.py gives wrong results" in done.out


def test_without_a_sandbox_a_given_file_is_refused_before_there_is_a_run(place: Path) -> None:
    before = runs(place)
    done = checked(place, RIGHT, "--sandbox", "none")
    assert done.code == 3 and "not your own code" in done.err and runs(place) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def kernel(:\n", "new.py:1 is not Python"),
        ("x = 1\n", "new.py does not define kernel()"),
        ("\0", "new.py is not Python"),
        (ADD.replace("n=2048", "n=4096").replace("return x + y", "return y + x"), "add.py of: SMALL, reference"),
    ],
)
def test_what_cannot_be_a_candidate_is_refused_before_there_is_a_run(place: Path, text: str, said: str) -> None:
    before = runs(place)
    done = checked(place, text)
    assert done.code == 2 and said in done.err and "->" in done.err and runs(place) == before


def test_a_file_that_is_not_there_and_a_target_that_is_none_are_named(place: Path) -> None:
    done = pgo("check", "nothing.py", "--target", "add.py", cwd=place)
    assert (done.code, "no such file: nothing.py" in done.err) == (2, True)
    done = pgo("check", "add.py", "--target", "nothing", cwd=place)
    assert (done.code, "no such file: nothing" in done.err) == (2, True)
    done = pgo("check", "add.py", cwd=place)
    assert done.code == 2 and "--target" in done.err


# what it reads --------------------------------------------------------------------------------------------------------

HELPED = ADD.replace("def reference", "def _sum(x, y):\n    return x + y\n\n\ndef reference").replace(
    "    return x + y\n\n\ndef inputs", "    return _sum(x, y)\n\n\ndef inputs"
)


def given(folder: Path, text: str, of: str = ADD) -> str:
    """The text that is judged of a file."""
    (folder / "new.py").write_text(text)
    (folder / "add.py").write_text(of)
    return check.read(folder / "new.py", target.read(folder / "add.py")).source


def refusal(folder: Path, text: str, of: str = ADD) -> str:
    with pytest.raises(UsageFault) as caught:
        given(folder, text, of)
    return str(caught.value)


def test_a_copy_of_the_target_is_judged_to_the_byte(tmp_path: Path) -> None:
    assert given(tmp_path, WRONG) == WRONG
    assert given(tmp_path, HELPED, HELPED) == HELPED


def test_a_kernel_part_alone_is_put_into_the_target(tmp_path: Path) -> None:
    for text in (RIGHT, "from fast import kernel\n"):
        whole = given(tmp_path, text, HELPED)
        assert target.same_contract(whole, HELPED) and "def _sum" in whole and text.splitlines()[-1] in whole


def test_a_copy_with_its_contract_in_another_order_can_be_applied_all_the_same(tmp_path: Path) -> None:
    flops = ADD[ADD.index("def flops") : ADD.index("def bytes_moved")]
    moved = ADD.replace(flops, "") + "\n\n" + flops
    assert target.same_contract(given(tmp_path, moved), ADD)


def test_a_helper_of_the_reference_belongs_to_the_contract(tmp_path: Path) -> None:
    assert "of: _sum" in refusal(tmp_path, HELPED.replace("    return x + y\n", "    return x + y + 0\n"), HELPED)
    assert "of: _sum" in refusal(tmp_path, PART + "\n\ndef _sum(x, y):\n    return 7\n", HELPED)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("HELD_OUT = {", "HELD_OUT = {} or {", "HELD_OUT"),
        ("LAUNCH_SPACE = {", "UNUSED = {", "LAUNCH_SPACE"),
        ("CASES = {", "TOLERANCE = 1\nCASES = {", "TOLERANCE"),
        ("def flops", "SMALL.clear()\n\n\ndef flops", "SMALL"),
        ("def flops", "from os import path as WEIGHTS\n\n\ndef flops", "WEIGHTS"),
    ],
)
def test_whatever_touches_the_contract_is_named(tmp_path: Path, old: str, new: str, name: str) -> None:
    assert f"of: {name}\n" in refusal(tmp_path, ADD.replace(old, new, 1))


def test_a_target_with_a_sidecar_takes_its_kernel_file_with_or_without_the_contract(tmp_path: Path) -> None:
    (tmp_path / "add.target.py").write_text(ADD)
    assert given(tmp_path, RIGHT, PART) == RIGHT
    assert given(tmp_path, ADD.replace(PART, RIGHT), PART).strip() == RIGHT.strip()
    assert "add.target.py of: reference" in refusal(tmp_path, ADD.replace("return x + y", "return x"), PART)


def test_code_that_is_nested_too_deeply_is_a_message(tmp_path: Path) -> None:
    assert "recursion" in refusal(tmp_path, PART + "x = " + "-" * 5000 + "1\n")


def test_a_shipped_kernel_is_a_target_by_its_name() -> None:
    found = target.read(locate(Path("fa_fwd")))
    assert check.read(found.path, found).source == found.source
