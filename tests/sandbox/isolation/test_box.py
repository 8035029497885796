"""What the box is to the process in it, one property a test, with bubblewrap and, where it holds, Landlock.

What hostile code tries lies in attacks/. `Attack` is the product's own box with other code in place of one of our
modules. Nothing here does lasting harm to the machine when it succeeds: then the test fails, and cleans up.
"""

import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box, Ran

SECRET = "sk-this-must-not-be-seen"  # also what stands in `outside`
PRELUDE = """\
import ctypes, glob, os, resource, signal, socket, sys, time
from pathlib import Path
box = Path(sys.argv[1])
"""


@dataclass(frozen=True)
class Attack(Box):
    folder: Path = field(kw_only=True)
    code: str = ""

    def _program(self, module: str) -> list[str]:
        return ["-c", PRELUDE + self.code]

    def ran(self, code: str, seconds: float = 30.0) -> Ran:
        return replace(self, code=textwrap.dedent(code)).run("pgo_agent.sandbox.compiler", self.folder, seconds)

    def refused(self, code: str) -> bool:
        """Whether the operating system refused it; fails when anything else happened."""
        tried = f"try:\n{textwrap.indent(code, '    ')}\nexcept OSError as e:\n    print('refused', e)"
        output = self.ran(f"{tried}\nelse:\n    print('succeeded')").output
        assert output.startswith(("refused", "succeeded")), output
        return output.startswith("refused")


FORKED = "bubblewrap, forked"
BUBBLEWRAP = [pytest.param(k, marks=pytest.mark.bwrap) for k in ("bubblewrap", FORKED)]
bubblewrap_only = pytest.mark.parametrize("attack", BUBBLEWRAP, indirect=True)


