"""What a target takes of other files: each name once, and an import where two files mean different things by it."""

from pathlib import Path

import pytest
from pgo_agent.agent.commands.init import inlined
from pgo_agent.agent.commands.init.inlined import Modules

LAUNCHER = """import logging

from kernels import scaled

{own}


def launch(x):
    return scaled(x, logger, LIMIT)
"""
KERNELS = """import logging

{own}


def scaled(x, *_):
    logger.debug("%s", LIMIT)
    return x
"""
LOGGER = "logger = logging.getLogger(__name__)\n"


@pytest.mark.parametrize(("limit", "taken"), [("LIMIT = 1", True), ("LIMIT = 2", False)])
def test_a_statement_that_two_files_have_stands_once_and_of_different_ones_the_import_stays(
    tmp_path: Path, limit: str, taken: bool
) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.format(own=LOGGER + limit))
    path, text = tmp_path / "launcher.py", LAUNCHER.format(own=LOGGER + "LIMIT = 1")
    path.write_text(text)
    modules = Modules(frozenset({tmp_path / "kernels.py"}), frozenset(), tmp_path)
    made = "".join(b.text for b in inlined.needed(path, text, {"launch"}, modules))
    assert made.count("logger = ") == 1 and made.count("LIMIT = ") == 1
    assert ("def scaled" in made, "from kernels import scaled" in made) == (taken, not taken)
