"""`relay:DIR`: each prompt becomes a file in DIR; a person or any agent writes the reply into a file beside it.

`NNN-HASH-request.md` appears whole or not at all; `NNN-HASH-reply.md` is read once it is complete (`finished_file.py`).
NNN counts the requests in DIR. HASH is of run and prompt, so a resumed run finds its request and reply again, and runs
can share a DIR. A new DIR is private to its owner; anybody who can read an existing one can read the kernel. Only the
head of a reply is read here: its content is judged like any other.
"""

import hashlib
import os
import re
import time
from pathlib import Path

from pgo_agent.agent.llm.models import finished_file
from pgo_agent.agent.llm.models.types import FREE, OPTIMIZER, Asker, Form, Reply, Suspended, count, signed, whole
from pgo_agent.agent.llm.replies import LONGEST
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault

POLL = 0.2  # seconds between looks
ANSWERER = "relay"  # who answered, where the reply does not say
LINE = "\n---------------- the prompt: from here to the end of the file ----------------\n"
_NAME = re.compile(r"(\d{3,9})-([0-9a-f]{8})-(request|reply)\.md")
_HEAD = re.compile(r"\ufeff?---[ \t]*\r?\n((?:(?:model|tokens):[^\r\n]*\r?\n)+)---[ \t]*(?:\r?\n|\Z)")
_REQUEST = """\
# pgo-agent asks: {role} of run {run}

Write your answer to the prompt below into this file, in the same folder: {reply}
It is read when nobody has it open any more and it stands still for a second: save it in one go, or write it under
another name and rename it. Prose around what the prompt asks for is fine. If you know what answers, and what it took in
tokens of prompt and answer, say so in its first lines:

---
model: NAME
tokens: 1200 300
---
"""


class RelayModel:
    """Creates `folder` if it is missing. Raises UsageFault if it is no folder, EnvironmentFault if creation fails."""

    booked, paid = False, True  # a person thinks as long as it takes

    def __init__(self, folder: Path, asker: Asker) -> None:
        self.folder, self.asker, self.name = folder, asker, f"relay:{folder}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise UsageFault(f"{folder} is no folder", "name one, as --model relay:DIR") from None
        except OSError as e:
            raise _unwritable(folder, e) from None

    def complete(self, prompt: str, role: str = OPTIMIZER, form: Form = FREE) -> Reply:
        """Write the request and wait for the reply, if `asker.wait`.

        Raises Suspended, and EnvironmentFault for a folder that cannot be written or a reply that is no plain file.
        """
        stem = self._asked(whole(prompt), role)
        request, reply = (self.folder / f"{stem}-{what}.md" for what in ("request", "reply"))
        dropped = self._awaited(request, reply, role)
        head, text = _split(self._text(reply, dropped.data))
        tokens = _tokens(head.get("tokens", ""))
        return Reply(text, *tokens, _since(request, dropped), signed(head.get("model"), ANSWERER))

    def _text(self, reply: Path, data: bytes) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError as e:
            text = data.decode("utf-8", "replace")
            self._note(reply, f"is not UTF-8 (byte {e.start + 1}): what is not was replaced")
        return text[: LONGEST + 1]  # a character more than the parser takes: it says that the reply is too long

    def _awaited(self, request: Path, reply: Path, role: str) -> finished_file.Dropped:
        reported: set[str] = set()
        while True:
            try:
                return finished_file.read(reply, 4 * (LONGEST + 1))
            except finished_file.NotYet as e:
                if not self.asker.wait:
                    raise Suspended(request, reply, str(e)) from None
                if not reported:
                    reported.add("is not there")
                    self.asker.report("model.waiting", role=role, request=str(request), reply=str(reply))
                if str(e) not in reported:
                    reported.add(str(e))
                    self._note(reply, str(e))
            time.sleep(POLL)

    def _note(self, path: Path, what: str) -> None:
        self.asker.report("note", text=f"{path.name} {what}")

    # requests ---------------------------------------------------------------------------------------------------------

    def _asked(self, prompt: str, role: str) -> str:
        """The stem of the names of request and reply; writes the request if neither is there."""
        mark = hashlib.sha256(f"{self.asker.run}\n{prompt}".encode()).hexdigest()[:8]
        try:
            names = [match for path in sorted(self.folder.iterdir()) if (match := _NAME.fullmatch(path.name))]
            earlier = next((match for match in names if match[2] == mark), None)
            if earlier is not None:
                return f"{earlier[1]}-{mark}"
            stem = f"{max((int(match[1]) for match in names), default=0) + 1:03}-{mark}"
            self._write(stem, role, prompt)
            return stem
        except OSError as e:
            raise _unwritable(self.folder, e) from None

    def _write(self, stem: str, role: str, prompt: str) -> None:
        head = _REQUEST.format(role=role, run=self.asker.run, reply=f"{stem}-reply.md")
        part = self.folder / f".{stem}.part"
        part.unlink(missing_ok=True)
        with part.open("x", encoding="utf-8", newline="") as file:
            file.write(head + LINE + prompt)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.folder / f"{stem}-request.md")


def _unwritable(folder: Path, e: OSError) -> EnvironmentFault:
    hint = "make it writable or free some space; `pgo-agent resume` goes on from here"
    return EnvironmentFault(f"cannot write requests into {folder}: {e.strerror}", hint)


# replies --------------------------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[dict[str, str], str]:
    """The fields in the head of a reply, and the rest of its text; no fields without a valid head."""
    head = _HEAD.match(text)
    if head is None:
        return {}, text
    pairs = (line.partition(":") for line in head[1].splitlines())
    return {key: value.strip() for key, _, value in pairs}, text[head.end() :]


def _tokens(text: str) -> tuple[int | None, int | None]:
    """The tokens of prompt and answer; None if they are not given as numbers."""
    match = re.fullmatch(r"(\d{1,12})[ \t]+(\d{1,12})", text, re.ASCII)
    return (count(int(match[1])), count(int(match[2]))) if match else (None, None)


def _since(request: Path, dropped: finished_file.Dropped) -> float:
    """Seconds between request and reply, by the times of their files."""
    try:
        return max(dropped.written - request.lstat().st_mtime, 0.0)
    except OSError:
        return 0.0
