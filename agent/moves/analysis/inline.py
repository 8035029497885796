"""Puts the bodies of jit helpers in place of their calls, so that a kernel is one function that can be analysed.

A helper is inlined when it has one `return`, its last statement, and is called as a statement of its own: `x = f(..)`,
`x, y = f(..)` or `f(..)`. Arguments that are names, or that the compiler knows, take the places of parameters that the
helper does not assign; an `if` on a literal keeps one branch. What the compiler knows must not become a number of the
running kernel: other types would meet in arithmetic. Relies on libcst. Helpers of another form stay calls.
"""

from collections.abc import Iterable

import libcst as cst
from pgo_agent.agent.moves.analysis.constant_fold import folded
from pgo_agent.agent.moves.analysis.constexpr import constant, is_literal, runs
from pgo_agent.agent.moves.analysis.cst_util import (
    Rename,
    Statement,
    change,
    code,
    constexprs,
    decorated,
    docstring,
    fresh,
    functions,
    lines,
    listed,
    module_of,
    names,
    nodes,
    parameters,
    spread,
    visited,
    writes,
)
from pgo_agent.agent.moves.analysis.launcher_edit import bound as bound_at_top
from pgo_agent.agent.moves.analysis.loops import unrolled

DEPTH = 8  # helpers that call helpers


def inline(source: str, kernel: str) -> str:
    """Return the file with the helpers of a kernel inlined, and those that nothing uses any more taken away."""
    module = module_of(source)
    if kernel not in functions(module):
        return source
    module = change(module, {kernel: spread(functions(module)[kernel])})
    for _ in range(DEPTH):
        body = _Inliner(module, kernel)
        done = visited(functions(module)[kernel], body)
        module = change(module, {kernel: done})
        if not body.inlined:
            return module.code
        module = _without_unused(module, body.inlined)
    return module.code


class _Inliner(cst.CSTTransformer):
    def __init__(self, module: cst.Module, kernel: str) -> None:
        self.inlined = set[str]()
        once = {n for n, given in bound_at_top(module).items() if len(given) == 1}
        function = functions(module)[kernel]
        self.own = set(parameters(function)) | writes(function.body)  # what a free name of a helper must not meet
        self.known = {n: f for n, f in functions(module).items() if n in once - {kernel} - self.own and _inlinable(f)}
        self.taken = names(function.body) | self.own
        self.constants = constexprs(function) - writes(function.body)
        self.fixed = self.constants | _annotated(function)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        call, targets = _call(updated_node)
        if call is None or not isinstance(call.func, cst.Name) or call.func.value not in self.known:
            return updated_node
        helper = spread(self.known[call.func.value])
        body = self._body(helper, call, targets)
        if body is None:
            return updated_node
        self.inlined.add(helper.name.value)
        head = body[0].with_changes(leading_lines=updated_node.leading_lines) if body else None
        return cst.FlattenSentinel([head, *body[1:]] if head else [])

    def _body(
        self, helper: cst.FunctionDef, call: cst.Call, targets: cst.BaseExpression | None
    ) -> list[Statement] | None:
        given, body = _bound(helper, call), _statements(helper)
        if given is None or body is None:
            return None
        statements, returned = body
        pairs = _pairs(targets, returned)
        assigned = set[str]().union(*map(writes, statements))
        free = names(helper.body) - assigned - set(given)
        if pairs is None or free & self.own or not all(self._keeps(e, n in assigned) for n, e in given.items()):
            return None
        self.taken |= free
        direct, before = self._parameters(given, assigned, pairs)
        own = {n: fresh(n, self.taken) for n in sorted(assigned - set(given))}
        self._take(own.values())
        replace = _Substitute(direct, own)
        values = [(t, code(visited(v, replace))) for t, v in pairs]
        left = [(t, v) for t, v in values if t != v]
        after = lines(f"{', '.join(t for t, _ in left)} = {', '.join(v for _, v in left)}") if left else []
        return [*before, *folded([visited(s, replace) for s in statements]), *after]

    def _take(self, new: Iterable[str]) -> None:
        self.taken.update(new)
        self.own.update(new)

    def _keeps(self, e: cst.BaseExpression, assigned: bool) -> bool:
        """Whether an argument stays what it is: known to the compiler, or a value of the running kernel."""
        if constant(e, self.constants):
            return not assigned
        if isinstance(e, cst.Name):
            return not (assigned and e.value in self.fixed)
        return runs(e, self.own - self.fixed)

    def _parameters(
        self, given: dict[str, cst.BaseExpression], assigned: set[str], pairs: list[tuple[str, cst.BaseExpression]]
    ) -> tuple[dict[str, str], list[Statement]]:
        """What stands for each parameter, and assignments that must come first."""
        direct, before = dict[str, str](), list[Statement]()
        targets, carried = {t for t, _ in pairs}, {code(v): t for t, v in pairs}
        read = [n for e in given.values() for n in names(e)]
        for name, value in given.items():
            text = code(value)
            plain = isinstance(value, cst.Name) and text not in targets
            if name not in assigned and (plain or constant(value, self.constants)):
                direct[name] = text if isinstance(value, cst.Name) or is_literal(value) else f"({text})"
            elif isinstance(value, cst.Name) and carried.get(name) == text and read.count(text) == 1:
                direct[name] = text  # it goes in and comes out under the same name
            else:
                direct[name] = fresh(name, self.taken)
                self._take([direct[name]])
                before += lines(f"{direct[name]} = {f'({text})' if chr(10) in text else text}")
        return direct, before


