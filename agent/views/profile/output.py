"""Outputs of `profile`: drawn in the terminal or as JSON on stdout, and the files that were asked for.

Files are written before anything is printed, and whole or not at all. Their paths are printed to stderr.
"""

import json
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.agent.profile.case_profile import Profile
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.views import summary
from pgo_agent.agent.views.profile import terminal
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.errors import EnvironmentFault, UsageFault


@dataclass(frozen=True)
class Outlets:
    """Where a profile goes."""

    as_json: bool = False  # to stdout, in place of the drawing
    code: bool = False  # with its pseudo-code
    html: Path | None = None
    perfetto: Path | None = None

    def check(self) -> None:
        """Check the paths before anything is computed. Raises UsageFault for a path that cannot be a file."""
        for path in (self.html, self.perfetto):
            if path and path.is_dir():
                raise UsageFault(f"{path} is a folder", "name a file in it")
        if self.html and self.perfetto and self.html.resolve() == self.perfetto.resolve():
            raise UsageFault(f"--html and --perfetto both name {self.html}", "give each a file of its own")


def write(
    profile: Profile,
    source: str,
    outlets: Outlets,
    contents: ContentStore,
    summaries: Mapping[str, Summary] | None = None,
) -> None:
    """Write and print the profile. `source`: the kernel file, whose lines it names. `contents`: holds records of
    timelines. `summaries`: by the profile's case names.

    Raises UsageFault for a trace without a timeline, EnvironmentFault when a file cannot be written.
    """
    by_case = summaries or {}
    if outlets.perfetto:
        from pgo_agent.agent.views.profile import perfetto  # needs numpy

        put(outlets.perfetto, perfetto.text(profile, contents))
    if outlets.html:
        from pgo_agent.agent.views.profile import page  # needs Jinja2

        put(outlets.html, page.render(profile, source, by_case))
    if outlets.as_json:
        print(json.dumps(profile.as_json(), sort_keys=True))
    else:
        terminal.show(profile, source, summary.output(), outlets.code, by_case)


def put(path: Path, text: str) -> None:
    """Write a file and the folders above it. Raises EnvironmentFault, and then leaves an existing file as it was."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as e:
        with suppress(OSError):
            part.unlink()
        raise EnvironmentFault(f"cannot write {path}: {e.strerror}", "give another file, or free some space") from None
    print(f"{path} written", file=sys.stderr)
