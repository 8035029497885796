"""What is wrong with an edit that can be read but not made."""

from pgo_agent.sandbox.ttgir.edits.script import Edit


class BadEdit(ValueError):
    """An edit that cannot be made; the message names it and says why. `edit` is None where no one is at fault."""

    def __init__(self, edit: Edit | None, problem: str) -> None:
        super().__init__(f"{edit or 'the edits together'}: {problem}")
        self.edit, self.problem = edit, problem
