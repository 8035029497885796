"""Puts the bodies of jit helpers in place of their calls, so that a kernel is one function that can be analysed.

A helper is inlined when it has one `return`, its last statement, and is called as a statement of its own: `x = f(..)`,
`x, y = f(..)` or `f(..)`. Arguments that are names or literals and that the helper does not assign take the places of
its parameters; an `if` on a literal keeps one branch. Relies on libcst. Helpers of another form stay calls.
"""

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m
from pgo_agent.agent.moves.syntax import (
    Rename,
    Statement,
    change,
    code,
    fresh,
    functions,
    lines,
    names,
    parameters,
    visited,
    writes,
)

DEPTH = 8  # helpers that call helpers


def inline(source: str, kernel: str) -> str:
    """The file with the helpers of a kernel inlined, and those that nothing uses any more taken away."""
    module = cst.parse_module(source)
    for _ in range(DEPTH):
        known = functions(module)
        body = _Inliner(known, names(known[kernel].body) | set(parameters(known[kernel])))
        done = cst.ensure_type(known[kernel].visit(body), cst.FunctionDef)
        module = change(module, {kernel: done})
        if not body.inlined:
            return module.code
        module = _without_unused(module, body.inlined)
    return module.code


class _Inliner(cst.CSTTransformer):
    def __init__(self, known: dict[str, cst.FunctionDef], taken: set[str]) -> None:
        self.known, self.taken, self.inlined = known, taken, set[str]()

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        call, targets = _call(updated_node)
        if call is None or not isinstance(call.func, cst.Name) or call.func.value not in self.known:
            return updated_node
        helper = self.known[call.func.value]
        body = self._body(helper, call, targets)
        if body is None:
            return updated_node
        self.inlined.add(helper.name.value)
        head = body[0].with_changes(leading_lines=updated_node.leading_lines) if body else None
        return cst.FlattenSentinel([head, *body[1:]] if head else [])

    def _body(self, helper: cst.FunctionDef, call: cst.Call, targets: Sequence[str] | None) -> list[Statement] | None:
        bound = _bound(helper, call)
        found = _statements(helper)
        if bound is None or found is None or not _jitted(helper):
            return None
        statements, returned = found
        if targets is not None and len(targets) != len(returned):
            return None
        assigned = set[str]().union(*map(writes, statements))
        direct, before = self._parameters(bound, assigned, returned, targets or ())
        own = {n: fresh(n, self.taken) for n in sorted(assigned - set(bound))}
        self.taken |= set(own.values())
        replace = _Substitute(direct, own)
        body = [visited(s, replace) for s in statements]
        values = [code(visited(e, replace)) for e in returned]
        left = [(t, v) for t, v in zip(targets or (), values, strict=False) if t != v]
        after = lines(f"{', '.join(t for t, _ in left)} = {', '.join(v for _, v in left)}") if left else []
        return [*before, *_folded(body), *after]

    def _parameters(
        self, bound: dict[str, str], assigned: set[str], returned: Sequence[cst.BaseExpression], targets: Sequence[str]
    ) -> tuple[dict[str, str], list[Statement]]:
        """What stands for each parameter, and assignments that must come first."""
        direct, before = {}, list[Statement]()
        carried = {code(v): t for v, t in zip(returned, targets, strict=False)}
        for name, value in bound.items():
            alone = list(bound.values()).count(value) == 1
            simple = cst.parse_expression(value)
            plain = isinstance(simple, cst.Name | cst.Integer | cst.Float) or value in ("True", "False", "None")
            if name not in assigned and plain and value not in targets:
                direct[name] = value
            elif carried.get(name) == value and alone:
                direct[name] = value  # it goes in and comes out under the same name
            else:
                direct[name] = fresh(name, self.taken)
                self.taken.add(direct[name])
                before += lines(f"{direct[name]} = {value}")
        return direct, before


