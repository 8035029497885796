"""`check FILE --against BASE`: the gate of a pull request, by the real command line in repositories of git.

A made-up judge (`made_up.py`) stands in for a GPU where one is needed: its samples are made up, the decision is not.
"""

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from pgo_agent.agent.commands import against, schemas
from pgo_agent.agent.commands.against import Asked
from pgo_agent.agent.run.regression import CodeCompared, KernelChange, Resources, Result
from pgo_agent.agent.views.regression import junit, markdown
from pgo_agent.sandbox import target
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import ADD, Done, pgo, write
from tests.agent.made_up import answering

RENAMED = ADD.replace("inside", "within")  # a variable
OTHER_NAME = ADD.replace("_add", "_plus")  # the kernel
MASKED = "mask=inside) + tl.load(y_ptr + at, mask=inside)"
BROKEN = ADD.replace(MASKED, "mask=inside) + tl.load(y_ptr + at)")  # reads beyond the end of y where n is ragged
WORSE = ADD.replace("num_warps=8", "num_warps=1")


def git(folder: Path, *args: str) -> str:
    person = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", folder, *person, *args], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose branch `main` holds the target, and one file that does not build. Its builds are kept."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q", "-b", "main")
    write(folder)
    (folder / "broken.py").write_text(ADD.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)"))
    (folder / "syntax.py").write_text("def kernel(:\n")
    git(folder, "add", "add.py", "broken.py", "syntax.py")
    git(folder, "commit", "-q", "-m", "base")
    return folder


def checked(folder: Path, text: str, *more: str, base: str = "git:main", name: str = "add.py") -> Done:
    """The gate on the file with another text, which is put back afterwards."""
    before = (folder / name).read_text()
    (folder / name).write_text(text)
    try:
        return pgo("check", name, "--against", base, *more, cwd=folder)
    finally:
        (folder / name).write_text(before)


def runs(folder: Path) -> int:
    told = json.loads(pgo("runs", "--json", cwd=folder).out)
    return len(told) if isinstance(told, list) else 0  # an error: there is no workspace yet


# the same code --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (ADD.replace("def kernel", "# a remark\ndef kernel"), "the kernel parts hold the same statements"),
        (RENAMED, "TTGIR, options and launches are equal, and so is the machine code"),
        (OTHER_NAME, "TTGIR and machine code are equal, whatever the kernels are called"),
    ],
)
def test_the_same_code_is_told_without_a_run(repository: Path, text: str, how: str) -> None:
    before = runs(repository)
    done = checked(repository, text, "--junit", "out/j.xml", "--markdown", "-")
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("### `add.py`: the same code\n") and how in done.out
    assert runs(repository) == before
    suite = ElementTree.parse(repository / "out" / "j.xml").getroot()
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")


def test_a_file_may_be_compared_with_another_file_and_events_tell_the_verdict(repository: Path) -> None:
    (repository / "old.py").write_text(ADD)
    done = checked(repository, RENAMED, "--json", base="old.py")
    event = next(e for e in done.events if e["type"] == "check.against")
    jsonschema.validate(event, schemas.schema("events"))
    told = event["result"]
    assert (done.code, told["outcome"], told["against"]) == (0, "same_code", "old.py")
    assert told["code"]["same"] and told["code"]["configurations"] == 3 * 2


# other code, without a GPU --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_other_code_is_right_and_not_timed_and_its_registers_are_shown(repository: Path) -> None:
    done = checked(repository, WORSE, "--case", "1m", "--junit", "j.xml", "--markdown", "c.md")
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("right: add.py is right as far as can be told without a GPU") and "not timed" in done.out
    assert "2 of 4 configurations of 2 cases have other code" in done.out  # one configuration, also of a hidden case
    comment = (repository / "c.md").read_text()
    assert comment.startswith("### `add.py`: right; not timed: no GPU") and "| `1m` | `BLOCK=2048 num_warps=" in comment
    tests = {t.get("name"): t for t in ElementTree.parse(repository / "j.xml").getroot()}
    assert tests["time"].find("skipped") is not None and tests["results"].find("failure") is None
    assert "is right as far as can be told without a GPU, and has other code" in pgo("show", cwd=repository).out


