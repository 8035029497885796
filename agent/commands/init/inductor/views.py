"""Views that a graph fragment does not say: `expand`, say, which changes nothing, between two operations that it says.

Such a name is read, or returned, and no operation has it, while the value of another operation goes somewhere that is
not said. Where one of these has the same type and sizes, and no other one has, it is taken for the same value; that is
a guess.
"""

import re
from collections.abc import Sequence

from pgo_agent.agent.commands.init.inductor.fragment import Layout
from pgo_agent.agent.commands.init.inductor.groups import Group
from pgo_agent.agent.commands.init.render import GUESSED

MARK = f"  {GUESSED}: the graph fragment does not say this view"
_VIEW = re.compile(r"(expand|view|reshape|_unsafe_view|alias|detach|clone)(_\d+)?")
_SAME_SIZE = frozenset({"clone", "convert_element_type", "neg", "exp", "relu", "copy"})


def unsaid(group: Group, leaves: Sequence[str]) -> dict[str, str]:
    """Return names of views -> the value that each shows, for those of these names that are told."""
    fragments = [launch.fragment for launch in group.launches]
    nodes = {n: node for f in fragments for n, node in f.nodes.items()}
    read = [n for node in nodes.values() for n in node.reads]
    ends = [n for n, node in nodes.items() if node.users > read.count(n) and n not in group.outputs]
    found = dict[str, str]()
    for name in leaves:
        layout = _layout(group, name)
        if layout is None or not _VIEW.fullmatch(name):
            continue
        alike = [n for n in ends if _same(nodes[n].layout, layout) and n not in found.values()]
        if len(alike) == 1:
            found[name] = alike[0]
    return found


def _layout(group: Group, name: str) -> Layout | None:
    """Return type and sizes of a value that no operation has: it is returned, or read by one that keeps them."""
    if name in group.outputs:
        return group.outputs[name].after
    readers = [n for n in group.nodes.values() if n.reads == [name] and n.op in _SAME_SIZE]
    kept = [n.layout for n in readers if n.op != "convert_element_type"]
    return kept[0] if kept else None


def _same(one: Layout | None, other: Layout) -> bool:
    return one is not None and one.dtype == other.dtype and _long(one.size) == _long(other.size)


def _long(size: Sequence[str]) -> list[str]:
    return [s for s in size if s != "1"]
