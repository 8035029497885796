"""Asks the interpreter that traces and compiles what its Gluon offers. The answer is kept for its version of Triton.

What comes back is bounded and made printable: a package may say anything of itself.
"""

from pathlib import Path

from pgo_agent.sandbox.bundle import validate
from pgo_agent.sandbox.errors import BadBundle
from pgo_agent.sandbox.isolation.box import ATTEMPTS, killed
from pgo_agent.sandbox.profile import memo
from pgo_agent.sandbox.profile.backend import Workbench

SECONDS = 120.0  # of the boxed process: importing Triton
MOST, LONGEST = 80, 118  # lines, and characters of one


@memo.kept("pgo_agent.sandbox.gluon.api.api", version=2)
def api(bench: Workbench) -> tuple[str, ...]:
    """Return Gluon's functions for the bench's device, a line each; nothing where its Triton has no Gluon that can be
    read.

    Raises Killed when somebody kills the process again and again, EnvironmentFault when the disk is full.
    """
    for _ in range(ATTEMPTS):
        with bench.contents.scratch() as name:
            ran = bench.builder.box.run(
                "pgo_agent.sandbox.compiler.gluon", Path(name), SECONDS, [str(bench.builder.device.arch)]
            )
            if not ran.killed:
                return _read(Path(name) / "out" / "result.json")
    raise killed("reading what Gluon offers")


def _read(answer: Path) -> tuple[str, ...]:
    try:
        answered = validate.answer(answer).get("lines")
    except BadBundle:
        return ()
    lines = answered if isinstance(answered, list) else []
    return tuple(_plain(line) for line in lines[:MOST] if isinstance(line, str) and line.strip())


def _plain(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)[:LONGEST]
