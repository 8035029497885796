"""Reads what a person types: a command that begins with a slash, or words for the optimizer.

A single word that is a command's name is that command; so is one followed by the id of a candidate. `commands.py`
carries commands out.
"""

import difflib
import re
import shlex
from dataclasses import dataclass

from pgo_agent.agent import text
from pgo_agent.agent.run.settings import BUDGETS
from pgo_agent.sandbox.errors import UsageFault

GUIDE = "guide"
COMMANDS = {  # name -> what it takes, what it does
    "help": ("[COMMAND]", "say what can be typed"),
    "status": ("", "print the run at a glance"),
    "show": ("[CANDIDATE]", "the run, or a candidate with its diff, builds and evidence"),
    "diff": ("CANDIDATE [OTHER]", "a candidate's diff against the kernel as shipped, or another"),
    "ttgir": ("CANDIDATE", "readable TTGIR of the kernel that does its work; shipped is one, too"),
    "evidence": ("CANDIDATE", "what every stage of the gate found"),
    "profile": ("[CASE]", "what holds the incumbent back, by the passes that were taken"),
    "veto": ("CANDIDATE [WHY]", "do not judge it: no GPU time is spent on it"),
    "edit": ("CANDIDATE", "open it in $EDITOR; what you save is judged like any candidate"),
    "submit": ("FILE [CANDIDATE]", "the same of a file, edited from that candidate"),
    "pin": ("CANDIDATE | off", "generations start from it"),
    "budget": ("NAME VALUE", f"another budget, from the next piece of work on: {', '.join(BUDGETS)}"),
    GUIDE: ("WORDS", "say something to the optimizer's model; words without a slash do, too"),
    "said": ("", "what you asked for in this run, and what came of it"),
    "pause": ("", "stop at once; nothing that was recorded is lost (Ctrl-C)"),
    "resume": ("", "go on"),
    "apply": ("[CANDIDATE]", "write the winner into your file, after its diff"),
    "quit": ("", "leave; the run can be resumed (Ctrl-C twice, Ctrl-D)"),
}
_ID = re.compile(r"[0-9a-f]{4,16}\Z|shipped\Z|tuned\Z")


@dataclass(frozen=True)
class TypedCommand:
    """A command and its arguments."""

    name: str
    words: tuple[str, ...] = ()
    rest: str = ""  # everything after the name, as it was typed


def read(line: str) -> TypedCommand | None:
    """Return the command of a line; None for an empty one. Raises UsageFault for an unknown or incomplete command."""
    line = line.strip()
    if not line:
        return None
    if not line.startswith("/"):
        name, _, rest = line.partition(" ")
        bare = name in COMMANDS and (not rest.strip() or _ID.match(rest.strip()))
        return _checked(name, rest.strip()) if bare else TypedCommand(GUIDE, (), line)
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        raise unknown(name)
    return _checked(name, rest.strip())


def usage(name: str) -> str:
    return f"/{name} {COMMANDS[name][0]}".strip()


def _checked(name: str, rest: str) -> TypedCommand:
    takes = COMMANDS[name][0].split("|")[0].split()
    try:
        words = tuple(shlex.split(rest)) if name in ("submit", "edit") else tuple(rest.split())
    except ValueError as e:
        raise UsageFault(f"that cannot be read: {e}", f"as in {usage(name)}") from None
    if len(words) < sum(not t.startswith("[") for t in takes):
        raise UsageFault(f"/{name} needs more", f"as in {usage(name)}")
    if len(words) > len(takes) and name not in ("veto", GUIDE):
        raise UsageFault(f"/{name} takes less", f"as in {usage(name)}")
    return TypedCommand(name, words, rest)


def unknown(name: str) -> UsageFault:
    """Return the fault for an unknown command, which names the nearest ones."""
    near = difflib.get_close_matches(name, COMMANDS, n=3, cutoff=0.5) or [c for c in COMMANDS if c[:1] == name[:1]]
    names = ", ".join(f"/{n}" for n in near)
    hint = f"did you mean {names}?  /help lists all" if names else "/help lists all"
    return UsageFault(f"there is no command /{text.line(name, 40)}", hint)
