"""A boxed process that is forked from one that has its libraries, beside one that is begun anew: nothing else differs.

`Told` is the product's own box, with other code in place of the compiler; the process that forks has triton.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import forkserver, rlimits
from pgo_agent.sandbox.isolation.box import Box, Ran

from tests.sandbox import tracing

pytestmark = pytest.mark.bwrap
MODULE = "pgo_agent.sandbox.compiler"
COPIED = "\ndef copied(x):\n    y = torch.empty_like(x)\n    _copy[(4,)](x, y, 4096, BLOCK=1024)\n    return y\n"
SEEN = """
import json, os, resource, sys
from pathlib import Path
status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
same = ["Umask", "TracerPid", "Uid", "Gid", "Groups", "SigBlk", "CapPrm", "CapEff", "CapAmb",
        "NoNewPrivs", "Seccomp", "Speculation_Store_Bypass", "Cpus_allowed_list"]
limits = [n for n in dir(resource) if n.startswith("RLIMIT_")]
print(json.dumps({
    "status": {n: status[n] for n in same},
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in limits},
    "environment": dict(os.environ),
    "initial environment": sorted(Path("/proc/self/environ").read_text().split("\\0")),
    "path": sys.path, "argv": sys.argv, "executable": sys.executable, "prefix": sys.prefix,
    "flags": str(sys.flags), "cwd": os.getcwd(), "root": sorted(os.listdir("/")),
    "mounts": sorted(line.split(" - ")[0].split(" ", 3)[3] for line in open("/proc/self/mountinfo")),
    "files": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in ("0", "1", "2")},
    "open": len(os.listdir("/proc/self/fd")),
    "network": os.listdir("/sys/class/net") if Path("/sys/class/net").exists() else [],
    "host name": os.uname().nodename,
    "own proc": os.stat("/proc/self/mem").st_uid, "oom": Path("/proc/self/oom_score_adj").read_text(),
    "namespaces of its own": os.path.exists("/proc/self/ns/pid"), "main": __name__, "nice": os.nice(0),
}))
"""


@dataclass(frozen=True)
class Told(Box):
    folder: Path = field(kw_only=True)
    code: str = ""

    def _program(self, module: str) -> list[str]:
        return ["-c", self.code]

    def ran(self, code: str, seconds: float = 60.0) -> Ran:
        return replace(self, code=textwrap.dedent(code)).run(MODULE, self.folder, seconds)


@pytest.fixture
def forked(tmp_path: Path) -> Told:
    return Told("bubblewrap", folder=tmp_path)


def forkers() -> list[int]:
    """The processes of this one that fork boxed ones."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if str(forkserver.PROCESS).encode() in words and parent == os.getpid():
            found.append(int(entry.name))
    return found


