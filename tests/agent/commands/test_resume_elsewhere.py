"""A run that waits for a model goes on with another judge: of the same GPU model, never with none.

The kernel is really built; the times are of a judge that is made up (`tests/agent/made_up.py`).
"""

import shutil
from pathlib import Path

import pytest

from tests.agent import made_up
from tests.agent.command_line import pgo
from tests.conftest import TARGETS
from tests.shared_builds import lend

REPLY = """A larger block.
<<<<<<< SEARCH
    _momentum[(triton.cdiv(p.numel(), 1024),)](p, g, m, p.numel(), lr, BLOCK=1024)
=======
    _momentum[(triton.cdiv(p.numel(), 2048),)](p, g, m, p.numel(), lr, BLOCK=2048)
>>>>>>> REPLACE
"""


@pytest.mark.long
def test_a_run_goes_on_with_the_gpu_of_another_machine_and_not_without_one(tmp_path: Path) -> None:
    here, there = (tmp_path / name for name in ("here", "there"))
    for folder in (here, there):
        folder.mkdir()
        shutil.copy(TARGETS / "momentum.py", folder)
    lend(here / ".pgo-agent")
    asked = ("momentum.py", "--model", "relay:answers", "--no-wait", "--candidates", "1")
    with made_up.answering(here, "momentum.py"):
        begun = pgo("optimize", *asked, "--judge", "spool:box", cwd=here)
        while begun.code == 5 and not (questions := list(here.glob("answers/*-request.md"))):
            begun = pgo("resume", "last", "--no-wait", cwd=here)
    assert begun.code == 5, begun.err
    refused = pgo("resume", "last", "--judge", "cpu", cwd=here)
    assert refused.code == 2 and "was measured on an NVIDIA H200, and no GPU is used here" in refused.err
    draft = questions[0].with_name("draft")
    draft.write_text(REPLY)
    draft.rename(questions[0].with_name(questions[0].name.replace("request", "reply")))
    with made_up.answering(there, "momentum.py"):
        done = pgo("resume", "last", "--judge", f"spool:{there / 'box'}", "--json", cwd=here)
    assert done.code == 0, done.err
    assert [e["verdict"] for e in done.events if e["type"] == "candidate.verdict"] == ["accepted"]
