"""`action.yml`: its steps, run as shell in a made-up repository. Nothing of GitHub is here but its variables."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.agent.command_line import ADD, write
from tests.conftest import ROOT

pytestmark = pytest.mark.long  # every kernel that ships, twice

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
SAID = re.compile(r"\$\{\{\s*([\w.]+)[^}]*\}\}")


@dataclass(frozen=True)
class Ended:
    code: int
    said: str
    summary: str


def git(folder: Path, *args: str) -> str:
    person = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", folder, *person, *args], check=True, capture_output=True, text=True).stdout


def acted(folder: Path, **inputs: str) -> Ended:
    """The steps of the action, one after another as long as they end well, as its runner calls them."""
    given = {name: str(i.get("default", "")) for name, i in ACTION["inputs"].items()} | inputs
    temp = folder.parent / "temp"
    temp.mkdir(exist_ok=True)
    values = {f"inputs.{k}": v for k, v in given.items()}
    values |= {"github.action_path": str(ROOT), "runner.temp": str(temp)}
    summary, said, code = temp / "summary.md", "", 0
    summary.write_text("")
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"], "text of a pull request would become shell"
        env = {k: SAID.sub(lambda m: values[m[1]], v) for k, v in step["env"].items()}
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        env = os.environ | env | {"GITHUB_STEP_SUMMARY": str(summary)}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
        said, code = said + done.stdout + done.stderr, done.returncode
        if code:
            break
    return Ended(code, said, summary.read_text())


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a branch `main`; its kernels lie in a folder."""
    folder = tmp_path_factory.mktemp("action") / "it"
    (folder / "my kernels").mkdir(parents=True)
    write(folder / "my kernels", alone=True)
    (folder / "my kernels" / "other.py").write_text(ADD)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "my kernels/add.py", "my kernels/other.py")
    git(folder, "commit", "-q", "-m", "base")
    return folder


def test_every_kernel_is_looked_at_and_each_has_its_part_of_the_comment(repository: Path) -> None:
    kernels = repository / "my kernels"
    (kernels / "add.py").write_text("# a remark\n" + ADD)
    (kernels / "other.py").write_text(ADD.replace("n=2048", "n=4096"))
    (kernels / "third.py").write_text(ADD.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)"))
    try:
        patterns, report = "my kernels/*.py\nnothing/*.py", str(repository.parent / "kernels.xml")
        done = acted(repository, files=patterns, against="git:main", python=sys.executable, junit=report)
    finally:
        (kernels / "third.py").unlink()
        git(repository, "checkout", "-q", "--", ".")
    assert done.code == 2, done.said
    heads = [line for line in done.summary.splitlines() if line.startswith("###")]
    assert heads == [
        "### `my kernels/add.py`: the same code",
        "### `my kernels/other.py`: not compared",
        "### `my kernels/third.py`: new, judged alone",
    ]
    assert "my kernels/other.py says something else than git:main (" in done.summary and ") of: SMALL" in done.summary
    assert "arange's range must be a power of 2" in done.summary
    suites = ElementTree.parse(report).getroot()
    classes = [{t.get("classname") for t in suite.iter("testcase")} for suite in suites]
    assert classes == [{f"my kernels/{name}.py"} for name in ("add", "other", "third")]
    assert [s.get("failures") for s in suites] == ["0", "0", "1"] and suites[1].get("errors") == "1"


@pytest.mark.slow
def test_a_pull_request_that_changes_no_kernel_passes(repository: Path) -> None:
    done = acted(repository, files="my kernels/*.py", against="git:main", python=sys.executable)
    assert done.code == 0, done.said
    assert done.summary.count(": the same code\n") == 2


def test_a_kernel_that_is_gone_is_named(repository: Path) -> None:
    (repository / "my kernels" / "other.py").unlink()
    try:
        done = acted(repository, files="my kernels/o*.py", against="git:main", python=sys.executable)
    finally:
        git(repository, "checkout", "-q", "--", ".")
    assert (done.code, done.summary.strip()) == (0, "### `my kernels/other.py`: deleted"), done.said


def test_patterns_that_fit_nothing_and_a_base_that_is_not_there_fail(repository: Path) -> None:
    done = acted(repository, files="nothing/*.py", against="git:main", python=sys.executable)
    assert done.code == 2 and "no file is called as one of" in done.said
    done = acted(repository, files="my kernels/add.py", against="git:gone", python=sys.executable)
    assert done.code == 2 and "there is no revision 'gone'" in done.summary


def test_the_workflow_of_this_repository_gives_the_action_what_it_takes() -> None:
    workflow: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "kernels.yml").read_text())
    uses = next(s for s in workflow["jobs"]["check"]["steps"] if s.get("uses") == "./")["with"]
    required = {name for name, i in ACTION["inputs"].items() if i.get("required")}
    assert required <= uses.keys() <= ACTION["inputs"].keys()
    shipped = {p.name for p in (ROOT / "kernels").glob("*.py")} - {"__init__.py"}
    assert {p.name for p in ROOT.glob(uses["files"])} == shipped
    assert workflow["permissions"] == {"contents": "read"}
