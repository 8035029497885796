"""Lends other commands of ours what boxed processes are forked from: each would import torch and triton again, twice.

A command that begins others gives them open files, and names them in a variable of their environment. Where bubblewrap
does not work nothing is lent, and a command that is lent nothing, or has another Python, begins its own.
"""

import json
import os
from typing import NamedTuple

VARIABLE = "PGO_AGENT_FORKS"
MODULES = ("pgo_agent.sandbox.tracer", "pgo_agent.sandbox.compiler", "pgo_agent.sandbox.interpreter")


class Lent(NamedTuple):
    """What `subprocess.Popen` is to be given."""

    env: dict[str, str]
    files: tuple[int, ...]


def lend() -> Lent:
    """Begin what boxed processes are forked from, unless it is there."""
    from pgo_agent.sandbox.isolation import box

    if box.problem_with("bubblewrap"):
        return Lent(dict(os.environ), ())
    begun = {module: box.Box("bubblewrap").prepare(module) for module in MODULES}
    files = {module: fd for module, fd in begun.items() if fd is not None}
    return Lent(os.environ | {VARIABLE: json.dumps(files)}, tuple(files.values()))


def borrow() -> None:
    """Use what the command that began this one has lent; processes that this one begins do not inherit it."""
    if not (named := os.environ.pop(VARIABLE, "")):
        return
    from pgo_agent.sandbox.isolation.box import Box

    for module, inherited in json.loads(named).items():
        os.set_inheritable(inherited, False)
        Box("bubblewrap").borrow(module, inherited)
