"""Which values of the graph a launch's memory holds: matched with the graph fragment by name, type, sizes and strides.

A fragment of a newer release says what it reads and returns. Of an older one's, what is read is what no operation of it
makes, and what is returned is what goes elsewhere, in order. Relies on `fragment.py`.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pgo_agent.agent.commands.init.inductor.fragment import Fragment, Layout


@dataclass(eq=False)
class Buffer:
    """Memory that the call knows by one or several names."""

    name: str
    layout: Layout | None
    value: str | None  # what it holds, by its name in the graph; None: not known
    fresh: bool = False  # nothing was written into it
    extern: str = ""  # the library that wrote it
    turn: int = 0  # which of its calls that was
    partial: bool = False  # it holds what has no name in the graph
    given: bool = False  # an argument of the graph
    views: "list[Buffer]" = field(default_factory=list)


def is_buffer(name: str, frag: Fragment) -> bool:
    """Whether a result is no value of the graph, but a part of one: a share of a reduction that is split."""
    return bool(re.fullmatch(r"buf\d+", name)) and name not in frag.nodes


def named(frag: Fragment, read: Sequence[Buffer]) -> list[str]:
    """Give a name to what a launch reads and no launch wrote; return what has none."""
    known = {b.value for b in read if b.value}
    free = [n for n in frag.placeholders if n not in known and n not in frag.returns]
    if not frag.placeholders:  # an older release's fragment
        used = dict.fromkeys(n for node in frag.nodes.values() for n in node.reads)
        free = [n for n in used if n not in frag.nodes and n not in known]
    free.sort(key=_number)  # a graph numbers its operations in the order in which they are called
    for buffer in sorted(dict.fromkeys(b for b in read if b.value is None), key=lambda b: b.turn):
        alike = [n for n in free if _alike(frag.placeholders.get(n), buffer.layout)]
        viewed = [n for n in free if _as_large(frag.placeholders.get(n), buffer.layout)]
        own = [n for n in (*alike, *viewed) if buffer.extern and re.fullmatch(rf"{buffer.extern}(_\d+)?", n)]
        if found := next(iter([*own, *alike, *viewed]), None):
            buffer.value = found
            free.remove(found)
    return [b.name for b in read if b.value is None]


def _number(name: str) -> int:
    found = re.search(r"_(\d+)$", name)
    return int(found[1]) if found else 0


def _alike(one: Layout | None, other: Layout | None) -> bool:
    if one is None or other is None:
        return True
    return one.size == other.size and other.dtype in ("", one.dtype)


def _as_large(one: Layout | None, other: Layout | None) -> bool:
    """Whether a tensor can be a view of another one: of the same type, and as many elements."""
    if one is None or other is None or other.dtype not in ("", one.dtype):
        return False
    sizes = [layout.size for layout in (one, other)]
    return all(s.isdigit() for s in (*one.size, *other.size)) and len({math.prod(map(int, s)) for s in sizes}) == 1


def results(
    frag: Fragment, stored: Sequence[tuple[str, Buffer]], called: Mapping[str, str], changed: Collection[str]
) -> dict[str, str]:
    """Return what the parameters that are stored to hold after the launch, by its name in the graph.

    `called`: parameter -> the name of its memory in the call, which shares of a reduction have in the fragment, too.
    `changed`: results of the module's operations that change memory: by such a name goes the memory before, too.
    """
    returns = list(frag.returns) or _last(frag)
    result = {p: called[p] for p, _ in stored if called[p] in frag.returns and is_buffer(called[p], frag)}
    left = [n for n in returns if n not in result.values()]
    for p, buffer in (x for x in stored if x[0] not in result):
        place = re.fullmatch(r"out_ptr(\d+)", p)
        name = returns[int(place[1])] if place and frag.returns and int(place[1]) < len(returns) else ""
        if name and _alike(_layout_of(frag, name), buffer.layout):
            result[p] = name
            left = [n for n in left if n != name]
    for p, buffer in stored:
        if p not in result:
            alike = [n for n in left if _alike(_layout_of(frag, n), buffer.layout)]
            exact = [n for n in alike if not re.fullmatch(r"buf\d+", n)] or alike
            result[p] = (exact[-1] if p.startswith("in_out") else exact[0]) if exact else buffer.name
            left = [n for n in left if n != result[p]]
    return {p: _stored(frag, n, dict(stored)[p], changed) for p, n in result.items()}


def _stored(frag: Fragment, name: str, buffer: Buffer, changed: Collection[str]) -> str:
    """Return what is stored under a name that no operation of the fragment has: what a `copy_` puts into an argument of
    the graph; the result of an operation that changes what the memory held (`index_put_`); the one value that goes
    elsewhere, of memory that is called by what a later kernel makes of it."""
    if name in frag.nodes:
        return name
    changing = [n for n in frag.nodes.values() if n.changes and n.reads[:1] == [buffer.value] != [None]]
    changing += [n for n in frag.nodes.values() if n.changes and n.name == buffer.value]
    for node in changing:
        if node.op != "copy_":
            return node.name
        if len(node.reads) > 1:
            return node.reads[1]
    last = [n for n in _last(frag) if _alike(frag.nodes[n].layout, buffer.layout)]
    return last[0] if name in changed and len(last) == 1 else name


def _layout_of(frag: Fragment, name: str) -> Layout | None:
    node = frag.nodes.get(name)
    return (node.layout if node else None) or frag.placeholders.get(name)


def _last(frag: Fragment) -> list[str]:
    """Return the nodes whose values go elsewhere, too: what an older release's fragment returns."""
    used = [n for node in frag.nodes.values() for n in node.reads]
    single = (n for n, node in frag.nodes.items() if node.results == 1)
    return [n for n in single if frag.nodes[n].users > used.count(n) or n not in used]


def layout(frag: Fragment, name: str, buffer: Buffer) -> Layout | None:
    """Return the layout that the fragment's operations are given; else the buffer's."""
    stated: Mapping[str, Layout | None] = frag.placeholders
    if name and (known := stated.get(name)) is not None:
        return known
    return buffer.layout
