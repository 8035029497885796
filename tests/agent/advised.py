"""A run in the record whose roles are models on a real server of this machine, for tests of what they are asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgo_agent.agent.llm.models.budget import Budget, Guarded, Spent
from pgo_agent.agent.llm.models.openai_server import ServerModel
from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.agent.llm.models.types import ROLES, Asker, Model
from pgo_agent.agent.run.context import Context
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.judge.gpu_judge import GpuJudge

from tests.agent.loopback import Answer, Server, serving
from tests.conftest import TARGETS

NAME = "add-1"


@dataclass
class Advised:
    ctx: Context
    server: Server
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        return [r["body"]["messages"][0]["content"] for r in self.server.requests]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["type"] == kind]


@contextmanager
def advised(
    workspace: Path,
    *script: Answer,
    tokens: int | None = None,
    money: float | None = None,
    prices: dict[str, Price] | None = None,
) -> Iterator[Advised]:
    """All roles are `tiny`. A workspace that holds the run already goes on with it, as a killed process would."""
    store, found = Store(workspace), target.read(TARGETS / "add.py")
    if not store.runs():
        store.add_run(NAME, found.path, found.digest, found.source, "h200", RunSettings(), RunFacts())
    events: list[dict[str, Any]] = []
    with serving(script) as server:
        cast = cast_of(store, found.digest, events, server, Budget(tokens, money, lambda: spent(store)), prices or {})
        device, chosen = devices.find("h200"), box.choose()
        builder, judge = Builder(found, device, chosen, store.contents), GpuJudge(found, gpu=None)
        model = cast.pop("optimizer")
        told = lambda e: events.append(e.as_json())  # noqa: E731
        ctx = Context(store, store.run(NAME), found, device, builder, None, model, judge, told, cast)
        yield Advised(ctx, server, events)


def cast_of(
    store: Store, digest: str, events: list[dict[str, Any]], server: Server, purse: Budget, prices: dict[str, Price]
) -> dict[str, Model]:
    def tell(kind: str, **fields: Any) -> None:
        events.append({"type": kind, **fields})

    cast: dict[str, Model] = {}
    for role in ROLES:
        asker = Asker(NAME, "add", digest, tell, True, tuple(c.prompt for c in store.calls(NAME, role)), role)
        model = ServerModel("tiny", server.url, "k", timeout=5.0, attempts=2)
        cast[role] = Guarded(model, asker, purse, prices.get("tiny"))
    return cast


def spent(store: Store) -> Spent:
    found = store.spent(NAME)
    return Spent(int(found["tokens"]), found["money"])
