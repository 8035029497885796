"""Real runs in this process whose model is a real server on this machine, step by step: no loop drives them.

All start from the baseline of one run of the `add` target, so that a test pays for what it asks alone. The moves have
as many places as the model, and what they propose is taken out again: it is built and judged by nobody.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pgo_agent.agent.llm.models.openai_server import ServerModel
from pgo_agent.agent.proposal import bandit
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.record.candidate import Candidate
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.search import steps
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

from tests.agent.command_line import pgo, write
from tests.agent.loopback import Server, completion, serving

_numbers = itertools.count(1)


def established(folder: Path) -> Path:
    """A folder with the target and a finished run that has its baseline and nothing else."""
    write(folder)
    done = pgo("optimize", "add.py", "--case", "1m", "--minutes", "0", cwd=folder)
    assert done.code == 4, done.err
    return folder


@dataclass
class Asked:
    """A run, and the server that answers it."""

    ctx: Context
    server: Server
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        return [r["body"]["messages"][-1]["content"] for r in self.server.requests]

    def propose(self) -> list[Candidate]:
        """The model's part of the next generation, proposed and not yet built."""
        generation = max(self.ctx.store.generations(self.ctx.run.id), default=0) + 1
        steps.propose(self.ctx, generation)
        mine = self.ctx.run.id, bandit.MOVES
        self.ctx.store.db.execute("DELETE FROM candidates WHERE run = ? AND proposer = ?", mine)
        return self.ctx.store.candidates(self.ctx.run.id, generation)

    def generation(self) -> list[Candidate]:
        """The next generation, judged."""
        (generation,) = {c.generation for c in self.propose()}
        steps.build(self.ctx, generation)
        steps.judge(self.ctx, generation)
        return self.ctx.store.candidates(self.ctx.run.id, generation)


@contextmanager
def asking(folder: Path, replies: Sequence[str], width: int = 1) -> Iterator[Asked]:
    """A new run on the baseline of `folder`, answered by these replies; the last is repeated. `width`: the model's."""
    with serving([completion(text) for text in replies]) as server:
        store = Store(folder / ".pgo-agent")
        old, found, device = store.run("last"), target.read(folder / "add.py"), devices.find("h200")
        settings = replace(old.settings, width=2 * width, candidates=100, minutes=1000.0)
        run = f"add-{next(_numbers):06}"
        store.add_run(run, folder / "add.py", found.digest, found.source, device.key, settings, old.facts)
        assert old.baseline is not None
        store.set_baseline(run, old.baseline)
        builder = Builder(found, device, box.choose("auto"), store.contents)
        model, events = ServerModel("tiny", server.url, "k"), list[dict[str, Any]]()
        cpu = GpuJudge(found, gpu=None)
        told = lambda e: events.append(e.as_json())  # noqa: E731
        ctx = Context(store, store.run(run), found, device, builder, None, model, cpu, told)
        try:
            yield Asked(ctx, server, events)
        finally:
            ctx.close()
            store.close()
