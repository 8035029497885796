"""What an expression is to the domain of scaled scores: in it as it stands, a factor for its scale, a loaded value.

Relies on `facts.py` for types, and on `groups.py` for which names are in the domain by now.
"""

from collections.abc import Callable, Iterable

import libcst as cst
from pgo_agent.agent.moves.analysis.cst_util import code, parts
from pgo_agent.agent.moves.analysis.facts import RESHAPING, Program, number
from pgo_agent.agent.moves.analysis.groups import Groups
from pgo_agent.agent.moves.analysis.reach import Definition, read_names

KEPT = {
    "max": (0,), "min": (0,), "sum": (0,), "maximum": (0, 1), "minimum": (0, 1), "where": (1, 2), "abs": (0,),
    "full": (1,), "full_like": (1,), "zeros": (), "zeros_like": (), **dict.fromkeys(RESHAPING, (0,)),
}  # fmt: skip


class Kinds:
    def __init__(self, program: Program, groups: Groups) -> None:
        self.program, self.groups = program, groups

    def weight(self, e: cst.BaseExpression) -> bool:
        """Whether an expression gives a value in the domain as it stands."""
        match e:
            case cst.Name():
                return self.groups.has_name(e)
            case cst.UnaryOperation():
                return self.weight(e.expression)
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract() | cst.Multiply()):
                return self.weight(e.left) or self.weight(e.right)
            case cst.BinaryOperation(operator=cst.Divide()):
                return self.weight(e.left) and not self.weight(e.right)
            case cst.IfExp():
                return self.weight(e.body) or self.weight(e.orelse)
            case cst.Subscript():
                return self.weight(e.value)
            case cst.Call():
                if helper := self.program.helper(e):
                    return self.groups.has(self.groups.slot(helper, None))
                if self.widens(e) and isinstance(e.func, cst.Attribute):
                    return self.weight(e.func.value)
                places = KEPT.get(self.program.function(e), ())
                return any(self.weight(a.value) for i, a in enumerate(e.args) if i in places and not a.keyword)
        return False

    def mentions(self, e: cst.BaseExpression) -> bool:
        """Whether a value in the domain is part of an expression."""
        return self.weight(e) or any(self.mentions(c) for c in expressions(e))

    def given(self, d: Definition, fact: Callable[[cst.BaseExpression], bool]) -> bool:
        """Whether a fact holds for all that a definition may give."""
        if isinstance(d.statement, cst.Param):
            given = self.program.arguments(d)
            return bool(given) and all(map(fact, given))
        return not d.augments and d.part is None and d.value is not None and fact(d.value)

    def loaded(self, e: cst.BaseExpression) -> bool:
        """Whether an expression is what was read from memory."""
        match e:
            case cst.Name():
                found = self.program.definitions(e)
                return bool(found) and not self.groups.has_name(e) and all(self.given(d, self.loaded) for d in found)
            case cst.Subscript():
                return self.loaded(e.value)
            case cst.IfExp():
                return self.loaded(e.body) and self.loaded(e.orelse)
            case cst.Call(func=cst.Attribute() as func):
                return self.program.function(e) == "load" or (self.widens(e) and self.loaded(func.value))
        return False

    def widens(self, call: cst.Call) -> bool:
        """Whether a call makes a float32 of its value."""
        return self.program.method(call) in ("to", "cast") and [code(a.value) for a in call.args] == ["tl.float32"]

    def constant(self, e: cst.BaseExpression) -> float | None:
        """The number that an expression is, if the source says it."""
        if isinstance(e, cst.Name) and (found := self.program.definitions(e)):
            values = {number(d.value, {}) if d.value and not d.augments and d.part is None else None for d in found}
            return values.pop() if len(values) == 1 and not self.groups.has_name(e) else None
        local = any(self.program.definitions(n) for n in read_names(e))
        return None if local else number(e, self.program.constants)

    def scale(self, factors: Iterable[cst.BaseExpression]) -> cst.BaseExpression | None:
        """The factor that can take the log2(e): a name sooner than a literal."""
        scales = [f for f in factors if self.factor(f)]
        return min(scales, key=lambda f: (self.constant(f) is not None, not isinstance(f, cst.Name)), default=None)

    def factor(self, e: cst.BaseExpression) -> bool:
        """One number in float32 (or an integer, or a constant): the product with log2(e) is rounded in float32."""
        match e:
            case cst.Name():
                found = self.program.definitions(e)
                return all(self._number(d) for d in found) if found else self.constant(e) is not None
            case cst.Integer() | cst.Float():
                return True
            case cst.UnaryOperation():
                return self.factor(e.expression)
            case cst.BinaryOperation():
                return self.factor(e.left) and self.factor(e.right)
            case cst.Call():
                known = self.program.function(e) in ("sqrt", "rsqrt", "exp2", "log2") or code(e.func) == "float"
                return known and all(self.factor(a.value) for a in e.args)
        return False

    def _number(self, d: Definition) -> bool:
        if isinstance(d.statement, cst.Param):
            kind = code(d.statement.annotation.annotation) if d.statement.annotation else ""
            given = self.program.arguments(d)
            return (not kind or "constexpr" in kind or "float32" in kind) and all(self.factor(e) for e in given)
        return not d.augments and d.part is None and d.value is not None and self.factor(d.value)


def expressions(e: cst.CSTNode) -> list[cst.BaseExpression]:
    """The nearest expressions below a node, as they are evaluated."""
    found: list[cst.BaseExpression] = []
    below = [e.value] if isinstance(e, cst.Attribute | cst.Arg) else parts(e)
    for child in below:
        found += [child] if isinstance(child, cst.BaseExpression) else expressions(child)
    return found


def factors_of(e: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The factors of a product, from left to right."""
    if isinstance(e, cst.BinaryOperation) and isinstance(e.operator, cst.Multiply):
        return [*factors_of(e.left), *factors_of(e.right)]
    return [e]