class _Substitute(Rename):
    """Renames locals, and puts text in the places of parameters."""

    def __init__(self, direct: dict[str, str], own: dict[str, str]) -> None:
        super().__init__(own)
        self.direct = direct

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        text = self.direct.get(original_node.value)
        if text is None:
            return super().leave_Name(original_node, updated_node)
        return cst.parse_expression(text)  # type: ignore[return-value]


def _call(line: cst.SimpleStatementLine) -> tuple[cst.Call | None, list[str] | None]:
    """The call that a statement is, and the names that it assigns."""
    if len(line.body) != 1:
        return None, None
    small = line.body[0]
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        return small.value, None
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.value, cst.Call):
        target = small.targets[0].target
        elements = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
        if all(isinstance(e, cst.Name) for e in elements):
            return small.value, [code(e) for e in elements]
    return None, None


def _bound(helper: cst.FunctionDef, call: cst.Call) -> dict[str, str] | None:
    """Parameter -> text of its argument."""
    listed = parameters(helper)
    defaults = {p.name.value: code(p.default) for p in helper.params.params if p.default is not None}
    bound = dict(defaults)
    for i, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword else listed[i] if i < len(listed) else ""
        if arg.star or name not in listed:
            return None
        bound[name] = code(arg.value)
    return {n: bound[n] for n in listed} if set(bound) == set(listed) else None


def _statements(helper: cst.FunctionDef) -> tuple[list[Statement], list[cst.BaseExpression]] | None:
    """The body without its docstring and return, and what it returns; None when it returns elsewhere."""
    body = [s for s in cst.ensure_type(helper.body, cst.IndentedBlock).body if isinstance(s, Statement)]
    if body and m.matches(body[0], m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString())])):
        body = body[1:]
    returns = m.findall(helper, m.Return())
    last = m.SimpleStatementLine(body=[m.Return()])
    if not returns:
        return body, []
    if len(returns) > 1 or not body or not m.matches(body[-1], last):
        return None
    value = cst.ensure_type(cst.ensure_type(body[-1], cst.SimpleStatementLine).body[0], cst.Return).value
    if value is None:
        return body[:-1], []
    return body[:-1], [e.value for e in value.elements] if isinstance(value, cst.Tuple) else [value]


def _jitted(function: cst.FunctionDef) -> bool:
    return any(code(d.decorator).split("(")[0].split(".")[-1] == "jit" for d in function.decorators)


def _folded(body: Sequence[Statement]) -> list[Statement]:
    """The statements with every `if` on a literal replaced by its branch."""
    folded: list[Statement] = []
    for s in body:
        done = s.visit(_Fold())
        if isinstance(done, cst.FlattenSentinel):
            folded += [x for x in done if isinstance(x, Statement)]
        elif isinstance(done, Statement):
            folded.append(done)
    return folded


class _Fold(cst.CSTTransformer):
    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        text = code(updated_node)
        return cst.Name(str(text == "not False")) if text in ("not True", "not False") else updated_node

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        test = code(updated_node.test)
        return {"True": updated_node.body, "False": updated_node.orelse}.get(test, updated_node)

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        test = code(updated_node.test)
        if test == "True":
            return cst.FlattenSentinel(_block(updated_node.body))
        if test != "False":
            return updated_node
        if updated_node.orelse is None:
            return cst.RemoveFromParent()
        if isinstance(updated_node.orelse, cst.If):
            return updated_node.orelse
        return cst.FlattenSentinel(_block(updated_node.orelse.body))


def _block(body: cst.BaseSuite) -> list[cst.BaseStatement]:
    return [s for s in cst.ensure_type(body, cst.IndentedBlock).body if isinstance(s, cst.BaseStatement)]


def _without_unused(module: cst.Module, inlined: set[str]) -> cst.Module:
    """The file without inlined helpers that no other statement mentions."""

    def used(name: str) -> bool:
        return any(
            name in names(s) for s in module.body if not (isinstance(s, cst.FunctionDef) and s.name.value == name)
        )

    gone = {n for n in inlined if not used(n)}
    return module.with_changes(
        body=[s for s in module.body if not (isinstance(s, cst.FunctionDef) and s.name.value in gone)]
    )
