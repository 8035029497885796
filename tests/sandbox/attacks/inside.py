"""Runs an attacker's Python where a candidate's would run: in the tracer, the interpreter or the compiler, boxed.

A seat is a process of the product in a kind of box, started by a user. `run_here` has this process for an agent, whose
boxed processes are forked from one that has what they import. `python inside.py`, which `run` starts, takes the place
of the agent: it drops to that user, and runs the product's own box as the product does. In tracer and interpreter the
attack is the first thing in the candidate's file. No candidate's Python runs in the compiler: there the attack takes
the compiler's place, as if MLIR's parser had been taken over by a text.
"""

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.sandbox.build import trace_and_compile
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.isolation.box import Box, Ran
from pgo_agent.sandbox.isolation.bubblewrap import NOBODY

from tests.sandbox import tracing

ROLES = ("tracer", "interpreter", "compiler")
USER = 4242  # an ordinary user, where the tests run as root
SYSTEM = Path("/usr/bin/python3")
HONEST = "\ndef copied(x):\n    y = torch.empty_like(x)\n    _copy[(4,)](x, y, 4096, BLOCK=1024)\n    return y\n"


@dataclass(frozen=True)
class Seat:
    kind: str  # of box
    role: str
    user: bool = False  # started by an ordinary user (as root: see above)

    def __str__(self) -> str:
        return f"{self.role} in {self.kind}{' of a user' if self.user else ''}"

    @property
    def python(self) -> str:
        """As root, Landlock's box and an ordinary user need an interpreter that everybody may reach."""
        others = os.geteuid() == 0 and (self.user or self.kind == "landlock")
        return str(SYSTEM) if others and not _public(Path(sys.executable).resolve()) else sys.executable

    @property
    def uid(self) -> int:
        """Whom the attacker runs as."""
        if os.geteuid():
            return os.geteuid()
        return USER if self.user else 0 if self.kind == "none" else NOBODY

    def problem(self) -> str:
        """Why this seat is not there on this machine; empty when it is."""
        if self.user and os.geteuid():
            return "the tests run as an ordinary user: that is the plain seat"
        if self.python == str(SYSTEM) and _version(SYSTEM) != sysconfig.get_python_version():
            return f"no Python {sysconfig.get_python_version()} that other users may run"
        return "" if self.kind == "none" else box.problem_with(self.kind, self.python)

    def run_here(self, attack: str, folder: Path, seconds: float = 60.0, **given: Any) -> Ran:
        """As `run`, with this process for an agent where that will do: for what asks nothing of the agent's own.

        Others than the compiler need torch, which Python of the system finds by the PYTHONPATH that `run` gives.
        """
        if self.user or self.role != "compiler":
            return self.run(attack, folder, seconds, **given)
        self._lay_out(attack, folder, given)
        return self.boxed(self.python, folder, seconds)

    def boxed(self, python: str, folder: Path, seconds: float) -> Ran:
        """Run what was laid out, as an agent does."""
        kind = Taken if self.role == "compiler" else Box
        env = {"TRITON_INTERPRET": "1"} if self.role == "interpreter" else {}
        return kind(self.kind, python).run(f"pgo_agent.sandbox.{self.role}", folder, seconds, env=env)

    def _lay_out(self, attack: str, folder: Path, given: dict[str, Any]) -> None:
        folder.mkdir()
        text = f"GIVEN = {given!r}\n{attack}"
        _prepare(folder, self.role, f"{_out('Path(__file__).parents[1]')}{text}")
        (folder / "attack").write_text(f"{_out('Path(sys.argv[1])')}{text}")

    def run(self, attack: str, folder: Path, seconds: float = 60.0, pass_fds: Sequence[int] = (), **given: Any) -> Ran:
        """What came of the attack. It finds its folder for results in OUT, and `given` in GIVEN."""
        self._lay_out(attack, folder, given)
        for path in (folder, *folder.rglob("*")) if self.user else ():
            os.chown(path, USER, USER)
        asked = dataclasses.asdict(self) | {"folder": str(folder), "seconds": seconds}
        path = os.pathsep.join([str(Path(tracing.__file__).parents[2]), sysconfig.get_path("purelib")])
        command = [sys.executable, __file__, json.dumps(asked)]
        env = os.environ | {"PYTHONPATH": path, "OPENAI_API_KEY": given.get("secret", "")}
        done = subprocess.run(command, env=env, pass_fds=pass_fds, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return Ran(**json.loads(done.stdout))


def _out(folder: str) -> str:
    return f"import sys\nfrom pathlib import Path\nOUT = {folder} / 'out'\n"


def _public(path: Path) -> bool:
    return all(p.stat().st_mode & 0o5 == 0o5 for p in (path, *path.parents))


def _version(python: Path) -> str:
    code = "import sysconfig; print(sysconfig.get_python_version())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def folder_for_all() -> "tempfile.TemporaryDirectory[str]":
    """A folder that every user may enter (those of pytest belong to one)."""
    place = tempfile.TemporaryDirectory(prefix="pgo-attack-", ignore_cleanup_errors=True)
    Path(place.name).chmod(0o755)
    return place


def _prepare(folder: Path, role: str, attack: str) -> None:
    """Lays out a box's folder as `boxed.trace` and `on_cpu` do, the attack on top of an honest candidate."""
    with tempfile.TemporaryDirectory() as name:
        of = tracing.write(Path(name), HONEST)
        contract, candidate = trace_and_compile.place(folder, of, f"{attack}\n{of.source}", hide=True)
    (folder / "in").mkdir()
    request: dict[str, Any] = {"device": "h200", "contract": contract, "candidate": candidate}
    request |= {"limit": None, "cases": {"CASES": None}} if role == "tracer" else {"configs": 1, "cases": {}}
    (folder / "request.json").write_text(json.dumps(request))


class Taken(Box):
    """A box in whose process the attack runs in place of the module."""

    def _program(self, module: str) -> list[str]:
        return ["-c", "import sys; from pathlib import Path; exec(Path(sys.argv[1], 'attack').read_text())"]


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as after an exec, /proc/self belongs to the user


def main(asked: dict[str, Any]) -> None:
    seat = Seat(asked["kind"], asked["role"], asked["user"])
    python = seat.python  # which only root asks for
    if seat.user:
        _become(USER)
    ran = seat.boxed(python, Path(asked["folder"]), asked["seconds"])
    print(json.dumps(dataclasses.asdict(ran)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
