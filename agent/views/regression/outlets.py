"""Where a comparison of two revisions goes: the terminal, Markdown for a pull request, JUnit XML for CI.

Paths are checked before anything is computed. A comparison that cannot be made is written, too: who reads the pull
request sees why, and what to do.
"""

from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.run.regression import Result
from pgo_agent.agent.views import summary
from pgo_agent.agent.views.profile.output import put
from pgo_agent.agent.views.regression import junit, markdown, terminal
from pgo_agent.sandbox.errors import Fault, UsageFault

STDOUT = Path("-")


@dataclass(frozen=True)
class Outlets:
    """The files that were asked for."""

    markdown: Path | None = None  # `-`: to stdout, in place of the text
    junit: Path | None = None

    def check(self, as_json: bool) -> None:
        """Raise UsageFault for a path that cannot be a file. `as_json`: stdout is for events."""
        for path in filter(None, (self.markdown, self.junit)):
            if path.is_dir():
                raise UsageFault(f"{path} is a folder", "name a file in it")
        if self.junit == STDOUT:
            raise UsageFault("--junit - would mix XML with text", "name a file; --markdown - works")
        if self.markdown == STDOUT and as_json:
            raise UsageFault("--markdown - and --json both print", "name a file for the Markdown")
        if self.markdown and self.junit and self.markdown.resolve() == self.junit.resolve():
            raise UsageFault(f"--markdown and --junit both name {self.junit}", "give each a file of its own")

    def write(self, result: Result) -> None:
        """Write the files. Raises EnvironmentFault where one cannot be written."""
        self._put(markdown.text(result), junit.text(result))

    def failed(self, file: str, base: str, fault: Fault) -> None:
        """Write that nothing was compared, and why."""
        self._put(markdown.failed(file, base, fault), junit.failed(file, base, fault))

    def show(self, result: Result) -> None:
        """Print it for a person."""
        if self.markdown != STDOUT:
            terminal.show(result, summary.output())

    def _put(self, comment: str, report: str) -> None:
        if self.markdown == STDOUT:
            print(comment, end="")
        elif self.markdown:
            put(self.markdown, comment)
        if self.junit:
            put(self.junit, report)
