"""Say which data a program reads for the last time, and which other programs read, too: `eviction_policy` of loads.

For kernels without dots. What a program reads once, at a place of its own, goes first from the caches; what it reads
again, or every program reads, stays longest. A policy changes no value: it only says what to throw away. Loads that say
something of the caches already stay as they are. Relies on `ast`, so it also finds kernels inside of an `if`.
"""

import ast
from collections.abc import Iterator, Sequence

from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.launched import kernels, named, parameters
from pgo_agent.agent.moves.analysis.offsets import Offsets, Span, replaced
from pgo_agent.agent.moves.analysis.scopes import Function, Scopes
from pgo_agent.agent.moves.move import RewriteInput, SourceMove
from pgo_agent.agent.profile.findings import Defect
from pgo_agent.sandbox import parsing

FIRST, LAST = "evict_first", "evict_last"
_SAYS = {"eviction_policy", "cache_modifier", "volatile"}
_POSITIONAL = 5  # arguments of `tl.load` before those


def rewrite(subject: RewriteInput) -> str:
    """Give loads their policies. Raises DoesNotApply where there are dots, or no load that is known."""
    tree = parsing.module(subject.source)
    scopes, offsets = Scopes(tree), Offsets(subject.source)
    function = next((k for k in kernels(scopes) if k.name == subject.kernel), None)
    if function is None:
        raise DoesNotApply(f"{subject.kernel} is not defined in this file")
    if any(named(c) in ("dot", "dot_scaled") for c in _calls(function)) or subject.static.get("dots"):
        raise DoesNotApply("it has dots: its copies have an order of their own")
    edits = dict[Span, str]()
    for call, policy in _policies(function):
        end = offsets.of(call)[1] - 1
        edits[end, end] = f'{offsets.comma(call)}eviction_policy="{policy}"'
    if not edits:
        raise DoesNotApply("none of its loads is of a tensor that is known, or they say what the caches shall keep")
    return replaced(subject.source, edits)


def _policies(function: Function) -> Iterator[tuple[ast.Call, str]]:
    """The loads of tiles that say nothing of the caches, each with what to say."""
    given = _assigned(function)
    own = _reached(given, {n for n, values in given.items() if any(_asks(v) for v in values)})
    loads = [
        c for c in _calls(function) if named(c) == "load" and c.args and isinstance(c.args[0], ast.Name | ast.BinOp)
    ]
    roots = {id(c): _root(c.args[0], given, parameters(function)) for c in loads}
    for call in loads:
        root = roots[id(call)]
        silent = len(call.args) <= _POSITIONAL and not any(k.arg in _SAYS or k.arg is None for k in call.keywords)
        if root is None or not silent or _scalar(call.args[0], given):
            continue
        again = [c for c in loads if roots[id(c)] == root]
        private = _asks(call.args[0]) or any(n in own for n in _names(call.args[0])) or root in own
        last = max(again, key=lambda c: (c.lineno, c.col_offset)) is call
        yield call, FIRST if private and last else LAST


def _assigned(function: Function) -> dict[str, list[ast.expr]]:
    """Name -> what it is given anywhere in the kernel."""
    given = dict[str, list[ast.expr]]()
    for node in ast.walk(function):
        targets: Sequence[ast.expr] = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
            targets = [node.target]
        value = node.iter if isinstance(node, ast.For) else getattr(node, "value", None)
        for name in (n for t in targets for n in _names(t)):
            given.setdefault(name, []).extend([value] if isinstance(value, ast.expr) else [])
    return given


def _reached(given: dict[str, list[ast.expr]], names: set[str]) -> set[str]:
    """The names that are computed from some, over any number of steps; a remainder is the same for many programs."""
    plain = {n: {x for v in values if not _remainder(v) for x in _names(v)} for n, values in given.items()}
    reached = set(names)
    while more := {n for n, read in plain.items() if reached & read} - reached:
        reached |= more
    return reached


def _root(pointer: ast.expr, given: dict[str, list[ast.expr]], taken: Sequence[str]) -> str | None:
    """The parameter that a pointer starts from: what stands leftmost in sums."""
    for _ in range(20):
        if isinstance(pointer, ast.BinOp) and isinstance(pointer.op, ast.Add | ast.Sub):
            pointer = pointer.left
        elif isinstance(pointer, ast.Name) and pointer.id in taken:
            return pointer.id
        elif isinstance(pointer, ast.Name) and given.get(pointer.id):
            pointer = given[pointer.id][0]
        else:
            return None
    return None


def _scalar(pointer: ast.expr, given: dict[str, list[ast.expr]]) -> bool:
    """Whether nothing in a pointer is a tile."""
    tiles = _reached(given, {n for n, values in given.items() if any(_arranges(v) for v in values)})
    return not _arranges(pointer) and not any(n in tiles for n in _names(pointer))


def _arranges(node: ast.AST) -> bool:
    return any(named(c) == "arange" for c in _calls(node))


def _remainder(e: ast.expr) -> bool:
    return isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mod)


def _asks(node: ast.AST) -> bool:
    return any(named(c) == "program_id" for c in _calls(node))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call))


def _names(node: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


MOVE = SourceMove(
    name="say what caches shall keep",
    symptom="data that are read once push out of the caches what is read again",
    gain="not judged yet; PyTorch's compiler writes such policies into the reductions that it makes",
    archs=(80, 86, 89, 90, 100, 103, 120),
    rewrite=rewrite,
    cures=(Defect.MISSES,),
    streams=True,
)
