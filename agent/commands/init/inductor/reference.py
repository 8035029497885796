"""Writes reference() from the graph fragments: the model's own operations, run eagerly, independent of the kernel.

Of several results of one operation the fragment names each (`getitem_1`) and does not say which it is: they are
numbered in order. Relies on `fx_text.py` for each statement.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent.commands.init.inductor import views
from pgo_agent.agent.commands.init.inductor.fragment import Node
from pgo_agent.agent.commands.init.inductor.fx_text import SHAPED, NoReference, Writer
from pgo_agent.agent.commands.init.inductor.groups import Group

DEEPEST = 900  # operations from a result to what it is computed of
_GETITEM = re.compile(r"getitem(?:_(\d+))?")


@dataclass(frozen=True)
class Reference:
    """What a reference consists of."""

    lines: tuple[str, ...]
    nodes: tuple[Node, ...]  # that it computes, in order
    results: tuple[str, ...]  # names in the graph


def write(group: Group, writer: Writer) -> Reference:
    """Return the reference of a group's results. Raises NoReference."""
    if not group.outputs:
        raise NoReference("it stores nothing")
    if not any(launch.fragment.nodes for launch in group.launches):
        raise NoReference("there is no graph fragment in the comment before it")
    if all(a.result_partial for a in group.outputs.values()):
        raise NoReference("what it stores has no name in the model's graph")
    if any(n.op.startswith("flex_attention") for launch in group.launches for n in launch.fragment.nodes.values()):
        raise NoReference("the functions that flex attention is given for scores and mask stand in its kernel alone")
    several = dict(places(group))
    if any(_place_in_order(group, several, n) for n in group.outputs):
        raise NoReference("which of equal values comes first is the kernel's own choice")
    found = slice_(group, writer, group.outputs, set(group.inputs), several)
    if found.leaves and (same := views.unsaid(group, found.leaves)):
        found = slice_(group, writer, group.outputs, set(group.inputs), several, same)
    if found.leaves:
        raise NoReference(f"its graph fragment does not say what {found.leaves[0]} is")
    return Reference(found.lines, found.nodes, tuple(group.outputs))


@dataclass(frozen=True)
class Slice:
    """The statements that make values."""

    lines: tuple[str, ...]
    nodes: tuple[Node, ...]  # in order
    leaves: tuple[str, ...]  # what they read and no fragment makes


def slice_(
    group: Group,
    writer: Writer,
    wanted: Iterable[str],
    given: Collection[str],
    several: Mapping[str, tuple[str, int]],
    same: Mapping[str, str] | None = None,
) -> Slice:
    """Return what makes these values of others that are given. `several`: results of operations that have more than
    one. `same`: names that stand for another value. Raises NoReference for an operation that has no statement."""
    order, lines, leaves, done = list[Node](), list[str](), list[str](), {*given, *group.symbols}

    def need(name: str, depth: int = 0) -> None:
        if name in done:
            return
        if depth > DEEPEST:
            raise NoReference("its graph fragment is too deep")
        done.add(name)
        if name in group.nodes:
            node = group.nodes[name]
            for other in _read(node):
                need(other, depth + 1)
            order.append(node)
            lines.append(writer.statement(node))
        elif name in several:
            of, i = several[name]
            need(of, depth + 1)
            lines.append(writer.part(name, of, i))
        elif same and name in same:
            need(same[name], depth + 1)
            lines.append(f"{writer.names(name)} = {writer.names(same[name])}{views.MARK}")
        else:
            leaves.append(name)

    for name in wanted:
        need(name)
    return Slice(tuple(lines), tuple(order), tuple(leaves))


def _place_in_order(group: Group, several: Mapping[str, tuple[str, int]], name: str) -> bool:
    """Whether a result is the places of values that were sorted, in any order where they are equal."""
    node = group.nodes.get(name)
    taken = node is not None and node.target.endswith("getitem") and node.args[1:] == ("1",)
    of = node.reads[0] if node is not None and taken else several[name][0] if several.get(name, ("", 0))[1] == 1 else ""
    return of in group.nodes and group.nodes[of].target == "torch.ops.aten.sort.default"


def _read(node: Node) -> list[str]:
    """Return what the statement of a node reads: sizes are taken from the result's own."""
    if node.op in SHAPED and node.layout is not None:  # without what the sizes are computed of
        return [n for a in node.args if not a.startswith("[") for n in re.findall(r"%(\w+)", a)]
    return node.reads


def places(group: Group) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the names of results of operations that have several, with the operation and the number among them."""
    fragments = [launch.fragment for launch in group.launches]
    several = dict.fromkeys(n.name for f in fragments for n in f.nodes.values() if n.results > 1)
    named = {
        n
        for f in fragments
        for n in (*f.placeholders, *f.returns, *(r for node in f.nodes.values() for r in node.reads))
        if _GETITEM.fullmatch(n) and n not in group.inputs and n not in group.nodes
    }
    left = sorted(named, key=_number)
    for name in several:
        node = group.nodes[name]
        own, left = left[: node.users], left[node.users :]
        yield from ((n, (name, i)) for n, i in zip(own, _which(node, own, group), strict=False))


def _which(node: Node, names: Sequence[str], group: Group) -> Sequence[int]:
    """Return which results of an operation have these names: all, or the one of that type."""
    if len(names) == node.results or node.op not in ("max", "min", "sort", "topk", "cummax", "cummin"):
        return range(len(names))
    layouts = [f.placeholders.get(n) for n in names for f in (launch.fragment for launch in group.launches)]
    return [1] if any(layout is not None and layout.dtype == "int64" for layout in layouts) else [0]


def _number(name: str) -> int:
    found = _GETITEM.fullmatch(name)
    return int(found[1] or 0) if found else 0
