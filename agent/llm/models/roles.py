"""Which model has which role in a run: read from `--model`, opened within the run's budget.

A role that nobody is named for is embedded. Where the command line names no model for a role, a variable of the
environment may: PGO_AGENT_MODEL for the optimizer, PGO_AGENT_PROFILER_MODEL, PGO_AGENT_SUMMARIZER_MODEL.
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


def roles(given: Sequence[str]) -> dict[str, str]:
    """Role -> model, of `--model NAME` and `--model ROLE=NAME`. Only a role's name before the first `=` is one.

    Raises UsageFault for a role that is named twice, and for one without a name.
    """
    found: dict[str, str] = {}
    for text in given:
        head, equals, rest = text.partition("=")
        role, name = (head.strip(), rest) if equals and head.strip() in ROLES else (OPTIMIZER, text)
        if role in found:
            raise UsageFault(f"--model names two models for the {role}", "name one")
        if equals and not name.strip():
            raise UsageFault(f"--model {text} names no model", f"give one, as --model {role}={EMBEDDED}")
        found[role] = name.strip()
    told = {role: os.environ.get(variable, "").strip() for role, variable in VARIABLES.items()}
    return {role: found.get(role, told[role]) or EMBEDDED for role in ROLES}


def prices_of(wanted: Mapping[str, str], known: Mapping[str, Price], money: float | None) -> dict[str, Price]:
    """Those of the wanted models that a table knows. Raises UsageFault when `money` is limited and one is missing."""
    paid = {name for name in wanted.values() if name != EMBEDDED and not name.startswith("replay:")}
    if money is not None:
        return {prices.entry(name): prices.wanted(known, name) for name in paid}
    return {prices.entry(name): known[prices.entry(name)] for name in paid if prices.entry(name) in known}


def opened(wanted: Mapping[str, str], askers: Mapping[str, Asker], purse: Budget, known: Mapping[str, Price]) -> Cast:
    """The models, by role. Raises UsageFault for a name that cannot be one, before anything is asked."""
    found = {role: named(name, askers[role]) for role, name in wanted.items()}
    return {role: _within(m, askers[role], purse, known) for role, m in found.items() if m is not None}


def _within(model: Model, asker: Asker, purse: Budget, known: Mapping[str, Price]) -> Model:
    return Guarded(model, asker, purse, known.get(prices.entry(model.name))) if model.paid else model
