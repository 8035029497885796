"""The processes of this machine as tests look at them: in /proc, by their parents and command lines."""

import sys
from collections.abc import Mapping
from pathlib import Path

FORKED = "forkserver_main.py"  # in the command line of what is forked, of what it is forked from, and of one between


def alive() -> dict[int, tuple[int, str]]:
    """Process -> its parent and command line, for those that have not ended."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry.name)] = int(parent), command
    return found


def below(pid: int, among: Mapping[int, tuple[int, str]] | None = None) -> set[int]:
    """The living descendants of a process."""
    processes, found, new = alive() if among is None else among, set[int](), {pid}
    while new:
        new = {p for p, (parent, _) in processes.items() if parent in new}
        found |= new
    return found


def judges(agent: int) -> set[int]:
    """The judges of a process: begun anew, or forked and then named. What these begin has their name for a moment."""
    found = alive()
    names = {p: _name(p) for p in below(agent, found)}
    forked = {p for p, name in names.items() if name == "judge" and names.get(found[p][0]) != "judge"}
    return forked | {p for p in names if "-m pgo_agent.sandbox.judge" in found[p][1]}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def depth(pid: int, module: str, among: Mapping[int, tuple[int, str]]) -> int:
    """1 for the boxed process that runs one of our modules (`sandbox.compiler`), 2 for a child of it, else below 1."""
    forked = pid in among and FORKED in among[pid][1]
    return _named(pid, module, among) - (2 if forked else 0)


def _named(pid: int, module: str, among: Mapping[int, tuple[int, str]]) -> int:
    """How many processes, from this one up, have the module's name."""
    parent, command = among.get(pid, (0, ""))
    return 1 + _named(parent, module, among) if command.startswith(sys.executable) and module in command else 0