@pytest.fixture(params=[*BUBBLEWRAP, "landlock"])
def attack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attack]:
    """As root, Landlock's box is uid 65534: it needs an interpreter and a folder that everybody may reach."""
    kind = request.param.split(",")[0]
    system = Path("/usr/bin/python3")
    public = kind == "landlock" and os.geteuid() == 0 and system.exists()
    python = str(system) if public else sys.executable
    problem = box.problem_with(kind, python)
    if problem:
        pytest.skip(f"{kind} does not work here: {problem.splitlines()[0]}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Attack(kind, python, folder=Path(name) if public else tmp_path, forks=request.param == FORKED)


def test_it_may_write_to_out_and_tmp_and_read_its_folder(attack: Attack) -> None:
    (attack.folder / "request.json").write_text("{}")
    ran = attack.ran("for n in ('out', 'tmp'): (box/n/'x').write_text((box/'request.json').read_text())")
    assert (ran.code, ran.output) == (0, "")
    assert [(attack.folder / n / "x").read_text() for n in ("out", "tmp")] == ["{}", "{}"]


def test_its_exit_status_and_output_are_told(attack: Attack) -> None:
    ran = attack.ran("print('bye'); sys.stderr.write('now'); sys.exit(7)")
    assert (ran.code, sorted(ran.output.split()), ran.timed_out, ran.killed) == (7, ["bye", "now"], False, False)


def test_a_process_that_was_killed_is_told_from_one_that_failed(attack: Attack) -> None:
    assert attack.ran("os.kill(os.getpid(), signal.SIGKILL)").killed


CHANGES = (
    "(box/'new').write_text('')", "(box/'request.json').write_text('')", "(box/'request.json').rename(box/'out'/'r')",
    "(box/'request.json').unlink()", "(box/'out').rename(box/'elsewhere')",
)  # fmt: skip


def test_it_cannot_change_its_own_folder(attack: Attack) -> None:
    (attack.folder / "request.json").write_text("{}")
    tried = "try:\n    {0}\n    print('succeeded')\nexcept OSError as e:\n    print('refused', e)\n"
    said = attack.ran("".join(tried.format(code) for code in CHANGES)).output.splitlines()
    assert [line.partition(" ")[0] for line in said] == ["refused"] * len(CHANGES), said
    assert sorted(p.name for p in attack.folder.iterdir()) == ["out", "process.log", "request.json", "tmp"]


def test_it_cannot_write_into_our_package(attack: Attack) -> None:
    assert attack.refused("os.open(__import__('pgo_agent.sandbox').sandbox.__file__, os.O_WRONLY)")


@bubblewrap_only
def test_its_tmp_is_not_the_machines(attack: Attack) -> None:
    name = f"/tmp/pgo-test-{os.getpid()}"
    assert attack.ran(f"open({name!r}, 'w')").code == 0
    assert not Path(name).exists()


def test_a_link_that_it_left_is_not_followed_by_the_next_run(attack: Attack, outside: Path) -> None:
    attack.ran(f"os.symlink({str(outside)!r}, box/'out'/'link')")
    assert (attack.folder / "out" / "link").is_symlink()
    attack.ran("")
    assert outside.stat().st_mode & 0o777 == 0o666


def test_a_log_that_is_a_link_is_not_written_through(attack: Attack, outside: Path) -> None:
    (attack.folder / "process.log").symlink_to(outside)
    assert attack.ran("print('x')").output == "x\n"
    assert outside.read_text() == SECRET


def test_it_can_import_nothing_of_the_agent(attack: Attack) -> None:
    assert attack.ran("import pgo_agent.sandbox.errors").code == 0
    output = attack.ran("import pgo_agent.agent").output
    assert "No module named 'pgo_agent.agent'" in output or "PermissionError" in output


@bubblewrap_only
def test_it_has_no_privilege(attack: Attack) -> None:
    ran = attack.ran("print(os.getuid(), open('/proc/self/status').read())")
    assert not ran.output.startswith("0 ")
    assert "CapEff:\t0000000000000000" in ran.output


def test_it_can_gain_no_privilege(attack: Attack) -> None:
    assert "NoNewPrivs:\t1" in attack.ran("print(open('/proc/self/status').read())").output


# devices and network --------------------------------------------------------------------------------------------------


def test_it_can_open_no_gpu_and_no_disk(attack: Attack) -> None:
    nodes = [str(p) for p in Path("/dev").iterdir() if p.name.startswith(("nvidia", "kvm")) or p.is_block_device()]
    code = """
    for node in {}:
        try: print(os.open(node, os.O_RDONLY), node)
        except OSError: pass
    """
    assert attack.ran(code.format([*nodes, "/dev/nvidiactl", "/dev/nvidia0"])).output == ""


def test_the_cuda_driver_finds_no_device(attack: Attack) -> None:
    ran = attack.ran("del os.environ['CUDA_VISIBLE_DEVICES']; print(ctypes.CDLL('libcuda.so.1').cuInit(0))")
    assert "libcuda.so.1: cannot open" in ran.output or int(ran.output) != 0


# ends and limits ------------------------------------------------------------------------------------------------------


def test_an_infinite_loop_is_ended_at_the_deadline(attack: Attack) -> None:
    ran = attack.ran("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", seconds=1.0)
    assert (ran.timed_out, ran.killed) == (True, False)
    assert ran.seconds < 10


def test_a_huge_file_is_refused(attack: Attack) -> None:
    assert attack.refused("os.truncate(open(box/'out'/'huge', 'wb').fileno(), (1 << 30) + 1)")


@bubblewrap_only
def test_it_cannot_raise_its_limits(attack: Attack) -> None:
    code = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 31, 1 << 31))"
    assert "ValueError: not allowed to raise maximum limit" in attack.ran(code).output


def test_foreign_code_is_not_admitted_without_a_box() -> None:
    with pytest.raises(EnvironmentFault, match="no sandbox works on this machine"):
        Box("none").admit(untrusted=True)


@pytest.mark.parametrize(("kind", "foreign"), [("none", False), ("landlock", True), ("bubblewrap", True)])
def test_other_code_is_admitted(kind: str, foreign: bool) -> None:
    Box(kind).admit(foreign)


def test_an_unknown_box_is_a_mistake_of_usage() -> None:
    with pytest.raises(UsageFault, match="choose one of: auto, bubblewrap, landlock, none"):
        box.choose("nonsense")


def test_a_kind_of_box_is_tried_once_however_it_is_asked_for() -> None:
    box.choose()
    before = box.tried.cache_info().misses
    box.problem_with("bubblewrap")
    box.problem_with("bubblewrap", sys.executable)
    box.choose()
    assert box.tried.cache_info().misses == before
