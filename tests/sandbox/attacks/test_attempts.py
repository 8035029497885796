"""What `attempts.py` tries, from inside every seat: the operating system must refuse each, and only the box makes it.

The same attempts, by the same process without a box, get through. Seats and servers are real; a report is made once for
each seat.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pgo_agent.sandbox.isolation import landlock

from tests.sandbox.attacks import world
from tests.sandbox.attacks.inside import Seat, folder_for_all

TEXT = (Path(__file__).parent / "attempts.py").read_text()
NAMES = [n.name for n in ast.parse(TEXT).body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
SEATS = [
    Seat("bubblewrap", "tracer"),
    Seat("bubblewrap", "compiler"),
    Seat("landlock", "compiler"),
    Seat("bubblewrap", "compiler", user=True),
    Seat("landlock", "compiler", user=True),
    *(
        pytest.param(seat, marks=pytest.mark.slow)
        for seat in (
            Seat("landlock", "tracer"),
            Seat("bubblewrap", "interpreter"),
            Seat("landlock", "interpreter"),
            Seat("bubblewrap", "tracer", user=True),
            Seat("landlock", "tracer", user=True),
        )
    ),
]
# What a machine may well refuse to everybody: it has no such thing, or lies in somebody's container.
PERHAPS = {
    "read_by_handle", "set_how_the_kernel_behaves", "set_how_the_kernel_manages_memory", "read_a_key_of_the_keyring",
    "become_root", "set_the_host_name", "make_a_user_namespace", "mount_a_file_system", "enter_anothers_namespace",
    "use_io_uring", "use_userfaultfd", "use_performance_counters", "load_a_program_into_the_kernel",
    "read_the_kernels_log", "tcp_by_several_paths", "tcp_with_data_in_its_first_packet", "take_anothers_open_file",
    "trace_another_process", "read_anothers_memory", "read_memory_that_others_share",
    "change_an_attribute_of_the_users_own_file",
}  # fmt: skip
SINCE_6_12 = {"signal_another_process", "unix_socket_without_a_file"}  # refused by Landlock
OPEN = {"landlock": {"see_another_process"}}  # as box.py says


@cache
def report(seat: Seat) -> dict[str, str] | str:
    """What came of every attempt; a text where the process left no report."""
    with folder_for_all() as name, world.made(seat.uid) as given:
        folder = Path(name) / "box"
        ran = seat.run(f"{TEXT}\n\n_report()\n", folder, pass_fds=[given["inherit"]], **given)
        path = folder / "out" / "report.json"
        if not path.is_file():
            return f"{seat}: {ran}"
        found: dict[str, str] = json.loads(path.read_text())
        if seat.role == "tracer":  # the attacker goes on as an honest candidate
            assert '"plan"' in (folder / "out" / "result.json").read_text()
        return found


def came_of(seat: Seat, name: str) -> str:
    found = report(seat)
    assert isinstance(found, dict), found
    return found[name]


@pytest.fixture(scope="session", params=SEATS, ids=str)
def tried(request: pytest.FixtureRequest) -> tuple[Seat, Callable[[str], str]]:
    seat: Seat = request.param
    if problem := seat.problem():
        pytest.skip(f"{seat}: {problem.splitlines()[0]}")
    return seat, lambda name: came_of(seat, name)


def inherited() -> str:
    """What a process finds that is started without closing files: every kind of box closes them, 'none' as well."""
    code = f"from pathlib import Path\nOUT, GIVEN = Path(), {{'inherited': 'pgo-outside-'}}\n{TEXT}\n"
    with world.made(os.geteuid()) as given:
        command = [sys.executable, "-c", f"{code}print(_tried(find_an_inherited_file))"]
        return subprocess.run(command, pass_fds=[given["inherit"]], capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("role", ["compiler", pytest.param("tracer", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_without_a_box_it_gets_through(name: str, role: str) -> None:
    said = came_of(Seat("none", role), name) if name != "find_an_inherited_file" else inherited()
    if name in PERHAPS and said.startswith("refused"):
        pytest.skip(f"this machine refuses it to everybody: {said}")
    assert said == "got through"


@pytest.mark.parametrize("name", NAMES)
def test_a_box_refuses(name: str, tried: tuple[Seat, Callable[[str], str]]) -> None:
    seat, said = tried
    if seat.kind == "landlock" and name in SINCE_6_12 and landlock.abi() < 6:
        pytest.skip("Landlock refuses this from Linux 6.12 on")
    expected = "got through" if name in OPEN.get(seat.kind, ()) else "refused"
    assert said(name).startswith(expected), f"{name}: {said(name)}"
