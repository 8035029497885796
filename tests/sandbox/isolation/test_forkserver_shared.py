"""The process that boxed ones are forked from, begun ahead of need, and shared with forks and with other processes."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pgo_agent.sandbox.isolation import forkserver

pytestmark = pytest.mark.bwrap
HEAD = """
import os, subprocess, sys
from pathlib import Path
from pgo_agent.sandbox.isolation import forkserver
from pgo_agent.sandbox.isolation.box import Box

MODULE = "pgo_agent.sandbox.compiler"
box, warm = Box("bubblewrap"), forkserver._servers()._warm


def runs(folder):
    \"\"\"Whether it runs in a box: it finds no request there, and says so.\"\"\"
    Path(folder).mkdir()
    return "request.json" in box.run(MODULE, Path(folder), 60).output
"""
AHEAD = """
box.prepare(MODULE)
(ahead,) = warm.values()
print(runs("ours"), list(warm.values()) == [ahead], flush=True)
if not (child := os.fork()):
    print(runs("fork"), list(warm.values()) == [ahead], flush=True)
    sys.exit()
os.waitpid(child, 0)
print(not ahead.ended, runs("after the fork"))
"""
LENDER = """
inherited = box.prepare(MODULE)
(ours,) = warm.values()
if sys.argv[2] == "killed":
    ours._popen.kill()
    ours._popen.wait()
subprocess.run([sys.executable, "-c", sys.argv[1], str(inherited)], pass_fds=[inherited], check=True)
print(ours.ended, runs("lender"), list(warm.values()) == [ours])
"""
BORROWER = """
box.borrow(MODULE, int(sys.argv[1]))
print(runs("borrower"), next(iter(warm.values())).borrowed, flush=True)
"""


def printed(folder: Path, code: str, *args: str) -> list[str]:
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_was_begun_ahead_serves_this_process_and_its_forks_and_outlives_them(tmp_path: Path) -> None:
    assert printed(tmp_path, AHEAD) == ["True True", "True True", "True True"]


def test_a_process_that_inherits_the_open_file_forks_from_it_and_does_not_end_it(tmp_path: Path) -> None:
    assert printed(tmp_path, LENDER, HEAD + BORROWER, "alive") == ["True True", "False True True"]


def test_where_what_was_lent_has_been_killed_each_begins_its_own(tmp_path: Path) -> None:
    assert printed(tmp_path, LENDER, HEAD + BORROWER, "killed") == ["True False", "True True False"]


def test_a_users_program_is_forked_from_what_tracers_are_forked_from() -> None:
    kinds = {forkserver._kind("python", f"pgo_agent.sandbox.tracer{m}", {}) for m in ("", ".user_program")}
    assert len(kinds) == 1


LENT = """
from pgo_agent.sandbox.isolation import lending
lent = lending.lend()
ours = list(warm.values())
subprocess.run([sys.executable, "-c", sys.argv[1]], env=lent.env, pass_fds=lent.files, check=True)
print(len(ours), [o.ended for o in ours])
"""
BORROWED = """
from pgo_agent.sandbox.isolation import lending
lending.borrow()
print(runs("borrower"), [w.borrowed for w in warm.values()], [v for v in os.environ if v == lending.VARIABLE])
print([os.get_inheritable(w.ours.fileno()) for w in warm.values()], flush=True)
"""


def test_a_command_lends_all_kinds_to_another_which_hands_them_to_nobody(tmp_path: Path) -> None:
    borrower = HEAD + textwrap.dedent(BORROWED)
    assert printed(tmp_path, LENT, borrower) == [
        "True [True, True, True] []",
        "[False, False, False]",
        "3 [False, False, False]",
    ]