def test_a_broken_tail_is_wrong_in_the_comment_and_for_ci(repository: Path) -> None:
    done = checked(repository, BROKEN, "--case", "1m", "--junit", "j.xml", "--markdown", "c.md")
    assert done.code == 1 and done.out.startswith("wrong: add.py gives wrong results (stage interpreter: ragged: ")
    assert (repository / "c.md").read_text().startswith("### `add.py`: wrong")
    failed = ElementTree.parse(repository / "j.xml").getroot().find("testcase/failure")
    assert failed is not None and "past the end" in str(failed.get("message"))


# times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faster", "code", "outcome", "said"),
    [
        (0.9, 1, "slower", "slower by 11.1 % [11.1, 11.1]"),
        pytest.param(1.0, 0, "not_slower", "1.000x [1.000, 1.000]", marks=pytest.mark.slow),
    ],
)
def test_by_its_time_a_kernel_is_slower_and_fails_or_is_not(
    tmp_path: Path, faster: float, code: int, outcome: str, said: str
) -> None:
    write(tmp_path)
    (tmp_path / "new.py").write_text(WORSE)
    with answering(tmp_path, faster=faster):
        done = pgo("check", "new.py", "--against", "add.py", "--judge", "spool:box", "--case", "1m", "--json",
                   "--markdown", "c.md", "--junit", "j.xml", cwd=tmp_path)  # fmt: skip
    told: dict[str, Any] = next(e for e in done.events if e["type"] == "check.against")["result"]
    assert (done.code, told["outcome"]) == (code, outcome), told
    assert told["speedup"] == told["again"] and told["cases"].keys() == {"1m"}
    comment, suite = (tmp_path / "c.md").read_text(), ElementTree.parse(tmp_path / "j.xml").getroot()
    assert said in comment.splitlines()[0] and "a second session" in comment
    assert suite.get("failures") == str(code)
    shown = pgo("show", cwd=tmp_path).out
    assert f"new.py is right, and {outcome.replace('_', ' ')} than add.py" in shown


# bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "base", "said"),
    [
        (RENAMED, "git:nothing", "there is no revision 'nothing' in the repository of add.py"),
        (RENAMED, "git:--all", "there is no revision '--all'"),
        (RENAMED, "git:", "there is no revision ''"),
        (RENAMED, "nothing.py", "--against: no such file: nothing.py"),
        (RENAMED, ".", ". is a folder"),
        (RENAMED, "syntax.py", "syntax.py:1 is not Python"),
        (RENAMED, "x.ttgir", "x.ttgir is the TTGIR of one kernel"),
        (ADD.replace("n=2048", "n=4096"), "git:main", "add.py says something else than git:main ("),
        ("def kernel(x, y):\n    return x\n", "git:main", "add.py is no target by itself"),
        (RENAMED, "broken.py", "broken.py does not build, so nothing can be compared with it"),
    ],
)
def test_a_base_that_cannot_be_compared_with_is_one_sentence_and_an_advice(
    repository: Path, text: str, base: str, said: str
) -> None:
    before = runs(repository)
    done = checked(repository, text, "--markdown", "c.md", base=base)
    assert (done.code, said in done.err, "  -> " in done.err) == (2, True, True), done.err
    assert "Traceback" not in done.err and runs(repository) == before
    assert "not compared" in (repository / "c.md").read_text().splitlines()[0]


def test_a_case_that_is_not_there_is_not_taken_for_one_that_is_the_same(repository: Path) -> None:
    done = checked(repository, RENAMED, "--case", "9m")
    assert done.code == 2 and "no public case is called 9m" in done.err, done.out + done.err


PART = ADD[: ADD.index("def reference")]
LAX = ADD.replace("CASES = {", "TOLERANCE = 9\nCASES = {", 1)


def test_a_kernel_part_alone_is_compared_for_the_target_that_is_named(tmp_path: Path) -> None:
    for name, text in (("t.py", ADD), ("new.py", PART), ("old.py", PART.replace("inside", "within"))):
        (tmp_path / name).write_text(text)
    pair = against.read(Asked(tmp_path / "new.py", str(tmp_path / "old.py"), tmp_path / "t.py"))
    assert "within" in pair.subject.source and "inside" in pair.new.source
    assert target.same_contract(pair.subject.contract, ADD) and target.same_contract(pair.new.source, ADD)


