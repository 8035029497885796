"""Keeps a model within the budget of its run, and turns the loss of its server into the end of its role: `Exhausted`.

Before a call the prompt is estimated at one token for BYTES bytes, and the reply is limited to the tokens and money
left, if the model takes a limit (a folder does not). Reported token counts of a reply are believed, missing ones are
estimated in the same way; those of failed attempts are unknown. A server that is gone ends the run at the first call of
its role, as a key, an address or a name may be wrong; later it ends the role alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.agent.llm.models.types import FREE, OPTIMIZER, Asker, Exhausted, Form, Gone, Model, Reply, whole

BYTES = 3  # of a token: text in English or Python has more, so estimates are high
LEAST = 256  # tokens of a reply that is worth asking for


@dataclass(frozen=True)
class Spent:
    """What all models of a run spent, over all resumptions."""

    tokens: int = 0
    money: float = 0.0


@dataclass
class Budget:
    """What the models of a run may spend together; a person may change it. None: no limit."""

    tokens: int | None = None
    money: float | None = None
    spent: Callable[[], Spent] = Spent  # by the record


class Guarded:
    """A model that spends no more than `purse` allows. `price`: None if unknown."""

    def __init__(self, model: Model, asker: Asker, purse: Budget, price: Price | None) -> None:
        self.model, self.asker, self.purse, self.price = model, asker, purse, price
        self.name, self.booked, self.paid = model.name, model.booked, model.paid
        self._answered = bool(asker.asked)

    def complete(self, prompt: str, role: str = OPTIMIZER, form: Form = FREE) -> Reply:
        """Ask the model. Raises Exhausted if the budget is too small or the server is gone; else what the model
        raises."""
        most = self._room(prompt)
        try:
            reply = self.model.complete(prompt, role, replace(form, most=most))
        except Gone as e:
            if not self._answered:
                raise
            raise Exhausted(e.message) from None
        self._answered = True
        return self._booked(prompt, reply)

    def _room(self, prompt: str) -> int | None:
        """The limit of the reply in tokens; None: no limit. Raises Exhausted if fewer than LEAST are left."""
        asked, spent, limits = estimate(prompt), self.purse.spent(), list[tuple[float, str]]()
        if self.purse.tokens is not None:
            left = self.purse.tokens - spent.tokens
            limits.append((left - asked, f"of {self.purse.tokens} tokens {max(left, 0)} are left"))
        if self.purse.money is not None and self.price is not None:
            rest = self.purse.money - spent.money
            after = rest - self.price.of(asked, 0)
            limits.append((_bought(after, self.price), f"of {self.purse.money:g} in money {max(rest, 0):.4g} are left"))
        for tokens, remaining in limits:
            if tokens < LEAST:
                raise Exhausted(
                    f"the budget is spent: {remaining}, and the next prompt alone takes about {asked} tokens"
                )
        finite = [int(tokens) for tokens, _ in limits if math.isfinite(tokens)]
        return min(finite, default=None)

    def _booked(self, prompt: str, reply: Reply) -> Reply:
        reported = (reply.prompt_tokens, reply.completion_tokens)
        taken, written = (
            e if n is None else n for n, e in zip(reported, map(estimate, (prompt, reply.text)), strict=True)
        )
        cost = self.price.of(taken, written) if self.price else None
        spent = self.purse.spent()
        tokens, money = spent.tokens + taken + written, spent.money + (cost or 0.0)
        of = {"of_tokens": self.purse.tokens, "of_money": self.purse.money}
        self.asker.report("model.spent", role=self.asker.role, tokens=tokens, money=money if self.price else None, **of)
        return replace(reply, counted=taken + written, cost=cost)


def estimate(text: str) -> int:
    """Return a high estimate of the number of tokens of a text."""
    return math.ceil(len(whole(text).encode()) / BYTES)


def _bought(money: float, price: Price) -> float:
    """The tokens of a reply that an amount of money buys."""
    if money < 0:
        return 0.0
    return money / price.of(0, 1) if price.completion else math.inf
