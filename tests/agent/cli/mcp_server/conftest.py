"""A server over HTTP for all tests of a file, and its workspace."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.agent.cli.mcp_server import worker

from tests.agent.cli.mcp_server import serving


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = serving.folder(tmp_path_factory.mktemp("served"))
    yield folder
    serving.kill(folder, worker.MODULE)


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    with serving.http(root) as served:
        yield served
