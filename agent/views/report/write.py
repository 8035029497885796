"""`pgo-agent report RUN`: writes a run's report as a page and as Markdown, and says where.

Places are looked at before anything is read; a file appears whole or not at all.
"""

from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.profile.output import put
from pgo_agent.sandbox.errors import UsageFault

STDOUT = Path("-")


@dataclass(frozen=True)
class Places:
    """Where a report goes; both None: into the working directory, named by the run."""

    html: Path | None = None
    markdown: Path | None = None  # `-`: to stdout

    def check(self) -> None:
        """Raises UsageFault for what cannot be a file."""
        for path in filter(None, (self.html, self.markdown)):
            if path.is_dir():
                raise UsageFault(f"{path} is a folder", "name a file in it")
        if self.html == STDOUT:
            raise UsageFault("--html - would write a page to the terminal", "name a file; --markdown - works")
        if self.html and self.markdown and self.html.resolve() == self.markdown.resolve():
            raise UsageFault(f"--html and --markdown both name {self.html}", "give each a file of its own")

    def of(self, run: str) -> "Places":
        """With the default names where none was given."""
        if self.html or self.markdown:
            return self
        return Places(Path(f"{run}-report.html"), Path(f"{run}-report.md"))


def write(store: Store, name: str, places: Places) -> None:
    """Raises UsageFault for a run or a place that is none, EnvironmentFault where a file cannot be written."""
    places.check()
    run = store.run(name)
    from pgo_agent.agent.views.report import collect, markdown, page

    found, where = collect.report(store, run.id), places.of(run.id)
    if where.html:
        put(where.html, page.render(found))
    if where.markdown == STDOUT:
        print(markdown.render(found), end="")
    elif where.markdown:
        put(where.markdown, markdown.render(found))
