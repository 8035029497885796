"""The rules of the domain of scaled scores: what an expression must become where its value, or not, is in base 2.

A value in the domain is multiplied by log2(e): sums, maxima, selections and products with other numbers stay in it, an
exponential leads out of it, and one factor of what leads into it takes the log2(e). Values that are used otherwise are
multiplied by ln(2) on the way out. Every use of every name in the domain must be one of these, or DoesNotApply says
which is not. Relies on `facts.py` for types and on `groups.py` for names; it changes nothing, but notes the edits.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import code, said
from pgo_agent.agent.moves.analysis.facts import RESHAPING, Program
from pgo_agent.agent.moves.analysis.groups import Groups
from pgo_agent.agent.moves.analysis.kinds import KEPT, Kinds, expressions, factors_of

LARGEST = 3.4028234663852886e38 / 1.4426950408889634  # a larger constant would become infinite
_SMOOTH = (
    "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "erf", "tanh", "fma", "store", "atomic_add",
    "device_print", *KEPT,
)  # fmt: skip
_HARMLESS = {"axis", "keep_dims", "dtype", "propagate_nan", "shape", "dim", "can_reorder"}


@dataclass(frozen=True)
class Edit:
    """What becomes of one node: `in` and `out` of the domain, `fold` of log2(e), `exp2` or `log2` of the call."""

    kind: str
    node: cst.CSTNode
    wide: bool = True  # `in`: already float32


class Rules(Kinds):
    """Visits expressions; names join the domain on the way, so that a visit must be repeated until none does."""

    def __init__(self, program: Program, groups: Groups) -> None:
        super().__init__(program, groups)
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
        if (value := self.constant(e)) is not None:
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
        if not self.groups.has_name(e) and all(self.given(d, self.loaded) for d in found):
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

    def fold(self, factor: cst.BaseExpression, others: Iterable[cst.BaseExpression]) -> None:
        if not any(self.program.wide(f) for f in others):
            product = " * ".join(said(f) for f in (*others, factor))
            raise DoesNotApply(f"'{product}' may be rounded to less than float32")
        self._edit("fold", factor)

    def _call_into(self, e: cst.Call) -> None:
        name, helper = self.program.function(e), self.program.helper(e)
        if name == "log":
            self._out_arguments(e)
            self._edit("log2", e)
        elif name in KEPT:
            for i, arg in enumerate(e.args):
                filled = arg.keyword is not None and arg.keyword.value == "value" and name == "full"
                if arg.keyword and arg.keyword.value not in _HARMLESS and not filled:
                    raise DoesNotApply(f"'{said(e)}' has an argument {arg.keyword.value}")
                self.visit(arg.value, filled or (i in KEPT[name] and not arg.keyword))
        elif name == "load" or (self.widens(e) and self.loaded(e)):
            self._out_arguments(e)
            self._edit("in", e, self.program.wide(e))
        elif self.widens(e) and isinstance(e.func, cst.Attribute):
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
                for child in expressions(e):
                    self.out(child)

    def plain(self, e: cst.BaseExpression) -> None:
        """What multiplies or divides a score is no score itself."""
        if self.weight(e):
            raise DoesNotApply(f"'{said(e)}' multiplies or divides another score")
        self.out(e)

    def _comparison(self, e: cst.Comparison) -> None:
        sides = [e.left, *(c.comparator for c in e.comparisons)]
        if not any(self.mentions(s) for s in sides):
            return
        numbers = [self.constant(s) for s in sides]
        free = [s for s, n in zip(sides, numbers, strict=True) if n is None or (n and math.isfinite(n))]
        if len({code(s) for s in free}) != 1 or not self.weight(free[0]):
            raise DoesNotApply(f"'{said(e)}' compares scores with other numbers: rounding could change what it finds")
        for side in free:
            self.into(side)

    def _call_out(self, e: cst.Call) -> None:
        name, helper = self.program.function(e), self.program.helper(e)
        inside = any(self.mentions(a.value) for a in e.args)
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
