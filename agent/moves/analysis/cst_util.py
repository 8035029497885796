"""Reading and renaming names in libcst trees, and finding the functions of a kernel.

Reading is by plain names; `writes` looks into the branches of an `if`. Nothing here knows what a name means.
"""

import builtins
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, TypeVar

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply

Statement = cst.BaseStatement
Node = TypeVar("Node", bound=cst.CSTNode)
_EMPTY = cst.Module([])
_LAYOUT = {"lpar", "rpar", "comma", "semicolon", "leading_lines", "lines_after_decorators", "header", "footer"}
_ARITHMETIC = {
    "cdiv", "minimum", "maximum", "min", "max", "abs", "int", "len", "program_id", "num_programs", "to", "cast",
    "multiple_of", "max_contiguous",
}  # fmt: skip


@lru_cache(maxsize=1024)  # each keeps its node
def code(node: cst.CSTNode) -> str:
    """Return the text of a node, which nobody can change."""
    return _EMPTY.code_for_node(node)


@lru_cache(maxsize=16)
def module_of(text: str) -> cst.Module:
    """Return the tree of a file, which nobody can change: many moves read the same one."""
    return cst.parse_module(text)


def lines(text: str) -> list[Statement]:
    """Return the statements that a text is."""
    return [s for s in cst.parse_module(text).body if isinstance(s, Statement)]


def expression(text: str) -> cst.BaseExpression:
    """Return the expression that a text is."""
    return cst.parse_expression(text)


def names(node: cst.CSTNode) -> set[str]:
    """Return variables that a node mentions: no attribute names, no keywords of calls."""
    return {n.value for n in variables(node)}


