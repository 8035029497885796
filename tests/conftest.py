"""Shared by all tests: the project's folders, a target to work on, and what to skip where."""

import gc
import os
import random
import signal
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

from tests import shared_builds

ROOT = Path(__file__).parent.parent
FA_FWD = ROOT / "kernels" / "fa_fwd.py"
TARGETS = Path(__file__).parent / "kernels"
settings.register_profile("any time", settings.default, deadline=None)  # other work may run beside these tests
settings.load_profile("any time")


def pytest_configure(config: pytest.Config) -> None:
    """A shell ignores SIGINT for what it starts in the background, and so would all processes that tests interrupt.

    Garbage waits until all tests are collected: what is imported and made for them stays, and collecting takes a sixth.
    This is for pytest alone, not for the processes of tests that import this module: some are runs, and measured.
    """
    gc.disable()
    if not hasattr(config, "workerinput"):
        shared_builds.share()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a GPU or bubblewrap say so where there is none."""
    from pgo_agent.sandbox.isolation import box
    from pgo_agent.sandbox.judge.gpu_judge import visible_gpu

    problem = box.problem_with("bubblewrap")
    for item in items:
        if item.get_closest_marker("gpu") and visible_gpu() is None:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU is visible here"))
        if item.get_closest_marker("bwrap") and problem:
            item.add_marker(pytest.mark.skip(reason=f"bubblewrap does not work here: {problem.splitlines()[0]}"))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # as often as usual takes a tenth of what tests compute here
    gc.enable()


@pytest.fixture(autouse=True)
def _same_numbers(request: pytest.FixtureRequest) -> None:
    """What a test draws at random is the same each time: a rare draw must not decide what lands."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own settings must not change what a test sees."""
    for name in [n for n in os.environ if n.startswith("PGO_AGENT_")]:
        monkeypatch.delenv(name)
