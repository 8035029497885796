"""Inputs that an earlier kernel of the model makes, where random numbers would not do for them.

The logarithm of a sum of exponentials, or an index that a search found, is no random number: with those in its place a
result is NaN, and nothing is compared. They are computed in inputs() of random ones, by the graph's own operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pgo_agent.agent.commands.init.inductor import reference
from pgo_agent.agent.commands.init.inductor.fragment import Layout
from pgo_agent.agent.commands.init.inductor.fx_text import NoReference, Writer
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.inductor.sizes import contiguous

# operations whose results lie in a range, or belong together
BOUNDED = frozenset({
    "rsqrt", "sqrt", "exp", "exp2", "var", "std", "abs", "pow", "sigmoid", "sum", "mean", "amax", "amin", "logsumexp",
    "reciprocal", "argmax", "argmin", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or",
    "bitwise_and", "bitwise_or", "bitwise_not", "cumsum", "full", "iota", "arange",
})  # fmt: skip
_THROUGH = frozenset({"convert_element_type", "view", "reshape", "squeeze", "unsqueeze", "add", "clone", "expand"})
MOST = 40  # operations


@dataclass(frozen=True)
class Derived:
    """What inputs() computes."""

    names: tuple[str, ...] = ()  # the inputs that are computed
    lines: tuple[str, ...] = ()
    leaves: Mapping[str, Layout] | None = None  # of which, beside other inputs; they are random


def derived(group: Group, writer: Writer) -> Derived:
    """Return the inputs of a group that inputs() must compute, with how; none where the fragments do not tell."""
    several = {n: place for g in group.every for n, place in reference.places(g)}
    names = [n for n in group.inputs if _bounded(group, several, n)]
    others = set(group.inputs) - set(names)
    if not names or group.symbols:
        return Derived()
    try:
        found = reference.slice_(group, writer, names, others, several)
    except NoReference:
        return Derived()
    known = _layouts(group)
    leaves = {n: known[n] for n in found.leaves if n in known}
    if len(leaves) < len(found.leaves) or len(found.nodes) > MOST:
        return Derived()
    return Derived(tuple(names), found.lines, leaves)


def _bounded(group: Group, several: Mapping[str, tuple[str, int]], name: str) -> bool:
    """Whether an input is made by another kernel of the module, of an operation that gives no random numbers."""
    if name in group.changed:
        return False
    if name in several:
        return True
    node = group.nodes.get(name)
    for _ in range(MOST):
        if node is None or node.op in BOUNDED:
            break
        first = next(iter(node.reads), "")
        node = group.nodes.get(first) if node.op in _THROUGH and len(node.reads) == 1 else None
    return node is not None


def _layouts(group: Group) -> dict[str, Layout]:
    """Return the dense tensors of floats of the module's graph that a kernel of it reads."""
    listed = {n: a.layout for g in group.every for n, a in g.inputs.items() if a.layout is not None}
    return {n: t for n, t in listed.items() if "float" in t.dtype and contiguous(t.size, t.stride, {})}
