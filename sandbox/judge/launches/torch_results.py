"""Where the results of a plan's torch operators lie: where an operator made them, or in the plan's own memory."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from pgo_agent.sandbox.bundle.decode import addresses, flat
from pgo_agent.sandbox.bundle.schema import Address, Descriptor, Op, Plan, Tensor

# Ops that only fill a fresh tensor write into the plan's buffer directly, as the original's memset would.
FILLS: dict[str, Callable[[list[Any]], Any]] = {
    "zeros.default": lambda a: 0,
    "zeros_like.default": lambda a: 0,
    "new_zeros.default": lambda a: 0,
    "ones.default": lambda a: 1,
    "ones_like.default": lambda a: 1,
    "full.default": lambda a: a[1],
    "full_like.default": lambda a: a[1],
    "new_full.default": lambda a: a[2],
}


def held_by_torch(plan: Plan) -> set[int]:
    """Return the storages that torch ops alone work on: no launch is given their addresses, and no table holds them."""
    launched = flat(tuple(s.args for s in plan.launches))
    addressed = {a.base.storage if isinstance(a, Descriptor) else a.storage for a in [*launched, *addresses(plan)]
                 if isinstance(a, Tensor | Descriptor | Address)}  # fmt: skip
    results = Counter(t.storage for s in plan.steps if isinstance(s, Op) for t in s.out)
    shared = {t.storage for s in plan.steps if isinstance(s, Op) for t in s.out if t.offset} | addressed
    return {i for i, n in results.items() if n == 1 and plan.storages[i].kind == "made"} - shared
