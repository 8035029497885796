"""Which model has which role in a run: read from `--model`, opened within the run's budget.

A role without a model is embedded. If the command line names no model for a role, a variable of the environment may:
PGO_AGENT_MODEL for the optimizer, PGO_AGENT_PROFILER_MODEL, PGO_AGENT_SUMMARIZER_MODEL.
"""

import os
from collections.abc import Mapping, Sequence

from pgo_agent.agent.llm.models import EMBEDDED, named, prices
from pgo_agent.agent.llm.models.budget import Budget, Guarded
from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.agent.llm.models.types import OPTIMIZER, PROFILER, ROLES, SUMMARIZER, Asker, Model
from pgo_agent.sandbox.errors import UsageFault

Cast = dict[str, Model]  # by role; one that is not in it is embedded
VARIABLES = {
    OPTIMIZER: "PGO_AGENT_MODEL",
    PROFILER: "PGO_AGENT_PROFILER_MODEL",
    SUMMARIZER: "PGO_AGENT_SUMMARIZER_MODEL",
}


def roles(options: Sequence[str]) -> dict[str, str]:
    """Return role -> model for `--model NAME` and `--model ROLE=NAME`; other text before `=` is part of NAME.

    Raises UsageFault for a role that is named twice, and for one without a name.
    """
    by_role: dict[str, str] = {}
    for text in options:
        head, equals, rest = text.partition("=")
        role, name = (head.strip(), rest) if equals and head.strip() in ROLES else (OPTIMIZER, text)
        if role in by_role:
            raise UsageFault(f"--model names two models for the {role}", "name one")
        if equals and not name.strip():
            raise UsageFault(f"--model {text} names no model", f"give one, as --model {role}={EMBEDDED}")
        by_role[role] = name.strip()
    defaults = {role: os.environ.get(variable, "").strip() for role, variable in VARIABLES.items()}
    return {role: by_role.get(role, defaults[role]) or EMBEDDED for role in ROLES}


def prices_of(wanted: Mapping[str, str], table: Mapping[str, Price], money: float | None) -> dict[str, Price]:
    """Return the prices of the wanted models that are in `table`. Raises UsageFault if `money` is limited and one
    lacks."""
    paid = {name for name in wanted.values() if name != EMBEDDED and not name.startswith("replay:")}
    if money is not None:
        return {prices.entry(name): prices.wanted(table, name) for name in paid}
    return {prices.entry(name): table[prices.entry(name)] for name in paid if prices.entry(name) in table}


def opened(wanted: Mapping[str, str], askers: Mapping[str, Asker], purse: Budget, table: Mapping[str, Price]) -> Cast:
    """Return the models by role. Raises UsageFault for an invalid name, before anything is asked."""
    models = {role: named(name, askers[role]) for role, name in wanted.items()}
    return {role: _within(m, askers[role], purse, table) for role, m in models.items() if m is not None}


def _within(model: Model, asker: Asker, purse: Budget, table: Mapping[str, Price]) -> Model:
    return Guarded(model, asker, purse, table.get(prices.entry(model.name))) if model.paid else model
