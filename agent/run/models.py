"""Opens the models of a run, by role, within its budgets and with their earlier prompts.

Relies on `llm/models/` for models, prices and budgets. It asks nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgo_agent.agent.llm.models import EMBEDDED, model_by_role, prices
from pgo_agent.agent.llm.models.budget import Budget, Spent
from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.agent.llm.models.types import Asker
from pgo_agent.agent.run.events import Emit, made
from pgo_agent.agent.run.facts import RunFacts
from pgo_agent.agent.run.record.store import Store
from pgo_agent.agent.run.settings import RunSettings


@dataclass(frozen=True)
class Opening:
    """The run whose models are opened."""

    run: str  # its id, whether it is in the store already or not
    target: str  # name of the kernel file
    digest: str  # of its text
    store: Store
    emit: Emit

    def report(self, kind: str, **fields: object) -> None:
        self.emit(made(kind, self.run, fields))

    def spent(self) -> Spent:
        sums = self.store.spent(self.run)
        return Spent(int(sums["tokens"]), sums["money"])

    def asker(self, role: str, wait: bool) -> Asker:
        prompts = tuple(call.prompt for call in self.store.calls(self.run, role))
        return Asker(self.run, self.target, self.digest, self.report, wait, prompts, role)


def open_models(opening: Opening, settings: RunSettings, facts: RunFacts) -> tuple[model_by_role.Cast, RunFacts]:
    """Return the models that `facts` names, by role, and the facts with their full names and prices.

    Raises UsageFault for a name or a key that cannot be one, and for a budget of money without a price.
    """
    named = facts.models
    priced = model_by_role.prices_of(named, _known_prices(named, facts), settings.money)
    askers = {role: opening.asker(role, settings.wait) for role in named}
    models = model_by_role.opened(named, askers, Budget(settings.tokens, settings.money, opening.spent), priced)
    full = {role: models[role].name if role in models else EMBEDDED for role in named}
    return models, replace(facts, models=full, prices={name: (p.prompt, p.completion) for name, p in priced.items()})


def _known_prices(named: Mapping[str, str], facts: RunFacts) -> dict[str, Price]:
    """The prices of the table, overridden by those that the run began with."""
    asked = any(name != EMBEDDED for name in named.values())
    return (prices.read() if asked else {}) | {name: Price(*pair) for name, pair in facts.prices.items()}
