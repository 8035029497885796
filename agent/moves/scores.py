"""The rules of the domain of scaled scores: what an expression must become where its value, or not, is in base 2.

A value in the domain is multiplied by log2(e): sums, maxima, selections and products with other numbers stay in it, an
exponential leads out of it, and one factor of what leads into it takes the log2(e). Values that are used otherwise are
multiplied by ln(2) on the way out. Every use of every name in the domain must be one of these, or DoesNotApply says
which is not. Relies on `facts.py` for types and on `groups.py` for names; it changes nothing, but notes the edits.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import libcst as cst
from pgo_agent.agent.moves.base import DoesNotApply
from pgo_agent.agent.moves.facts import RESHAPING, Program, number
from pgo_agent.agent.moves.groups import Groups
from pgo_agent.agent.moves.reach import Definition, read_names
from pgo_agent.agent.moves.syntax import code, parts, said

LARGEST = 3.4028234663852886e38 / 1.4426950408889634  # a larger constant would become infinite
_KEPT = {
    "max": (0,), "min": (0,), "sum": (0,), "maximum": (0, 1), "minimum": (0, 1), "where": (1, 2), "abs": (0,),
    "full": (1,), "full_like": (1,), "zeros": (), "zeros_like": (), **dict.fromkeys(RESHAPING, (0,)),
}  # fmt: skip
_SMOOTH = (
    "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "erf", "tanh", "fma", "store", "atomic_add",
    "device_print", *_KEPT,
)  # fmt: skip
_HARMLESS = {"axis", "keep_dims", "dtype", "propagate_nan", "shape", "dim", "can_reorder"}


@dataclass(frozen=True)
class Edit:
    """What becomes of one node: `in` and `out` of the domain, `fold` of log2(e), `exp2` or `log2` of the call."""

    kind: str
    node: cst.CSTNode
    wide: bool = True  # `in`: already float32


class Rules:
    """Visits expressions; names join the domain on the way, so that a visit must be repeated until none does."""

    def __init__(self, program: Program, groups: Groups) -> None:
        self.program, self.groups = program, groups
        self.edits: dict[int, Edit] = {}
        self.taken: list[cst.Call] = []  # exponentials that must be in base 2

    def visit(self, e: cst.BaseExpression, inside: bool) -> None:
        if inside:
            self.into(e)
        else:
            self.out(e)

    def _edit(self, kind: str, node: cst.CSTNode, wide: bool = True) -> None:
        self.edits[id(node)] = Edit(kind, node, wide)

    # into the domain --------------------------------------------------------------------------------------------------

    def into(self, e: cst.BaseExpression) -> None:
        """The expression must give a value in the domain."""
        if (value := self._constant(e)) is not None:
            if value and math.isfinite(value):
                if abs(value) > LARGEST:
                    raise DoesNotApply(f"{said(e)} times log2(e) is beyond float32")
                self._edit("in", e)
            return
        match e:
            case cst.Name():
                self._name(e)
            case cst.UnaryOperation(operator=cst.Minus() | cst.Plus()):
                self.into(e.expression)
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract()):
                self.into(e.left)
                self.into(e.right)
            case cst.BinaryOperation(operator=cst.Multiply()):
                self._product(e)
            case cst.BinaryOperation(operator=cst.Divide()):
                self.into(e.left)
                self.plain(e.right)
            case cst.IfExp():
                self.out(e.test)
                self.into(e.body)
                self.into(e.orelse)
            case cst.Subscript() if all(code(s.slice) in (":", "None") for s in e.slice):
                self.into(e.value)
            case cst.Call():
                self._call_into(e)
            case _:
                raise DoesNotApply(f"'{said(e)}' goes into an exponential and is no arithmetic of scores")

    def _name(self, e: cst.Name) -> None:
        found = self.program.definitions(e)
        if not found:
            raise DoesNotApply(f"nothing is known of {e.value}, which goes into an exponential")
        if not self.groups.has_name(e) and all(self._given(d, self._loaded) for d in found):
            self._edit("in", e, self.program.wide(e))
        else:
            self.groups.add(found)

    def _product(self, e: cst.BinaryOperation) -> None:
        factors = factors_of(e)
        inside = [f for f in factors if self.weight(f)]
        chosen = inside[0] if inside else self.scale(factors)
        if chosen is None:
            raise DoesNotApply(f"'{said(e)}' has no factor that is one float32 number for log2(e) to be folded into")
        others = [f for f in factors if f is not chosen]
        for f in others:
            self.plain(f)
        if inside:
            self.into(chosen)
        else:
            self.fold(chosen, others)

    def scale(self, factors: Iterable[cst.BaseExpression]) -> cst.BaseExpression | None:
        """The factor that can take the log2(e): a name sooner than a literal."""
        scales = [f for f in factors if self.factor(f)]
        return min(scales, key=lambda f: (self._constant(f) is not None, not isinstance(f, cst.Name)), default=None)

    def fold(self, factor: cst.BaseExpression, others: Iterable[cst.BaseExpression]) -> None:
        if not any(self.program.wide(f) for f in others):
            product = " * ".join(said(f) for f in (*others, factor))
            raise DoesNotApply(f"'{product}' may be rounded to less than float32")
        self._edit("fold", factor)

    def factor(self, e: cst.BaseExpression) -> bool:
        """One number in float32 (or an integer, or a constant): the product with log2(e) is rounded in float32."""
        match e:
            case cst.Name():
                found = self.program.definitions(e)
                return all(self._number(d) for d in found) if found else self._constant(e) is not None
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

    def _call_into(self, e: cst.Call) -> None:
        name, helper = self.program.function(e), self.program.helper(e)
        if name == "log":
            self._out_arguments(e)
            self._edit("log2", e)
        elif name in _KEPT:
            for i, arg in enumerate(e.args):
                filled = arg.keyword is not None and arg.keyword.value == "value" and name == "full"
                if arg.keyword and arg.keyword.value not in _HARMLESS and not filled:
                    raise DoesNotApply(f"'{said(e)}' has an argument {arg.keyword.value}")
                self.visit(arg.value, filled or (i in _KEPT[name] and not arg.keyword))
        elif name == "load" or (self._widens(e) and self._loaded(e)):
            self._out_arguments(e)
            self._edit("in", e, self.program.wide(e))
        elif self._widens(e) and isinstance(e.func, cst.Attribute):
            self.into(e.func.value)
        elif helper:
            self.groups.add([self.groups.slot(helper, None)])
            self.arguments(e)
        elif name == "dot":
            raise DoesNotApply(f"'{said(e)}' goes into an exponential without a scale (scaling an operand rounds it)")
        else:
            raise DoesNotApply(f"'{said(e)}' goes into an exponential and is no arithmetic of scores")

    # out of it --------------------------------------------------------------------------------------------------------

    def out(self, e: cst.BaseExpression) -> None:
        """The expression must give what it gave before."""
        match e:
            case cst.Name():
                if self.groups.has_name(e):
                    self._edit("out", e)
            case cst.Comparison():
                self._comparison(e)
            case cst.Call():
                self._call_out(e)
            case _:
                for child in _expressions(e):
                    self.out(child)

    def plain(self, e: cst.BaseExpression) -> None:
        """What multiplies or divides a score is no score itself."""
        if self.weight(e):
            raise DoesNotApply(f"'{said(e)}' multiplies or divides another score")
        self.out(e)

    def _comparison(self, e: cst.Comparison) -> None:
        sides = [e.left, *(c.comparator for c in e.comparisons)]
        if not any(self._mentions(s) for s in sides):
            return
        numbers = [self._constant(s) for s in sides]
        free = [s for s, n in zip(sides, numbers, strict=True) if n is None or (n and math.isfinite(n))]
        if len({code(s) for s in free}) != 1 or not self.weight(free[0]):
            raise DoesNotApply(f"'{said(e)}' compares scores with other numbers: rounding could change what it finds")
        for side in free:
            self.into(side)

    def _call_out(self, e: cst.Call) -> None:
        name, helper = self.program.function(e), self.program.helper(e)
        inside = any(self._mentions(a.value) for a in e.args)
        if name == "exp" and (e in self.taken or self.weight(e.args[0].value)):
            self.exponential(e)
        elif helper:
            self.arguments(e)
            if self.groups.has(self.groups.slot(helper, None)):
                self._edit("out", e)
        elif name in ("max", "min", "sum", *RESHAPING) and inside and self.weight(e.args[0].value):
            self._call_into(e)
            self._edit("out", e)
        elif inside and name not in _SMOOTH and self.program.method(e) not in ("to", "cast"):
            raise DoesNotApply(f"'{said(e)}' is given scores and could answer to their rounding")
        elif name != "zeros_like":
            if isinstance(e.func, cst.Attribute):
                self.out(e.func.value)
            self._out_arguments(e)

    def exponential(self, e: cst.Call) -> None:
        if len(e.args) != 1:
            raise DoesNotApply(f"'{said(e)}' has more than one argument")
        self.into(e.args[0].value)
        self._edit("exp2", e)

    def _out_arguments(self, e: cst.Call) -> None:
        for arg in e.args:
            self.out(arg.value)

    def arguments(self, e: cst.Call) -> None:
        """The arguments of a helper's call, each as its parameter is."""
        parameters = self.program.reaches[self.program.helper(e)].parameters
        for name, value in self.program.bound(e).items():
            self.visit(value, name in parameters and self.groups.has(parameters[name]))

    # what an expression is --------------------------------------------------------------------------------------------

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
                if self._widens(e) and isinstance(e.func, cst.Attribute):
                    return self.weight(e.func.value)
                places = _KEPT.get(self.program.function(e), ())
                return any(self.weight(a.value) for i, a in enumerate(e.args) if i in places and not a.keyword)
        return False

    def _mentions(self, e: cst.BaseExpression) -> bool:
        return self.weight(e) or any(self._mentions(c) for c in _expressions(e))

    def _given(self, d: Definition, fact: Callable[[cst.BaseExpression], bool]) -> bool:
        """Whether a fact holds for all that a definition may give."""
        if isinstance(d.statement, cst.Param):
            given = self.program.arguments(d)
            return bool(given) and all(map(fact, given))
        return not d.augments and d.part is None and d.value is not None and fact(d.value)

    def _loaded(self, e: cst.BaseExpression) -> bool:
        """Whether an expression is what was read from memory."""
        match e:
            case cst.Name():
                found = self.program.definitions(e)
                return bool(found) and not self.groups.has_name(e) and all(self._given(d, self._loaded) for d in found)
            case cst.Subscript():
                return self._loaded(e.value)
            case cst.IfExp():
                return self._loaded(e.body) and self._loaded(e.orelse)
            case cst.Call(func=cst.Attribute() as func):
                return self.program.function(e) == "load" or (self._widens(e) and self._loaded(func.value))
        return False

    def _widens(self, call: cst.Call) -> bool:
        return self.program.method(call) in ("to", "cast") and [code(a.value) for a in call.args] == ["tl.float32"]

    def _constant(self, e: cst.BaseExpression) -> float | None:
        """The number that an expression is, if the source says it."""
        if isinstance(e, cst.Name) and (found := self.program.definitions(e)):
            values = {number(d.value, {}) if d.value and not d.augments and d.part is None else None for d in found}
            return values.pop() if len(values) == 1 and not self.groups.has_name(e) else None
        local = any(self.program.definitions(n) for n in read_names(e))
        return None if local else number(e, self.program.constants)


def _expressions(e: cst.CSTNode) -> list[cst.BaseExpression]:
    """The nearest expressions below a node, as they are evaluated."""
    found: list[cst.BaseExpression] = []
    below = [e.value] if isinstance(e, cst.Attribute | cst.Arg) else parts(e)
    for child in below:
        found += [child] if isinstance(child, cst.BaseExpression) else _expressions(child)
    return found


def factors_of(e: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The factors of a product, from left to right."""
    if isinstance(e, cst.BinaryOperation) and isinstance(e.operator, cst.Multiply):
        return [*factors_of(e.left), *factors_of(e.right)]
    return [e]
