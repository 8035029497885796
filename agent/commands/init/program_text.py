"""Statements of a user's program that make a value: cut out of their function, and renamed for a target.

What a value needs is followed back through assignments of the same function to names that are given; functions and
imports of the program's module come with it. It reads text and runs nothing.
"""

import ast
import builtins
import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pgo_agent.agent import free_names
from pgo_agent.agent.commands.init import renaming
from pgo_agent.agent.commands.init.scan import is_kernel
from pgo_agent.agent.commands.init.substitution import First, Renamed, flattened
from pgo_agent.agent.kernel_part import blocks, used_by
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import CONTRACT, names_of

DRAWING = frozenset({
    "randn", "randn_like", "rand", "rand_like", "randint", "randint_like", "randperm", "normal", "normal_", "uniform_",
    "bernoulli", "bernoulli_", "multinomial", "exponential_",
})  # fmt: skip
EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})
OWN = "their_"  # before a name of the program that a target uses for something else


@dataclass(frozen=True)
class Made:
    """Statements that make values, the values as expressions, and what of the program's module both need."""

    body: tuple[ast.stmt, ...]
    values: tuple[ast.expr, ...]
    module: str

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(ast.unparse(n) for n in self.body)

    def mentions(self, name: str) -> bool:
        """Whether a name stands in it, also as one of a module that is imported: `package.softmax` for softmax. What
        torch calls so is torch's."""
        imported = {n for b in blocks(self.module) if b.imports for n in b.names} - {"torch"}
        nodes = [n for m in (*self.body, *self.values) for n in ast.walk(m)]
        of_module = (n for n in nodes if isinstance(n, ast.Attribute) and n.attr == name)
        return any(isinstance(n, ast.Name) and n.id == name for n in nodes) or any(
            ast.unparse(n).partition(".")[0] in imported for n in of_module
        )

    @property
    def draws(self) -> bool:
        """Whether random numbers, or memory that nobody wrote, come in."""
        return any(_called(n) & (DRAWING | EMPTY) for n in (*self.body, *self.values))

    @property
    def random(self) -> bool:
        """Whether random numbers come in."""
        return any(_called(n) & DRAWING for n in (*self.body, *self.values))


def function_at(tree: ast.Module, name: str, line: int) -> ast.FunctionDef | None:
    """Return the innermost function of a name that a line stands in."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno <= line <= (n.end_lineno or 0)]
    return max((f for f in found if f.name == name), key=lambda f: f.lineno, default=None)


def cut(
    text: str,
    function: ast.FunctionDef | None,
    line: int,
    values: Sequence[ast.expr],
    renamed: Renamed,
    free: Collection[str] = (),
    turn: Mapping[str, str] | None = None,
    kept: Collection[int] = (),
    late: Collection[str] = (),
    since: int = 0,
) -> Made | None:
    """Return what makes values before a line of a function, or of the module without one; None where a name is unknown.

    `renamed`: what is given, and how the result calls it. `free`: further names that the result may use. `turn`: the
    variables of loops around the line, in the turn that is meant. `kept`: lines whose statements are wanted anyway.
    `late`: names that mean something else in the lines after `since`, and are not given there.
    """
    renamed.given |= {flattened(n): e for n, e in renamed.given.items() if "." in n}
    given, first = set(renamed.given), First(renamed.given, turn or {})
    flat = _flat(function.body if function else _running(parsing.module(text), given), line)
    listed = [one for s in flat if s.lineno < line or _holds(s, kept) for one in _one_by_one(s)]
    statements = [first.visit(copy.deepcopy(s)) for s in listed]
    values = [first.visit(copy.deepcopy(v)) for v in values]
    body = _slice(statements, values, given, kept)
    after = [*(s for s in body if s.lineno > since), *values] if late else []
    if any(isinstance(n, ast.Name) and n.id in late for node in after for n in ast.walk(node)):
        return None
    nodes = [renamed.visit(parsing.module(ast.unparse(n)).body[0]) for n in body]
    ends = [renamed.visit(parsing.expression(ast.unparse(v))) for v in values]
    made = [*nodes, *ends]
    used = free_names.used(made)
    bound = set[str]().union(*(_bound(node) for node in nodes))
    missing = used - bound - set(free) - set(dir(builtins))
    parts = blocks(text)
    roots = {i for i, b in enumerate(parts) if b.names & missing}
    if missing - set[str]().union(*(parts[i].names for i in roots)):
        return None
    needed = [parts[i] for i in sorted(used_by(parts, roots))]
    clash = {n for b in needed for n in b.names & (CONTRACT | {"kernel"})}
    fresh = Renamed({n: OWN + n for n in clash}, {})
    return Made(
        tuple(fresh.visit(n) for n in nodes),
        tuple(fresh.visit(v) for v in ends),
        "".join(renaming.renamed(b.text, fresh.given) if clash else b.text for b in needed),
    )


def _running(tree: ast.Module, given: Collection[str]) -> list[ast.stmt]:
    """Return the statements of a module but for its imports, and definitions that use nothing which is computed: those
    a result has as parts of the module."""
    body = [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]
    computed = set(given).union(*(_bound(s) for s in body if not isinstance(s, _DEFINING)))
    while (
        more := {n for s in body if isinstance(s, _DEFINING) and _closes(s, computed) for n in names_of(s)} - computed
    ):
        computed |= more
    return [s for s in body if not isinstance(s, _DEFINING) or names_of(s) & computed]


def _closes(definition: ast.stmt, computed: Collection[str]) -> bool:
    """Whether a function uses what is computed beside it; a kernel has constants alone."""
    jitted = isinstance(definition, ast.FunctionDef) and is_kernel(definition)
    return not jitted and bool((free_names.used([definition]) - names_of(definition)) & set(computed))


_DEFINING = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _holds(statement: ast.stmt, lines: Collection[int]) -> bool:
    return any(statement.lineno <= line <= (statement.end_lineno or statement.lineno) for line in lines)


def _one_by_one(statement: ast.stmt) -> list[ast.stmt]:
    """Return `a, b = 1, 2` as two statements, so that one of them can be given; others as they are."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            bound = {n.id for t in names for n in ast.walk(t) if isinstance(n, ast.Name)}
            if not bound & free_names.used(values) and not any(isinstance(n, ast.Starred) for n in (*names, *values)):
                pairs = zip(names, values, strict=True)
                return [ast.copy_location(ast.Assign([t], v), statement) for t, v in pairs]
    return [statement]


