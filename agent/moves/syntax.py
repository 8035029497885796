"""What the source moves share: reading and renaming names in libcst trees, and finding the functions of a kernel.

Reading is by plain names in straight-line code; `reads` and `writes` look into the branches of an `if`. Nothing here
knows what a name means.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.base import DoesNotApply

Statement = cst.BaseStatement
Node = TypeVar("Node", bound=cst.CSTNode)
_EMPTY = cst.Module([])


def code(node: cst.CSTNode) -> str:
    """The text of a node."""
    return _EMPTY.code_for_node(node)


def lines(text: str) -> list[Statement]:
    """Statements from text."""
    return [s for s in cst.parse_module(text).body if isinstance(s, Statement)]


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def names(node: cst.CSTNode) -> set[str]:
    """Variables that a node mentions: no attribute names, no keywords of calls."""
    attributes = [cst.ensure_type(n, cst.Attribute).attr for n in m.findall(node, m.Attribute())]
    keywords = [cst.ensure_type(a, cst.Arg).keyword for a in m.findall(node, m.Arg())]
    skipped = {id(n) for n in (*attributes, *keywords)}
    return {n.value for n in m.findall(node, m.Name()) if id(n) not in skipped}  # type: ignore[attr-defined]


def writes(s: cst.CSTNode) -> set[str]:
    """Names that a statement may assign."""
    found = set[str]()
    for a in m.findall(s, m.Assign()):
        found |= set[str]().union(*(names(t.target) for t in a.targets))  # type: ignore[attr-defined]
    for a in m.findall(s, m.AugAssign() | m.AnnAssign() | m.For() | m.NamedExpr()):
        found |= names(a.target)  # type: ignore[attr-defined]
    return found


def reads(s: cst.CSTNode) -> set[str]:
    """Names whose value from before the statement may matter to it."""
    read = set[str]()
    for a in m.findall(s, m.Assign()):
        read |= names(a.value)  # type: ignore[attr-defined]
    for a in m.findall(s, m.AugAssign() | m.AnnAssign()):
        read |= names(a)
    for branch in m.findall(s, m.If() | m.While()):
        read |= names(branch.test)  # type: ignore[attr-defined]
    for loop in m.findall(s, m.For()):
        read |= names(loop.iter)  # type: ignore[attr-defined]
    for line in m.findall(s, m.Expr() | m.Return() | m.Assert()):
        read |= names(line)
    return read


class Rename(cst.CSTTransformer):
    """Gives variables other names: no attributes, no keywords of calls."""

    def __init__(self, named: dict[str, str]) -> None:
        self.named = named

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=self.named.get(original_node.value, original_node.value))


def visited(node: Node, transformer: cst.CSTTransformer) -> Node:
    """The node after a transformer that neither removes it nor puts several in its place."""
    done = node.visit(transformer)
    if not isinstance(done, cst.CSTNode):
        raise TypeError(f"{type(transformer).__name__} does not leave one node")
    return done


def fresh(wanted: str, taken: Iterable[str]) -> str:
    """A name like the wanted one that nothing uses."""
    used = set(taken)
    return next(n for i in range(len(used) + 1) if (n := wanted if not i else f"{wanted}_{i}") not in used)


def functions(module: cst.Module) -> dict[str, cst.FunctionDef]:
    """The functions at the top of a file."""
    return {s.name.value: s for s in module.body if isinstance(s, cst.FunctionDef)}


def parameters(function: cst.FunctionDef) -> list[str]:
    p = function.params
    return [x.name.value for x in (*p.posonly_params, *p.params, *p.kwonly_params)]


def reachable(module: cst.Module, kernel: str) -> list[str]:
    """The kernel and the functions of the file that it calls, over any number of steps, the kernel first."""
    known, found, waiting = functions(module), list[str](), [kernel]
    while waiting:
        name = waiting.pop(0)
        if name in known and name not in found:
            found.append(name)
            waiting += sorted(names(known[name].body))
    if kernel not in found:
        raise DoesNotApply(f"{kernel} is not defined in this file")
    return found


def change(module: cst.Module, changed: dict[str, cst.FunctionDef]) -> cst.Module:
    """The file with these functions in place of those of the same name."""
    body = [changed.get(s.name.value, s) if isinstance(s, cst.FunctionDef) else s for s in module.body]
    return module.with_changes(body=body)


def in_kernel(source: str, kernel: str, transform: Callable[[cst.FunctionDef], cst.FunctionDef]) -> str:
    """Applies a transform to the kernel and to every function that it calls; the text when nothing changed."""
    module = cst.parse_module(source)
    known = functions(module)
    return change(module, {n: transform(known[n]) for n in reachable(module, kernel)}).code


def contains(node: cst.CSTNode, call: str) -> bool:
    """Whether a function of Triton's language (`dot`, `load`) is called inside a node."""
    return any(called(cst.ensure_type(c, cst.Call)) == call for c in m.findall(node, m.Call()))


def called(call: cst.Call) -> str:
    """Name of the Triton function that is called, without its module: `dot` of `tl.dot`, `exp2` of `tl.math.exp2`."""
    return code(call.func).split(".")[-1] if isinstance(call.func, cst.Attribute | cst.Name) else ""