def gone(pids: list[int], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not [p for p in pids if Path(f"/proc/{p}").exists()]:
            return True
        time.sleep(0.05)
    return False


def test_it_sees_and_may_do_what_one_that_is_begun_anew_does(forked: Told) -> None:
    seen = [json.loads(box.ran(SEEN).output) for box in (forked, replace(forked, forks=False))]
    assert forkers()
    assert seen[0] == seen[1]


def test_it_has_the_libraries_and_none_of_our_modules_but_those_of_its_box(forked: Told) -> None:
    ran = forked.ran("import sys; print('triton' in sys.modules, [m for m in sys.modules if 'warm' in m])")
    assert ran.output.split(maxsplit=1) == ["True", "[]\n"]


def test_its_modules_of_ours_are_those_that_a_process_which_is_begun_anew_finds_in_its_box(forked: Told) -> None:
    forking = ("pgo_agent.sandbox.isolation.huge_pages", "pgo_agent.sandbox.isolation.rlimits")
    names = [*forking, *(n for n in forkserver.LIBRARIES[MODULE] if n.startswith("pgo_agent"))]
    code = f"""
    import importlib, inspect, json, sys
    before = [n for n in sys.modules if n.startswith("pgo_agent")]
    for name in {names}:
        importlib.import_module(name)
    ours = {{n: m for n, m in sys.modules.items() if n.startswith("pgo_agent.")}}
    said = {{n: [m.__file__, m.__spec__.origin, m.__cached__, list(getattr(m, "__path__", [])), inspect.getsource(m),
                [f.__code__.co_filename for f in vars(m).values() if inspect.isfunction(f)]] for n, m in ours.items()}}
    print(json.dumps([len(before), said, sys.modules["pgo_agent"].__path__[0]]))
    """
    (here, *mine), (_, *other) = (json.loads(b.ran(code).output) for b in (forked, replace(forked, forks=False)))
    assert mine == other and here > 20


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not schedule sessions")
@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel lets users say it some times a second only")
def test_its_session_lets_others_go_first(forked: Told) -> None:
    said = forked.ran("print(open('/proc/self/autogroup').read())").output
    assert said.split()[1:] == ["nice", str(rlimits.NICE)]


def test_what_holds_its_box_open_has_its_limits(forked: Told) -> None:
    code = """
    import os
    from pathlib import Path
    processes = [p for p in os.listdir("/proc") if p.isdigit()]
    print(len(processes) > 2, len({Path(f"/proc/{p}/limits").read_text() for p in processes}))
    """
    assert forked.ran(code).output == "True 1\n"


def test_it_could_gain_no_capability(forked: Told) -> None:
    lines = forked.ran("print(open('/proc/self/status').read())").output.splitlines()
    assert {n: int(v, 16) for n, v in (line.split() for line in lines if line.startswith("Cap"))} == {
        f"Cap{name}:": 0 for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")
    }


def test_nothing_that_one_does_is_there_for_the_next(forked: Told) -> None:
    assert forked.ran("import triton; triton.cdiv = 1; open('/tmp/x', 'w'); open('/box/tmp/y', 'w')").code == 0
    ran = forked.ran(
        "import os, triton; print(triton.cdiv(5, 2), os.path.exists('/tmp/x'), os.path.exists('/box/tmp/y'))"
    )
    assert ran.output == "3 False True\n"  # the folder is this test's, and the same for both


@pytest.mark.long
def test_importing_ahead_opens_nothing_of_the_users_nor_of_a_place_where_others_write(tmp_path: Path) -> None:
    code = f"""
import importlib, sys
opened = []
sys.addaudithook(lambda event, of: opened.append(str(of[0])) if event in ("open", "os.listdir", "os.mkdir") else None)
for name in {sorted({n for names in forkserver.LIBRARIES.values() for n in names})!r}:
    importlib.import_module(name)
print([path for path in opened if path.startswith({str(tmp_path)!r})])
"""
    env = {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "PATH": "/usr/bin",
    }
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], env=env, capture_output=True, text=True, cwd="/", check=True
    )
    assert done.stdout == "[]\n"


def test_several_at_a_time_do_not_see_one_another(tmp_path: Path) -> None:
    boxes = [Told("bubblewrap", folder=tmp_path / str(n)) for n in range(4)]
    for box in boxes:
        box.folder.mkdir()
    code = "import os, time; time.sleep(0.3); print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))"
    with ThreadPoolExecutor(4) as pool:
        outputs = {ran.output for ran in pool.map(lambda box: box.ran(code), boxes)}
    (processes,) = outputs
    assert len(json.loads(processes)) == 3  # bubblewrap's, the shell that holds the box, and itself


def test_an_exit_a_traceback_and_a_signal_are_told_as_ever(forked: Told) -> None:
    for code in ("raise SystemExit(7)", "raise SystemExit('why')", "1 / 0", "import os; os.kill(os.getpid(), 15)", ""):
        mine, other = forked.ran(code), replace(forked, forks=False).ran(code)
        assert mine.code == other.code, code
        assert mine.output.splitlines()[-1:] == other.output.splitlines()[-1:]


def test_what_it_leaves_behind_ends_with_it(forked: Told) -> None:
    name = f"left-{os.getpid()}"
    code = f"""
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"{name}")
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(600)
time.sleep(1)
"""
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(forked.ran, code)
        left = set[int]()
        while not ran.done():
            left |= set(called(name))
            time.sleep(0.01)
        assert ran.result().code == 0 and len(left) > 1
    assert gone(sorted(left))