def test_the_judge_imports_nothing_of_the_file(tmp_path: Path) -> None:
    flops = ADD[ADD.index("def flops") : ADD.index("def bytes_moved")]
    (tmp_path / "old.py").write_text(ADD)
    (tmp_path / "new.py").write_text(f"print('imported')\n{ADD.replace(flops, '')}\n\n{flops}")  # in another order
    pair = against.read(Asked(tmp_path / "new.py", str(tmp_path / "old.py"), None))
    assert pair.subject.source == pair.subject.contract == ADD and "imported" in pair.new.source


@pytest.mark.parametrize("now", [ADD, None])
def test_a_contract_in_a_file_of_its_own_must_be_that_of_the_base(tmp_path: Path, now: str | None) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    file, sidecar = tmp_path / "add.py", tmp_path / "add.target.py"
    file.write_text(PART)
    sidecar.write_text(LAX)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "base")
    asked = Asked(file, "git:main", None)
    assert against.read(asked).subject.contract == LAX
    sidecar.write_text(f"import os  # by the pull request\n{LAX}")  # no statement of the contract, and yet code
    assert against.read(asked).subject.contract == LAX
    sidecar.write_text(now) if now else (sidecar.unlink(), file.write_text(ADD))
    with pytest.raises(UsageFault, match="another contract"):
        against.read(asked)


def test_a_file_that_the_revision_lacks_is_named(repository: Path) -> None:
    (repository / "fresh.py").write_text(ADD)
    done = pgo("check", "fresh.py", "--against", "git:main", cwd=repository)
    assert done.code == 2 and "has no file fresh.py" in done.err and "judge it alone" in done.err


def test_a_file_outside_of_a_repository_is_named(repository: Path, tmp_path: Path) -> None:
    outside = write(tmp_path)
    done = pgo("check", outside, "--against", "git:main", cwd=repository)
    assert done.code == 2 and "lies outside of the git repository" in done.err
    done = pgo("check", "add.py", "--against", "git:main", cwd=tmp_path)
    assert done.code == 2 and "add.py is in no git repository" in done.err


def test_a_symbolic_link_is_what_it_leads_to(repository: Path) -> None:
    link = repository / "link.py"
    if not link.is_symlink():
        link.symlink_to("add.py")
    assert pgo("check", "link.py", "--against", "git:main", cwd=repository).code == 0


def test_a_file_that_cannot_be_written_does_not_take_the_verdict_with_it(repository: Path) -> None:
    done = checked(repository, ADD + "# a remark\n", "--junit", "add.py/j.xml")
    assert done.code == 3 and "cannot write add.py/j.xml" in done.err and "same_code: add.py is the same" in done.err


@pytest.mark.parametrize("options", [["--target", "add.py", "--junit", "j.xml"], []])
def test_options_of_the_gate_need_a_base_and_a_check_a_target(repository: Path, options: list[str]) -> None:
    done = pgo("check", "add.py", *options, cwd=repository)
    assert done.code == 2 and "--against" in done.err


def test_nothing_that_a_pull_request_holds_becomes_markup_or_breaks_the_xml() -> None:
    hostile = "`a` | <script>\n# [x](http://y) \x00 ]]>"
    change = KernelChange(hostile, hostile, hostile, Resources(1, 2, 3), None, 4)
    code = CodeCompared(False, "", 1, 1, 1, changes=(change,))
    result = Result(hostile, hostile, hostile, hostile, "wrong", hostile, hostile, "smoke", code)
    text = markdown.text(result)
    head, *rows = text.splitlines()
    assert head.startswith("### `'a' | <script> # [x]") and sum(r.startswith("#") for r in rows) == 0
    outside = "".join(text.split("`")[::2])  # of code spans
    assert "<script>" not in outside and "[x](" not in outside
    table = next(r for r in rows if "script" in r and r.startswith("| "))
    assert table.replace("\\|", "").count("|") == 8
    assert ElementTree.fromstring(junit.text(result)).get("failures") == "1"
