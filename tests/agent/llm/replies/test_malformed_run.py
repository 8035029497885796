"""Every malformed reply in turn to a run whose builds are left out, and some to a whole one: no run is lost."""

import json
from pathlib import Path

import pytest
from pgo_agent.agent.llm.models.types import whole
from pgo_agent.agent.proposal.llm import propose_fresh
from pgo_agent.sandbox.gate.reason import plain
from pgo_agent.sandbox.gate.verdict import Judgement, Verdict

from tests.agent.asked import Asked, asking, established
from tests.agent.command_line import pgo, write
from tests.agent.loopback import completion, serving
from tests.agent.malformed import MALFORMED
from tests.agent.proposed import proposed

pytestmark = pytest.mark.long  # a whole run

REPLIES = [whole(reply) for reply, _ in MALFORMED.values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return established(tmp_path_factory.mktemp("malformed"))


def generation(run: Asked, n: int) -> None:
    """What the model proposes becomes a generation, or else something of nobody's; all of it is only slow."""
    candidates = list(propose_fresh(run.ctx)) or [proposed("s", f"other{n}")]
    run.ctx.store.add_generation(run.ctx.run.id, n, "shipped", candidates)
    for c in run.ctx.store.candidates(run.ctx.run.id, n):
        run.ctx.store.set_verdict(run.ctx.run.id, c.id, Judgement(Verdict.SLOWER, "time", plain("0.9x")), None, 1.0)


def test_a_run_goes_on_through_replies_of_every_kind_and_records_them_whole(folder: Path) -> None:
    with asking(folder, REPLIES) as run:
        for n in range(1, len(REPLIES) + 1):
            if len(run.prompts) < len(REPLIES):
                generation(run, n)
        recorded = [call.reply for call in run.ctx.store.calls(run.ctx.run.id)]
        assert recorded[: len(REPLIES)] == REPLIES
        assert any(c.kind == "ttgir" for c in run.ctx.store.candidates(run.ctx.run.id))


@pytest.mark.slow
def test_a_whole_run_ends_well_whatever_its_model_writes(tmp_path: Path) -> None:
    write(tmp_path)
    mended = REPLIES[list(MALFORMED).index("an edit without an end") :]  # messages about these take the next ones
    with serving([completion(reply) for reply in mended]) as server:
        options = ("--case", "1m", "--candidates", "2", "--width", "1", "--model", "tiny")
        done = pgo("optimize", "add.py", *options, cwd=tmp_path, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
        assert done.code == 0, done.err
        assert len(server.requests) > 2
    shown = json.loads(pgo("show", "--json", cwd=tmp_path).out)
    assert all(v["verdict"] for v in shown["verdicts"])