def called(name: str) -> list[int]:
    """Processes of that name (PR_SET_NAME, which a fork keeps)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text().strip() == name:
                found.append(int(entry.name))
    return found


def test_it_ends_at_its_deadline(forked: Told) -> None:
    forked.ran("")
    ran = forked.ran("import time; time.sleep(600)", seconds=1.0)
    assert ran.timed_out and ran.seconds < 10


def test_when_the_process_that_forks_is_killed_another_takes_its_place(forked: Told) -> None:
    forked.ran("")
    before = forkers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert forked.ran("print('fine')").output == "fine\n"
    assert forkers() and not set(before) & set(forkers())


def test_one_that_is_killed_while_it_imports_is_begun_again(forked: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forkserver.LIBRARIES, MODULE, ("json", "triton"))  # a process of this test's own
    before = set(forkers())
    forked.prepare(MODULE)
    while not (begun := set(forkers()) - before):  # what it is shows shortly after it began
        pass
    os.kill(begun.pop(), signal.SIGKILL)
    assert forked.ran("import sys; print('triton' in sys.modules)").output == "True\n"


def test_where_the_libraries_cannot_be_imported_a_process_is_begun_anew(
    forked: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(forkserver.LIBRARIES, MODULE, ("no_such_library",))
    for _ in range(2):
        assert forked.ran("import sys; print('triton' in sys.modules)").output == "False\n"


def test_where_a_box_may_not_be_joined_a_process_is_begun_anew(forked: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a bubblewrap that is setuid root; here what stands for the box is no process at all."""
    monkeypatch.setattr(os, "pidfd_open", lambda _pid: os.open("/dev/null", os.O_RDONLY))
    monkeypatch.setitem(forkserver.LIBRARIES, MODULE, ("json",))  # a forking process of this test's own: it is given up
    for _ in range(2):
        assert forked.ran("print('fine')").output == "fine\n"


def test_a_box_that_is_gone_before_it_is_joined_was_killed(forked: Told) -> None:
    with subprocess.Popen(["true"]) as process:
        box = os.pidfd_open(process.pid)
    with forkserver.entered(sys.executable, MODULE, {"PATH": "/usr/bin"}, box, 2, ["-c", ""]) as entered:
        entered.wait(60)
        assert entered.code == forkserver.KILLED


def test_outside_of_a_box_nothing_is_run(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may join its own namespaces again")
    log = os.open(tmp_path / "log", os.O_CREAT | os.O_RDWR)
    words = ["-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    with forkserver.entered(
        sys.executable, MODULE, {"PATH": "/usr/bin"}, os.pidfd_open(os.getpid()), log, words
    ) as entered:
        entered.wait(60)
        assert entered.code == 1
    assert "this is no box" in (tmp_path / "log").read_text() and not (tmp_path / "ran").exists()


@pytest.mark.long
def test_the_same_source_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, made = tracing.write(tmp_path, COPIED), []
    monkeypatch.setattr(forkserver._servers(), "ahead", ())  # and so it is again after this test
    for forks, compiler in ((False, False), (True, False), (True, True)):
        if compiler:
            forkserver.expect_compiler()
        box, contents = Box("bubblewrap", forks=forks), ContentStore(tmp_path / f"{forks} {compiler}")
        device = devices.find("h200")
        traced: dict[str, Any] = trace_and_compile.trace(box, contents, of, device, of.source, {"CASES": None}, None)
        traced.pop("took")
        texts, options = traced["texts"], {k: v["options"] for k, v in traced["kernels"].items()}
        trace_and_compile.compile_missing(box, contents, device, texts, options, 1)
        made.append((traced, [contents.build(k) for k in texts]))
    assert made[0] == made[1] == made[2] and made[0][1]


def test_the_process_that_forks_ends_with_an_agent_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from pgo_agent.sandbox.isolation import forkserver
from pgo_agent.sandbox.isolation.box import Box
os.mkdir({str(tmp_path / "box")!r})
Box("bubblewrap").run({MODULE!r}, Path({str(tmp_path / "box")!r}), 60)
(kept,) = forkserver._servers()._warm.values()
print(kept._popen.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        forks = int(agent.stdout.readline())
        assert Path(f"/proc/{forks}").exists()
        agent.kill()
    assert gone([forks])


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert len(forkers()) < 8