def variables(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield each mention of a variable, in the order of the text."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if type(part) is cst.Name:
            yield part
        elif type(part) is cst.Attribute or type(part) is cst.Arg:
            waiting.append(part.value)
        else:
            waiting += reversed(parts(part))


def nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and everything below it, without white space and comments."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(parts(part))


def parts(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return what stands directly in a node, without white space and comments."""
    below = list[cst.CSTNode]()
    for name in _fields(type(node)):
        part = getattr(node, name)
        kind: object = type(part)
        if kind is tuple or kind is list:
            below += part
        elif _is_node(kind):
            below.append(part)
    return below


@cache
def _is_node(kind: Any) -> bool:
    """`isinstance` takes most of the time of reading a tree: the classes of libcst are abstract."""
    return issubclass(kind, cst.CSTNode)


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """Return the fields that may hold nodes."""
    may = (f.name for f in fields(kind) if f.type not in (str, bool, "str", "bool"))
    return tuple(n for n in may if n not in _LAYOUT and not n.startswith("whitespace"))


def spread(function: cst.FunctionDef) -> cst.FunctionDef:
    """Return the function with every statement on a line of its own, in an indented block."""
    crowded = any(
        isinstance(n, cst.SimpleStatementSuite) or (isinstance(n, cst.SimpleStatementLine) and len(n.body) > 1)
        for n in nodes(function)
    )
    return visited(function, _Spread()) if crowded else function


class _Spread(cst.CSTTransformer):
    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        return cst.IndentedBlock([_line(small) for small in updated_node.body])

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if len(updated_node.body) == 1:
            return updated_node
        first, *more = [_line(small) for small in updated_node.body]
        return cst.FlattenSentinel([first.with_changes(leading_lines=updated_node.leading_lines), *more])


def _line(small: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])


def writes(s: cst.CSTNode) -> set[str]:
    """Return names that a statement may assign."""
    return set(_written(s))


@lru_cache(maxsize=512)
def _written(s: cst.CSTNode) -> frozenset[str]:
    """Of a loop it is asked for every load in it."""
    assigned = set[str]()
    for a in nodes(s):
        if isinstance(a, cst.Assign):
            assigned |= set[str]().union(*(names(t.target) for t in a.targets))
        elif isinstance(a, cst.AugAssign | cst.AnnAssign | cst.For | cst.NamedExpr):
            assigned |= names(a.target)
    return frozenset(assigned)


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
    """Return the node after a transformer that neither removes it nor puts several in its place."""
    done = node.visit(transformer)
    if not isinstance(done, cst.CSTNode):
        raise TypeError(f"{type(transformer).__name__} does not leave one node")
    return done


def fresh(wanted: str, taken: Iterable[str]) -> str:
    """Return a name like the wanted one that nothing uses."""
    used = set(taken)
    return next(n for i in range(len(used) + 1) if (n := wanted if not i else f"{wanted}_{i}") not in used)


def functions(module: cst.Module) -> dict[str, cst.FunctionDef]:
    """Return the functions of a file: those at its top, under `if`, `with` and `try` there, and those of functions that
    make kernels, in place of these.

    Where some make kernels, a name means one thing: what has a name that stands for anything else, too, is left out.
    """
    return {f.name.value: f for f, _ in _listed(module)}


def makers(module: cst.Module, name: str) -> tuple[cst.FunctionDef, ...]:
    """Return the functions that a function of the file stands in, the outermost first: they make kernels."""
    return next((around for f, around in reversed(_listed(module)) if f.name.value == name), ())


@lru_cache(maxsize=16)  # each keeps its tree, which every step of a move reads anew
def _listed(module: cst.Module) -> "tuple[tuple[cst.FunctionDef, Around], ...]":
    """Return the functions of a file, each with those that it stands in."""
    listed = tuple(_defined(module.body, ()))
    ambiguous = _ambiguous(module, listed)
    return tuple((f, around) for f, around in listed if f.name.value not in ambiguous)


def _ambiguous(module: cst.Module, listed: Sequence[tuple[cst.FunctionDef, "Around"]]) -> set[str]:
    """Return names that a kernel could read as something else than the function which is listed."""
    within = [f.name.value for f, around in listed if around]
    if not within:
        return set()
    given = Counter(bindings(module))
    return {n for n in given if given[n] > 1} | {n for n in within if hasattr(builtins, n)}


def bindings(node: cst.CSTNode) -> Iterator[str]:
    """Yield a name for each place in a node that binds it, in whichever scope: no attributes, no keywords."""
    for n in nodes(node):
        match n:
            case cst.FunctionDef(name=cst.Name(value=name)) | cst.ClassDef(name=cst.Name(value=name)):
                yield name
            case cst.Param(name=cst.Name(value=name)) | cst.NameItem(name=cst.Name(value=name)):
                yield name
            case cst.AssignTarget(target=target) | cst.For(target=target) | cst.CompFor(target=target):
                yield from names(target)
            case cst.AugAssign(target=target) | cst.AnnAssign(target=target) | cst.NamedExpr(target=target):
                yield from names(target)
            case cst.AsName(name=target):
                yield from names(target)
            case cst.ImportAlias(name=imported, asname=None):
                yield code(imported).split(".")[0]


Around = tuple[cst.FunctionDef, ...]


def _defined(body: Sequence[cst.CSTNode], around: Around) -> Iterator[tuple[cst.FunctionDef, Around]]:
    for statement in body:
        if isinstance(statement, cst.FunctionDef):
            own = list(_defined(_statements(statement), (*around, statement)))
            is_maker = any("jit" in decorated(f) for f, _ in own)
            yield from own if is_maker else [(statement, around)]
        elif isinstance(statement, cst.If | cst.Else | cst.With | cst.Try):
            yield from _defined(_statements(statement), around)
            others = (getattr(statement, "orelse", None), getattr(statement, "finalbody", None))
            yield from _defined([o for o in others if o is not None], around)


def _statements(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    block = getattr(node, "body", None)
    return block.body if isinstance(block, cst.IndentedBlock) else []


def constexprs(function: cst.FunctionDef) -> set[str]:
    """Return parameters that are compile-time constants."""
    return {
        x.name.value for x in listed(function) if x.annotation and code(x.annotation.annotation).endswith("constexpr")
    }


def parameters(function: cst.FunctionDef) -> list[str]:
    """Return the names of a function's parameters but for `*args` and `**kwargs`."""
    return [p.name.value for p in listed(function)]


def listed(function: cst.FunctionDef) -> tuple[cst.Param, ...]:
    """Return the parameters of a function but for `*args` and `**kwargs`."""
    p = function.params
    return *p.posonly_params, *p.params, *p.kwonly_params


def decorated(function: cst.FunctionDef) -> list[str]:
    """Return the last names of a function's decorators: `jit` of `@triton.jit`."""
    return [code(d.decorator).split("(")[0].split(".")[-1] for d in function.decorators]


def docstring(body: Sequence[cst.BaseStatement]) -> Sequence[cst.BaseStatement]:
    """Return the first statement of a body, if it is a docstring."""
    match body:
        case [cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]), *_]:
            return body[:1]
    return []


