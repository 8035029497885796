"""Cuts a kernel file into the kernel part, which proposers see and may change, and the contract, which they may not.

Relies on `ast` and on the contract's names in `sandbox/target.py`. The contract's statements, the helpers that only
they use, and the comments above them are hidden; everything else is the kernel part, byte for byte.
"""

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pgo_agent.agent import free_names
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import CONTRACT, names_of


@dataclass(frozen=True)
class Block:
    """Statements that share lines, with the comments above them. All blocks of a file, joined, are the file."""

    text: str
    nodes: tuple[ast.stmt, ...]
    names: frozenset[str]  # what they define
    loads: frozenset[str]  # names of the module that they use

    @property
    def imports(self) -> bool:
        return all(isinstance(n, ast.Import | ast.ImportFrom) for n in self.nodes)


def kernel_part(source: str) -> str:
    """Return what a model may see: `sandbox.target.kernel_part` without the contract's comments and helpers."""
    parts = blocks(source)
    hidden_parts = hidden(parts)
    return "".join(b.text for i, b in enumerate(parts) if i not in hidden_parts).strip("\n") + "\n"


def blocks(text: str) -> list[Block]:
    """Cut a file into blocks. Comments belong to the statement below them. Raises what `ast.parse` raises."""
    return list(_cut(text))


def block(text: str, nodes: Sequence[ast.stmt]) -> Block:
    """Return statements as a block. `text`: theirs."""
    names = frozenset[str]().union(*map(_names, nodes)) - {"_"}  # which nobody reads, and many assign
    return Block(text, tuple(nodes), names, frozenset(free_names.used(nodes)))


@lru_cache(maxsize=8)
def _cut(text: str) -> tuple[Block, ...]:
    """Cut a file, and remember the result: every reply is merged with the same target."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line + "\n" for line in text.split("\n")]
    result, begin, spans = list[Block](), 0, _spans(parsing.module(text))
    for i, (_, last, nodes) in enumerate(spans):
        after = spans[i + 1][0] - 1 if i + 1 < len(spans) else len(lines)
        tail = [j for j in range(last, after) if lines[j].strip() and lines[j][0] in " \t"]  # comments of its body
        end = max(tail, default=last - 1) + 1 if i + 1 < len(spans) else after
        part = "".join(lines[begin:end])
        result.append(Block(part, tuple(nodes), *_mentions(part)))
        begin = end
    return tuple(result)


@lru_cache(maxsize=2048)
def _mentions(part: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a block of a file defines, and what it uses of it: candidates have most blocks of their parents."""
    alone = block(part, parsing.module(part).body)
    return alone.names, alone.loads


def _spans(tree: ast.Module) -> list[tuple[int, int, list[ast.stmt]]]:
    """Return first line, last line and nodes of each statement; statements that share a line are one entry."""
    spans: list[tuple[int, int, list[ast.stmt]]] = []
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = node.end_lineno or node.lineno
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], last, [*spans[-1][2], node]
        else:
            spans.append((first, last, [node]))
    return spans


def hidden(parts: Sequence[Block]) -> set[int]:
    """Return the indices of the contract and of what only it uses: helpers reveal the reference and held-out cases."""
    contract = {i for i, b in enumerate(parts) if b.names & CONTRACT}
    serves = used_by(parts, contract)
    shown = (i for i, b in enumerate(parts) if i not in serves or b.imports or "kernel" in b.names)
    return serves - (used_by(parts, shown, contract) - contract)


def used_by(parts: Sequence[Block], roots: Iterable[int], walls: Collection[int] = ()) -> set[int]:
    """Return the roots and all blocks that they use, directly or indirectly, but not through the walls."""
    reached, waiting = set[int](), list(roots)
    while waiting:
        i = waiting.pop()
        if i not in reached and i not in walls:
            reached.add(i)
            waiting += [j for j, b in enumerate(parts) if b.names & parts[i].loads]
    return reached


def _names(node: ast.stmt) -> set[str]:
    """Return what a statement defines. One that defines nothing but mentions the contract counts as part of it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return names_of(node)
    inner = set[str]().union(*(names_of(n) for n in ast.walk(node) if isinstance(n, ast.stmt)))
    return inner if isinstance(node, ast.Assign | ast.AnnAssign) else inner | (mentioned([node]) & CONTRACT)


def mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
