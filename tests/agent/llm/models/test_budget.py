"""A model within its run's budget: nothing is asked that may exceed it; a server that is gone ends its role alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.agent.llm.models.budget import BYTES, LEAST, Budget, Guarded, Spent, estimate
from pgo_agent.agent.llm.models.openai_server import ServerModel
from pgo_agent.agent.llm.models.prices import Price
from pgo_agent.agent.llm.models.types import Asker, Exhausted, Gone

from tests.agent.loopback import Answer, Server, completion, failure, serving, unused_url

PRICE = Price(1.0, 4.0)
PROMPT = "p" * 300  # 100 tokens, by the rule


class Guard:
    """A guarded model of a server, and what it told."""

    def __init__(
        self, server: Server, purse: Budget | None = None, price: Price | None = None, asked: Sequence[str] = ()
    ) -> None:
        self.events = list[dict[str, Any]]()
        asker = Asker(
            "add-1",
            "add",
            "digest",
            lambda kind, **told: self.events.append({"type": kind, **told}),
            True,
            tuple(asked),
        )
        model = ServerModel("tiny", server.url, "k", timeout=5.0, attempts=1)
        self.model = Guarded(model, asker, purse or Budget(), price)


def limits(server: Server) -> list[int | None]:
    return [r["body"].get("max_tokens") for r in server.requests]


def spent(tokens: int, money: float = 0.0) -> Any:
    return lambda: Spent(tokens, money)


def test_without_a_budget_no_limit_is_told() -> None:
    with serving([completion()]) as server:
        reply = Guard(server).model.complete(PROMPT)
    assert limits(server) == [None] and (reply.counted, reply.cost) == (10, None)


def test_a_reply_may_take_what_the_prompt_leaves_of_the_tokens() -> None:
    with serving([completion()]) as server:
        Guard(server, Budget(1000, None, spent(400))).model.complete(PROMPT)
    assert limits(server) == [500]


def test_a_reply_may_take_what_the_prompt_leaves_of_the_money() -> None:
    with serving([completion()]) as server:
        reply = Guard(server, Budget(None, 0.01, spent(0, 0.005898)), PRICE).model.complete(PROMPT)
    assert limits(server) == [1000] and reply.cost == pytest.approx((7 * 1 + 3 * 4) / 1e6)


def test_the_smaller_of_two_budgets_holds() -> None:
    with serving([completion()]) as server:
        Guard(server, Budget(1000, 1.0), PRICE).model.complete(PROMPT)
        Guard(server, Budget(10**6, 0.010105), Price(1.0, 10.0)).model.complete(PROMPT)
    assert limits(server) == [900, 1000]


def test_replies_that_cost_nothing_are_not_limited_by_money() -> None:
    with serving([completion()]) as server:
        Guard(server, Budget(None, 0.5), Price(0.0, 0.0)).model.complete(PROMPT)
    assert limits(server) == [None]


@pytest.mark.parametrize(
    ("purse", "told"),
    [
        (Budget(1000, None, spent(900 - LEAST + 1)), f"of 1000 tokens {100 + LEAST - 1} are left"),
        (Budget(1000, None, spent(5000)), "of 1000 tokens 0 are left"),
        (Budget(0, None), "of 0 tokens 0 are left"),
        (Budget(None, 0.001, spent(0, 0.0009)), "of 0.001 in money 0.0001 are left"),
        (Budget(None, 0.001, spent(0, 5.0)), "of 0.001 in money 0 are left"),
    ],
)
def test_what_may_exceed_the_budget_is_not_asked(purse: Budget, told: str) -> None:
    with serving([completion()]) as server:
        with pytest.raises(Exhausted) as caught:
            Guard(server, purse, PRICE).model.complete(PROMPT)
        assert not server.requests
    assert str(caught.value) == f"the budget is spent: {told}, and the next prompt alone takes about 100 tokens"


def test_tokens_that_nobody_tells_are_estimated() -> None:
    with serving([completion("x" * 31, usage=None)]) as server:
        reply = Guard(server, Budget(1000), PRICE).model.complete(PROMPT)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.counted) == (None, None, 111)
    assert reply.cost == pytest.approx((100 + 11 * 4) / 1e6)


def test_what_was_spent_is_told_live_with_what_may_be() -> None:
    with serving([completion()]) as server:
        guard = Guard(server, Budget(1000, 1.0, spent(400, 0.5)), PRICE)
        guard.model.complete(PROMPT)
    (event,) = guard.events
    assert event == {
        "type": "model.spent", "role": "optimizer", "tokens": 410, "of_tokens": 1000,
        "money": pytest.approx(0.500019), "of_money": 1.0,
    }  # fmt: skip


@given(st.text())
def test_an_estimate_is_never_below_one_token_for_three_bytes(text: str) -> None:
    assert estimate(text) * BYTES >= len(text.encode("utf-8", "replace"))


LOST = [
    failure(401),
    failure(404),
    failure(500),
    failure(429, Retry_After="3600"),
    Answer(resets=True),
    Answer(hangs=True),
]


@pytest.mark.parametrize("lost", LOST, ids=["401", "404", "500", "429", "reset", "silence"])
def test_a_server_that_is_gone_is_loud_at_first_and_ends_the_role_later(lost: Answer) -> None:
    with serving([lost, completion(), lost]) as server:
        guard = Guard(server)
        guard.model.model.timeout = 1.0  # type: ignore[attr-defined]
        with pytest.raises(Gone):
            guard.model.complete("first")
        guard.model.complete("second")
        with pytest.raises(Exhausted, match=r"server|key"):
            guard.model.complete("third")


def test_a_resumed_run_with_replies_does_not_end_for_a_server_that_is_gone() -> None:
    with serving([completion()]) as server:
        server.url = unused_url()
        with pytest.raises(Exhausted, match="cannot be reached"):
            Guard(server, asked=["before"]).model.complete("next")
