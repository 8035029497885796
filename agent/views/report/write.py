"""`pgo-agent report RUN`: writes a run's report as a page and as Markdown, and prints where.

Paths are checked before anything is read; a file is written whole or not at all.
"""

from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.views.profile.output import put
from pgo_agent.sandbox.errors import UsageFault

STDOUT = Path("-")


@dataclass(frozen=True)
class ReportPaths:
    """Where a report goes; both None: into the working directory, named by the run."""

    html: Path | None = None
    markdown: Path | None = None  # `-`: to stdout

    def check(self) -> None:
        """Raise UsageFault for a path that cannot be a file."""
        for path in filter(None, (self.html, self.markdown)):
            if path.is_dir():
                raise UsageFault(f"{path} is a folder", "name a file in it")
        if self.html == STDOUT:
            raise UsageFault("--html - would write a page to the terminal", "name a file; --markdown - works")
        if self.html and self.markdown and self.html.resolve() == self.markdown.resolve():
            raise UsageFault(f"--html and --markdown both name {self.html}", "give each a file of its own")

    def of(self, run: str) -> "ReportPaths":
        """Return these paths, or the default names if none was given."""
        if self.html or self.markdown:
            return self
        return ReportPaths(Path(f"{run}-report.html"), Path(f"{run}-report.md"))


def write(store: Store, name: str, requested: ReportPaths) -> None:
    """Write a report. Raises UsageFault for an unknown run or a bad path, EnvironmentFault for the disk."""
    requested.check()
    run = store.run(name)
    from pgo_agent.agent.views.report import collect, markdown, page

    report, paths = collect.report(store, run.id), requested.of(run.id)
    if paths.html:
        put(paths.html, page.render(report))
    if paths.markdown == STDOUT:
        print(markdown.render(report), end="")
    elif paths.markdown:
        put(paths.markdown, markdown.render(report))