def reachable(module: cst.Module, kernel: str) -> list[str]:
    """Return the kernel and the functions of the file that it calls, over any number of steps, the kernel first."""
    by_name, reached, waiting = functions(module), list[str](), [kernel]
    while waiting:
        name = waiting.pop(0)
        if name in by_name and name not in reached:
            reached.append(name)
            waiting += sorted(names(by_name[name].body))
    if kernel not in reached:
        raise DoesNotApply(f"{kernel} is not defined in this file")
    return reached


def change(module: cst.Module, changed: dict[str, cst.FunctionDef]) -> cst.Module:
    """Return the file with these functions in place of those of the same name."""
    own = functions(module)
    return exchanged(module, {id(own[n]): f for n, f in changed.items() if n in own})


Exchange = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]


def exchanged(module: cst.Module, changed: Mapping[int, Exchange]) -> cst.Module:
    """Return the file with statements in place of functions, by the ids of these."""
    return cst.ensure_type(module.visit(_Exchange(changed)), cst.Module)


class _Exchange(cst.CSTTransformer):
    def __init__(self, changed: Mapping[int, Exchange]) -> None:
        self.changed = changed

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return id(node) not in self.changed

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return False

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> Exchange:
        return self.changed.get(id(original_node), updated_node)


def parents(node: cst.CSTNode) -> dict[int, cst.CSTNode]:
    """Map the id of every node below a node to what it is a part of."""
    by_id, waiting = dict[int, cst.CSTNode](), [node]
    while waiting:
        above = waiting.pop()
        below = parts(above)
        by_id |= {id(n): above for n in below}
        waiting += below
    return by_id


def strings(node: cst.CSTNode) -> set[str]:
    """Return what is written as a string in a node, but for those that are formatted."""
    texts = (n.evaluated_value for n in nodes(node) if isinstance(n, cst.SimpleString | cst.ConcatenatedString))
    return {text for text in texts if isinstance(text, str)}


def repeatable(e: cst.BaseExpression) -> bool:
    """Tell whether an expression can be evaluated twice in a row and give the same: arithmetic that reads no memory."""
    inner = list(nodes(e))
    if any(isinstance(n, cst.NamedExpr | cst.Yield | cst.Await) for n in inner):
        return False
    return all(called(c) in _ARITHMETIC for c in inner if isinstance(c, cst.Call))


def contains(node: cst.CSTNode, call: str) -> bool:
    """Tell whether a function of Triton's language (`dot`, `load`) is called inside a node."""
    return any(called(c) == call for c in nodes(node) if isinstance(c, cst.Call))


def keywords(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Return what a call is given by keyword."""
    return {a.keyword.value: a.value for a in call.args if a.keyword is not None}


def called(call: cst.Call) -> str:
    """Return the name of the Triton function that is called, without its module: `dot` of `tl.dot`."""
    return code(call.func).split(".")[-1] if isinstance(call.func, cst.Attribute | cst.Name) else ""
