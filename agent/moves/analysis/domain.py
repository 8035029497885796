"""Grows the domain of scaled scores over a kernel and its helpers, from one exponential after the other.

It carries the rules of `scores.py` from the expressions to the statements, until no further name joins the domain.
"""

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import said
from pgo_agent.agent.moves.analysis.facts import Program
from pgo_agent.agent.moves.analysis.groups import Groups
from pgo_agent.agent.moves.analysis.kinds import factors_of
from pgo_agent.agent.moves.analysis.reach import Definition
from pgo_agent.agent.moves.analysis.scores import Edit, Rules


class Domain:
    """`edits` is what to do for the exponentials that were taken."""

    def __init__(self, program: Program) -> None:
        self.program, self.groups = program, Groups(program)
        self.rules = Rules(program, self.groups)

    @property
    def edits(self) -> dict[int, Edit]:
        return self.rules.edits

    def take(self, exponential: cst.Call) -> None:
        """Brings an exponential, and all that hangs together with it, into base 2. Raises DoesNotApply."""
        if id(exponential) in self.edits:
            return
        before = set(self.groups.inside), dict(self.edits)
        folds, conversions = self._folds(), self._conversions()
        self.rules.taken.append(exponential)
        try:
            self._close()
            joins = folds and self._conversions() <= conversions
            if self._folds() == folds and not joins:
                raise DoesNotApply(f"no scale multiplies what goes into '{said(exponential)}'")
        except DoesNotApply:
            self.rules.taken.pop()
            self.groups.inside, self.rules.edits = before
            raise

    def _folds(self) -> int:
        return sum(e.kind == "fold" for e in self.edits.values())

    def _conversions(self) -> int:
        return sum(e.kind in ("in", "out") for e in self.edits.values())

    def _close(self) -> None:
        size = -1
        while len(self.groups.inside) > size:
            size = len(self.groups.inside)
            self.rules.edits = {}
            for call in self.rules.taken:
                self.rules.exponential(call)
            for reach in self.program.reaches.values():
                for d in reach.definitions:
                    self._definition(d)
                for e in reach.evaluated.values():
                    self.rules.out(e)
                for r in reach.returns:
                    self._return(reach.name, r.value)

    def _definition(self, d: Definition) -> None:
        inside = self.groups.has(d)
        if d.value is None:
            if inside:
                self._entering(d)
        elif d.augments:
            self._augmented(d, d.augments, inside)
        elif d.part is None:
            self.rules.visit(d.value, inside)
        elif isinstance(d.value, cst.Call) and self.program.helper(d.value):
            self.rules.arguments(d.value)
        elif inside:
            raise DoesNotApply(f"{d.name} is unpacked from '{said(d.value)}'")
        else:
            self.rules.out(d.value)

    def _entering(self, d: Definition) -> None:
        if not isinstance(d.statement, cst.Param):
            raise DoesNotApply(f"the loop's variable {d.name} goes into an exponential")
        if d.function == self.program.kernel or d.statement.default is not None:
            raise DoesNotApply(f"the range of the parameter {d.name} is not known")

    def _augmented(self, d: Definition, statement: cst.AugAssign, inside: bool) -> None:
        target = cst.ensure_type(statement.target, cst.Name)
        value, before = statement.value, self.program.definitions(target)
        was_inside, scale = self.groups.has_name(target), self.rules.scale(factors_of(statement.value))
        product = isinstance(statement.operator, cst.MultiplyAssign)
        if not (inside or was_inside):
            self.rules.out(value)
        elif isinstance(statement.operator, cst.AddAssign | cst.SubtractAssign):
            self.groups.add([d, *before])
            self.rules.into(value)
        elif product and not was_inside and scale is not None:
            others = [f for f in factors_of(value) if f is not scale]
            for f in others:
                self.rules.plain(f)
            self.rules.fold(scale, [target, *others])
        elif product or isinstance(statement.operator, cst.DivideAssign):
            self.groups.add([d, *before])
            self.rules.plain(value)
        else:
            raise DoesNotApply(f"'{said(statement)}' is no arithmetic of scores")

    def _return(self, function: str, value: cst.BaseExpression | None) -> None:
        if value is None:
            return
        parts = self.groups.parts(function)
        if isinstance(value, cst.Tuple):
            for i, element in enumerate(value.elements):
                self.rules.visit(element.value, i in parts)
        elif parts:
            raise DoesNotApply(f"{function} returns '{said(value)}', whose parts are not told apart")
        else:
            self.rules.visit(value, self.groups.has(self.groups.slot(function, None)))
