"""Calls a launcher again for each case, in the reverse order, and says what it does otherwise than at first.

A plan is of one call. A launcher that counts its calls, or keeps something of an earlier one, may launch something
else at the next. That a hundredth call is another one is not seen here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pgo_agent.sandbox.tracer.session import Session

SAID = 300  # characters of an error
_STEP = {"grid": "another grid", "args": "other arguments", "kernel": "another kernel", "op": "another operation"}


def differences(session: Session, first: Mapping[str, tuple[dict[str, Any], list[dict[str, Any]]]]) -> dict[str, str]:
    """Return case -> what another call of kernel() does otherwise. `first`: each case's parameters, and what its calls
    did before, of which the first chose the first configuration that can be launched."""
    found = {}
    for case, (parameters, entries) in reversed(list(first.items())):
        if "plan" in entries[0] and (said := _difference(entries[0], session.trace(parameters, 1)[0])):
            found[case] = said
    return found


def _difference(first: Mapping[str, Any], again: Mapping[str, Any]) -> str:
    if "error" in again:
        return f"it fails: {again['error']['message'][:SAID]}"
    if first["configs"] != again["configs"]:
        return "it chooses another configuration"
    before, now = first["plan"], again["plan"]
    if before == now:
        return ""
    if len(before["steps"]) != len(now["steps"]):
        return f"it makes {len(now['steps'])} launches and operations, and not {len(before['steps'])}"
    steps = enumerate(zip(before["steps"], now["steps"], strict=True), 1)
    return next((said for n, (old, new) in steps if (said := _step(n, old, new))), _rest(before, now))


def _step(number: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if old == new:
        return ""
    kinds = [said for field, said in _STEP.items() if old.get(field) != new.get(field)]
    if kinds == ["another grid"]:
        return f"step {number} has the grid {_dimensions(new['grid'])}, and not {_dimensions(old['grid'])}"
    return f"step {number} has {' and '.join(kinds or ['other results'])}"


def _dimensions(grid: Sequence[int]) -> str:
    return " x ".join(map(str, grid))


def _rest(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return "its results lie elsewhere" if before["out"] != now["out"] else "it uses other memory"
