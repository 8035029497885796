"""`replay:FILE`: gives the replies of a recording again, to a run of the same target.

A recorded prompt gets its own reply; any other prompt gets the next unused reply, with a note. A resumed run goes on
where it was. Nothing is spent, so no tokens are reported; a reply keeps the name of the model that wrote it.
"""

from pathlib import Path

from pgo_agent.agent.llm.models import recording
from pgo_agent.agent.llm.models.types import FREE, OPTIMIZER, Asker, Exhausted, Form, Reply, sha256
from pgo_agent.sandbox.errors import UsageFault


class ReplayModel:
    """Reads all of `file` at once. Raises UsageFault if it is damaged, or of another target. Another text of the
    target is no fault: a reply that does not fit it is refused like any other, and a note says why that may be.
    """

    booked, paid = True, False

    def __init__(self, file: Path, asker: Asker) -> None:
        self.file, self.asker, self.name = file, asker, f"replay:{file}"
        recorded = recording.read(file)
        _of_target(self.file, recorded.head, asker)
        self._left = list(recorded.calls)
        for prompt in asker.asked:
            self._taken(prompt, asker.role)

    def complete(self, prompt: str, role: str = OPTIMIZER, form: Form = FREE) -> Reply:
        """Return the recorded reply at once. Raises Exhausted after the last one."""
        call = self._taken(prompt, role)
        if call is None:
            raise Exhausted(f"all replies of {self.file.name} were given")
        if call.prompt_sha256 != sha256(prompt):
            self.asker.report("note", text=f"{self.file.name} holds no such prompt: this is its next reply, to another")
        return Reply(call.reply, None, None, 0.0, call.model)

    def _taken(self, prompt: str, role: str) -> recording.Call | None:
        """Take the call that answers a prompt, so that it answers no other; None if none is left."""
        fit = [c for c in self._left if c.role == role]
        wanted = sha256(prompt)
        call = next((c for c in fit if c.prompt_sha256 == wanted), fit[0] if fit else None)
        if call is not None:
            self._left.remove(call)
        return call


def _of_target(file: Path, head: recording.Head, asker: Asker) -> None:
    if head.target != asker.target:
        raise UsageFault(
            f"{file} is a recording of another kernel: '{head.target}'",
            f"give the recording of a run of {asker.target}, or optimize {head.target}",
        )
    if head.digest != asker.digest:
        text = f"{file.name} was made of another text of {head.target}: its prompts differ, and replies may not fit"
        asker.report("note", text=text)
