"""A builder of a target that stands in a text."""

from pathlib import Path

from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box

from tests.shared_builds import lend


def builder_of(source: str, folder: Path) -> Builder:
    path = folder / "it.py"
    path.write_text(source)
    return Builder(target.read(path), devices.find("h200"), box.choose(), ContentStore(lend(folder / "shelf")))
