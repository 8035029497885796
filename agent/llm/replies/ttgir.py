"""TTGIR in a reply: a whole text, or an edit script against the kernel text that was shown.

Scripts are applied with all their checks (`sandbox/ttgir/edits`) and parsed by Triton; whole texts are taken as they
are, and Triton checks them when they are built.
"""

import json
import re
from dataclasses import dataclass

from pgo_agent.agent.llm.replies.errors import BadReply, Nothing, short
from pgo_agent.agent.moves.launch_sites import Config
from pgo_agent.sandbox.build import ttgir_override
from pgo_agent.sandbox.errors import Killed
from pgo_agent.sandbox.ttgir.edits import apply, script, verify
from pgo_agent.sandbox.ttgir.edits.errors import BadEdit
from pgo_agent.sandbox.ttgir.edits.verify import Ask
from pgo_agent.sandbox.ttgir.pseudocode.view import Readable
from pgo_agent.sandbox.ttgir.tree import Module

LARGEST, LARGEST_SCRIPT, MOST_EDITS = 500_000, 40_000, 200  # characters of a text, of a script; edits in it
_FUNCTION = re.compile(r"^[ \t]*tt\.func\b", re.M)
_BEGIN = re.compile(r"^(?:// replaces: |#\w+ = #|module\b)", re.M)
_HEAD = re.compile(r"^// (?:replaces|at):.*\n?", re.M)
_EDIT = re.compile(
    r"\s*(?:[-*+]\s|\d+[.)]\s)?\s*(?:move|set|delete|replace|insert (?:before|after|at))\s+[A-L]\d", re.I
)
_NOT_SHOWN = "no kernel's TTGIR was shown, so nothing says what this is for: answer in another form"


@dataclass(frozen=True)
class Shown:
    """One kernel of one plan. Labels do not depend on names: a view with the source's names has the same ones."""

    case: str  # set and name, as `CASES/d128-4k`
    name: str  # of the kernel
    build: str  # key of its build: profiles name it
    replaces: str  # key of the build that a new text replaces; `build`, unless the incumbent is TTGIR
    config: Config
    text: str
    module: Module
    view: Readable

    def candidate(self, text: str) -> str:
        """Return a new text for the kernel in the format of `ttgir_files.py`: its head and the text."""
        return f"// replaces: {self.replaces}\n// at: {json.dumps(self.config)}\n{text}"


def is_text(code: str) -> bool:
    """Whether a text is, or holds, a whole kernel's TTGIR."""
    return "tt.func" in code and _FUNCTION.search(code) is not None


def is_script(code: str) -> bool:
    """Whether any line of an unlabelled text begins like an edit of a script."""
    return any(_EDIT.match(line[:200]) for line in code.split("\n"))


def from_text(code: str, shown: Shown | None) -> str:
    """Return the candidate of a whole text. Raises BadReply."""
    if len(code) > LARGEST:
        raise BadReply(f"a TTGIR text of {len(code)} characters is too long")
    if "\0" in code or not _encodes(code):
        raise BadReply("the TTGIR holds a character that no text has")
    function = _FUNCTION.search(code)
    if function is None:
        raise BadReply("the TTGIR holds no tt.func: give the whole module, or an edit script in an ```edits block")
    key = ttgir_override.named(code)
    if shown is None and not key:
        raise BadReply(_NOT_SHOWN)
    begin = _BEGIN.search(code, 0, function.start())  # behind prose
    code = f"{code[begin.start() :] if begin else code}".rstrip() + "\n"
    if shown is None or (key and not shown.replaces.startswith(key)):
        return code
    bare = _HEAD.sub("", code)
    if bare.strip() == shown.text.strip():
        raise Nothing("the reply changes nothing")
    return shown.candidate(bare)


def from_script(code: str, shown: Shown | None, ask: Ask | None) -> str:
    """Return the candidate that a script makes of the text shown. Raises BadReply that names the edit at fault."""
    if shown is None:
        raise BadReply(_NOT_SHOWN)
    if len(code) > LARGEST_SCRIPT or not _encodes(code):
        raise BadReply("the edit script is too long, or holds a character that no text has")
    try:
        text = _apply(code, shown, ask)
    except (script.BadScript, BadEdit) as e:
        raise BadReply(short(str(e), 500)) from None
    except Killed as e:
        raise BadReply(f"the edited text could not be read: {e.message}") from None
    except RecursionError:
        raise BadReply("the edit script is nested too deeply") from None
    return shown.candidate(text)


def _apply(code: str, shown: Shown, ask: Ask | None) -> str:
    edits = script.parse(code)
    if not edits:
        raise Nothing("the edit script holds no edit")
    if len(edits) > MOST_EDITS:
        raise BadReply(f"more than {MOST_EDITS} edits")
    if ask is None:
        return apply.apply(shown.module, shown.view, edits)
    return verify.verified(shown.module, shown.view, edits, ask)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