class _Substitute(Rename):
    """Renames locals, and puts text in the places of parameters."""

    def __init__(self, direct: dict[str, str], own: dict[str, str]) -> None:
        super().__init__(own)
        self.direct = direct

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        changed = super().leave_Attribute(original_node, updated_node)
        if not isinstance(changed.value, cst.Integer | cst.Float):
            return changed
        return changed.with_changes(value=cst.parse_expression(f"({code(changed.value)})"))  # 0.to is no Python

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        text = self.direct.get(original_node.value)
        if text is None:
            return super().leave_Name(original_node, updated_node)
        return cst.parse_expression(text)  # type: ignore[return-value]


def _annotated(function: cst.FunctionDef) -> set[str]:
    """Locals that the compiler knows: `x: tl.constexpr = ..`, and the variables of static ranges."""
    constants = set[str]()
    for node in nodes(function.body):
        if isinstance(node, cst.AnnAssign) or (isinstance(node, cst.For) and unrolled(node)):
            constants |= names(node.target)
    return constants


def _inlinable(helper: cst.FunctionDef) -> bool:
    """A plain `triton.jit` function: no other decorator, no `*args`, no defaults but literals, no recursion."""
    p = helper.params
    if helper.name.value in names(helper.body):
        return False
    plain = all(x.default is None or is_literal(x.default) for x in listed(helper))
    return decorated(helper) == ["jit"] and plain and not isinstance(p.star_arg, cst.Param) and p.star_kwarg is None


def _call(line: cst.SimpleStatementLine) -> tuple[cst.Call | None, cst.BaseExpression | None]:
    """The call that a statement is, and what it is assigned to."""
    if len(line.body) != 1:
        return None, None
    match line.body[0]:
        case cst.Expr(value=cst.Call() as call):
            return call, None
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Name() | cst.Tuple() as target)], value=cst.Call() as call
        ):
            return call, target
    return None, None


def _bound(helper: cst.FunctionDef, call: cst.Call) -> dict[str, cst.BaseExpression] | None:
    """Parameter -> its argument."""
    own = parameters(helper)
    given = {p.name.value: p.default for p in listed(helper) if p.default is not None}
    for i, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword else own[i] if i < len(own) else ""
        if arg.star or name not in own:
            return None
        given[name] = arg.value
    return {n: given[n] for n in own} if set(given) == set(own) else None


def _statements(helper: cst.FunctionDef) -> tuple[list[Statement], cst.BaseExpression | None] | None:
    """The body without its docstring and return, and what it returns; None when it returns elsewhere."""
    body = [s for s in helper.body.body if isinstance(s, Statement)]
    body = body[len(docstring(body)) :]
    returns = [n for n in nodes(helper.body) if isinstance(n, cst.Return)]
    if any(isinstance(n, cst.FunctionDef | cst.Lambda | cst.BaseComp | cst.NamedExpr) for n in nodes(helper.body)):
        return None
    if not returns:
        return body, None
    match body:
        case [*before, cst.SimpleStatementLine(body=[cst.Return()])] if len(returns) == 1:
            return before, returns[0].value
    return None


def _pairs(
    targets: cst.BaseExpression | None, returned: cst.BaseExpression | None
) -> list[tuple[str, cst.BaseExpression]] | None:
    """Name -> what it is assigned; None when that is not written name by name."""
    if targets is None:
        harmless = returned is None or not any(isinstance(n, cst.Call) for n in nodes(returned))
        return [] if harmless else None
    if isinstance(targets, cst.Name):
        single = returned is not None and not isinstance(returned, cst.Tuple)
        return [(targets.value, returned)] if single and returned is not None else None
    if not isinstance(targets, cst.Tuple) or not isinstance(returned, cst.Tuple):
        return None
    pairs = [(code(t.value), v.value) for t, v in zip(targets.elements, returned.elements, strict=False)]
    plain = all(isinstance(e, cst.Element) for e in (*targets.elements, *returned.elements))
    named = all(isinstance(t.value, cst.Name) for t in targets.elements)
    distinct = len({t for t, _ in pairs}) == len(pairs)
    return pairs if plain and named and distinct and len(targets.elements) == len(returned.elements) else None


def _without_unused(module: cst.Module, inlined: set[str]) -> cst.Module:
    """The file without inlined helpers that no other statement mentions."""
    mentioned = [(s, names(s)) for s in module.body]

    def used(name: str) -> bool:
        return any(
            name in variables
            for s, variables in mentioned
            if not (isinstance(s, cst.FunctionDef) and s.name.value == name)
        )

    gone = {n for n in inlined if not used(n)}
    return module.with_changes(
        body=[s for s in module.body if not (isinstance(s, cst.FunctionDef) and s.name.value in gone)]
    )