def _slice(
    statements: Sequence[ast.stmt], values: Sequence[ast.expr], given: set[str], kept: Collection[int]
) -> list[ast.stmt]:
    """Return the statements that values need, and those in lines that are kept, down to the names that are given."""
    wanted = free_names.used(values) - given
    result = list[ast.stmt]()
    for statement in reversed(statements):
        bound = _bound(statement) | _changed(statement)
        if (isinstance(statement, _MAKING) and bound & wanted) or _holds(statement, kept):
            result.insert(0, statement)
            loads = {n.id for n in free_names.mentions([statement]) if isinstance(n.ctx, ast.Load)}
            wanted = (wanted - (bound if isinstance(statement, _WHOLLY) else set())) | (loads - given)
    return result


def apart(bodies: Sequence[tuple[Sequence[str], str]]) -> list[tuple[tuple[str, ...], str]]:
    """Return the statements and the value, for each value. A name that others use otherwise is renamed."""
    taken, result = dict[str, str](), list[tuple[tuple[str, ...], str]]()
    for i, (body, value) in enumerate(bodies):
        bound = _bindings(body)
        fresh = Renamed({n: f"{n}_{i}" for n, text in bound.items() if taken.get(n, text) != text}, {})
        if fresh.given:
            body = [ast.unparse(fresh.visit(parsing.module(text))) for text in body]
            value = ast.unparse(fresh.visit(parsing.expression(value)))
        taken |= _bindings(body)
        result.append((tuple(body), value))
    return result


def _bindings(body: Sequence[str]) -> dict[str, str]:
    """Return name -> the statements that give it values."""
    result = dict[str, str]()
    for text in body:
        bound = set[str]().union(*map(_bound, parsing.module(text).body))
        result |= {n: result.get(n, "") + text for n in bound}
    return result


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds in its function."""
    if isinstance(statement, ast.FunctionDef | ast.Import | ast.ImportFrom):
        return names_of(statement)
    return {n.id for n in free_names.mentions([statement]) if isinstance(n.ctx, ast.Store)}


_WHOLLY = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.Import, ast.ImportFrom)  # whatever it was before
_MAKING = (*_WHOLLY, ast.AugAssign, ast.With, ast.For, ast.While, ast.If, ast.Expr)


def _flat(body: Sequence[ast.stmt], line: int) -> list[ast.stmt]:
    """Return statements in order; one that the line stands inside is replaced by those in it."""
    result = list[ast.stmt]()
    for s in body:
        inside = s.lineno < line <= (s.end_lineno or s.lineno)
        if inside and isinstance(s, ast.With | ast.For | ast.If | ast.While):
            result += _flat(s.body, line)
            continue
        result.append(s)
    return result


def _changed(statement: ast.stmt) -> set[str]:
    """Return names whose value a statement changes in place: `x.uniform_()`, `x[0] = 1`, `rows.append(x)`."""
    names = set[str]()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr.endswith("_") or node.func.attr in _FILLING:
                of_module = _root(node.func.value) in _MODULES  # torch.nn.init.normal_(x)
                names |= {_root(a) for a in node.args[:1]} if of_module else {_root(node.func.value)}
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {_root(t) for t in targets if isinstance(t, ast.Subscript | ast.Attribute)}
    return names - {""}


_MODULES = ("torch", "init", "nn")
_FILLING = ("append", "extend", "insert", "update", "add")


def _root(node: ast.expr) -> str:
    """Return the name that an expression is a part or a view of: `x` of `x.view(-1)[0].T`; empty for none."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.AST) -> set[str]:
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    return {f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, ast.Attribute | ast.Name)}
