"""Loops of machine code: natural loops of its control flow graph, whatever order the code was laid out in.

Works on instructions with branch targets; calls are taken to return. Loops after Aho et al., "Compilers", section 9.6;
dominators are networkx's. Code that the first instruction does not reach (functions that are called) has no loops here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pgo_agent.sandbox.profile.backend import Instruction

Edges = Mapping[int, tuple[int, ...]]  # index of an instruction -> those that may follow it


def loops(code: Sequence[Instruction]) -> tuple[tuple[int, ...], ...]:
    """Return the instructions of each loop, as sorted indices, an outer loop before those inside of it."""
    return natural({i: after(code, i) for i in range(len(code))}, 0) if code else ()


def after(code: Sequence[Instruction], i: int) -> tuple[int, ...]:
    """Return the instructions that may follow one."""
    instruction = code[i]
    falls = not instruction.ends and (not instruction.targets or instruction.conditional) and i + 1 < len(code)
    return tuple(dict.fromkeys((*instruction.targets, *((i + 1,) if falls else ()))))


def natural(edges: Edges, first: int) -> tuple[tuple[int, ...], ...]:
    """Return the natural loops of a graph that `first` leads to, in the order of `loops`."""
    import networkx as nx  # half a second, which a kept answer does not need

    graph = nx.DiGraph(edges)
    above = nx.immediate_dominators(graph, first)
    order = {node: n for n, node in enumerate(nx.dfs_preorder_nodes(graph, first))}
    bodies = defaultdict[int, set[int]](set)
    for latch, header in graph.edges(above):
        if order[header] <= order[latch] and _dominates(above, first, header, latch):
            bodies[header] |= _body(graph.pred, header, latch, above)
    return tuple(sorted((tuple(sorted(body)) for body in bodies.values()), key=lambda body: (-len(body), body[0])))


def _dominates(above: Mapping[int, int], first: int, a: int, b: int) -> bool:
    while b not in (a, first):
        b = above[b]
    return a == b


def _body(before: Mapping[int, Iterable[int]], header: int, latch: int, reached: Mapping[int, int]) -> set[int]:
    """Return all that leads to the latch without coming by the header."""
    body, pending = {header}, [latch]
    while pending:
        node = pending.pop()
        if node not in body and node in reached:
            body.add(node)
            pending += before[node]
    return body
