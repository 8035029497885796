"""The masks of a loop: which `tl.where` select scores by comparing rows with columns, and what hangs on them.

A comparison counts when `affine.py` gives its bound and a `tl.where` of scores depends on it, directly or over names
and `&`, `|`, `~`. Everything that a comparison or a name made from it is used for must then be such a selection, or a
condition of which something remains; else DoesNotApply says what is not. Relies on `facts.py` for shapes.
"""

from dataclasses import dataclass, field

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.affine import Bound, Indices
from pgo_agent.agent.moves.analysis.cst_format import operand
from pgo_agent.agent.moves.analysis.cst_util import code, constexprs, nodes, parents, said
from pgo_agent.agent.moves.analysis.facts import Program, number
from pgo_agent.agent.moves.analysis.index_algebra import Unknown
from pgo_agent.agent.moves.analysis.reach import Definition, Reach, read_names


@dataclass(frozen=True)
class Condition:
    """An `if` on constants that the masks are under."""

    statement: cst.If
    holds: bool  # whether they are in its body, or in its else

    @property
    def test(self) -> cst.BaseExpression:
        return self.statement.test

    @property
    def text(self) -> str:
        return operand(self.test) if self.holds else f"not {operand(self.test)}"


@dataclass
class Masks:
    """The masks of one loop."""

    program: Program
    truth: dict[int, bool] = field(default_factory=dict)  # id of a comparison -> what it is where nothing is masked
    bounds: list[Bound] = field(default_factory=list)
    conditions: tuple[Condition, ...] = ()

    def value(self, e: cst.BaseExpression, seen: frozenset[Definition] = frozenset()) -> bool | None:
        """What a condition is, for all elements, where nothing is masked; None when that is not certain."""
        match e:
            case cst.Comparison():
                return self.truth.get(id(e))
            case cst.BinaryOperation(operator=cst.BitAnd() | cst.BitOr() as operator):
                return combined(operator, self.value(e.left, seen), self.value(e.right, seen))
            case cst.UnaryOperation(operator=cst.BitInvert() | cst.Not()):
                inner = self.value(e.expression, seen)
                return None if inner is None else not inner
            case cst.Name():
                values = {self.defined(d, seen) for d in self.program.definitions(e)}
                return values.pop() if len(values) == 1 else None
        return None

    def defined(self, d: Definition, seen: frozenset[Definition] = frozenset()) -> bool | None:
        if d.value is None or d.part is not None or d in seen:
            return None
        value = self.value(d.value, seen | {d})
        if d.augments is None:
            return value
        target = cst.ensure_type(d.augments.target, cst.Name)
        return combined(d.augments.operator, self.value(target, seen | {d}), value)


def combined(operator: cst.CSTNode, left: bool | None, right: bool | None) -> bool | None:
    """What `&` or `|` makes of two conditions."""
    if not isinstance(operator, cst.BitAnd | cst.BitAndAssign | cst.BitOr | cst.BitOrAssign):
        return None
    decides = isinstance(operator, cst.BitOr | cst.BitOrAssign)
    return decides if decides in (left, right) else left if left == right else None


# finding --------------------------------------------------------------------------------------------------------------


def find(program: Program, reach: Reach, loop: cst.For, indices: Indices) -> Masks | None:
    """The masks of a loop, or None when it has none. Raises DoesNotApply or Unknown for one that is not understood."""
    return _Finder(program, reach, loop, indices).find()


class _Finder:
    def __init__(self, program: Program, reach: Reach, loop: cst.For, indices: Indices) -> None:
        self.program, self.reach, self.loop, self.indices = program, reach, loop, indices
        self.parents = parents(loop)
        self.masks = Masks(program)
        self.conditions: list[tuple[Condition, ...]] = []
        self.unknown: list[str] = []

    def find(self) -> Masks | None:
        selections = [c for c in nodes(self.loop.body) if isinstance(c, cst.Call) and self._selects(c)]
        for call in selections:
            if (kept := self._kept(call)) is not None:
                self._claim(call.args[0].value, kept == 1, call, frozenset())
        if not self.masks.truth:
            if self.unknown:
                raise Unknown(self.unknown[0])
            return None
        for call in selections:
            self._selection(call)
        self._uses()
        self.masks.conditions = self._shared()
        return self.masks

    def _selects(self, call: cst.Call) -> bool:
        return self.program.function(call) == "where" and len(call.args) == 3 and not any(a.keyword for a in call.args)

    def _kept(self, call: cst.Call) -> int | None:
        """Which argument a selection keeps where nothing is masked."""
        one, other = call.args[1].value, call.args[2].value
        tiles = self.program.tile(one), self.program.tile(other)
        zeros = self._zero(one), self._zero(other)
        if tiles[0] != tiles[1]:
            return 1 if tiles[0] else 2
        return (1 if zeros[0] else 2) if not any(tiles) and zeros[0] != zeros[1] else None

    def _zero(self, e: cst.BaseExpression) -> bool:
        return number(e, {}) == 0

    def _claim(self, e: cst.BaseExpression, wanted: bool, at: cst.Call, seen: frozenset[Definition]) -> None:
        """Finds the comparisons that a condition is made of, and what they must be for it to mask nothing."""
        match e:
            case cst.BinaryOperation(operator=cst.BitAnd() | cst.BitOr()):
                self._claim(e.left, wanted, at, seen)
                self._claim(e.right, wanted, at, seen)
            case cst.UnaryOperation(operator=cst.BitInvert() | cst.Not()):
                self._claim(e.expression, not wanted, at, seen)
            case cst.Name():
                for d in self.program.definitions(e) - seen:
                    if d.value is not None and d.part is None and id(d.statement) in self.parents:
                        self._claim(d.value, wanted, at, seen | {d})
                        if d.augments:
                            self._claim(cst.ensure_type(d.augments.target, cst.Name), wanted, at, seen | {d})
            case cst.Comparison():
                self._comparison(e, wanted, at)

    def _comparison(self, e: cst.Comparison, wanted: bool, at: cst.Call) -> None:
        try:
            bound = self.indices.bound(e, wanted)
        except Unknown as reason:
            if sum(isinstance(n, cst.Subscript) and "None" in code(n) for n in nodes(e)) > 1:  # rows with columns
                self.unknown.append(f"'{said(e)}' cannot be bounded: {reason}")
            return
        if bound is None:
            return
        if self.masks.truth.setdefault(id(e), wanted) != wanted:
            raise DoesNotApply(f"'{said(e)}' masks in two senses")
        self.masks.bounds.append(bound)
        self.conditions.append(_both(self._above(e), self._above(at)))

    # what the masks are used for --------------------------------------------------------------------------------------

    def _selection(self, call: cst.Call) -> None:
        """What is selected where nothing is masked must be of the shape and type of the selection itself."""
        value = self.masks.value(call.args[0].value)
        if value is None:
            return
        kept, other = (call.args[1].value, call.args[2].value)[:: 1 if value else -1]
        addend = self._added_to(call) if self._zero(kept) else None
        whole = kept if addend is None else addend
        if not self.program.tile(whole):
            raise DoesNotApply(f"'{said(whole)}' is not known to have the shape of its mask")
        if not self.program.wide(whole) and (addend is not None or number(other, {}) is None):
            raise DoesNotApply(f"'{said(whole)}' may have another type than its selection")

    def _added_to(self, call: cst.Call) -> cst.BaseExpression | None:
        """What a selection is added to, or subtracted from."""
        above = self.parents[id(call)]
        if isinstance(above, cst.AugAssign) and isinstance(above.operator, cst.AddAssign | cst.SubtractAssign):
            return above.target if isinstance(above.target, cst.Name) else None
        if isinstance(above, cst.BinaryOperation):
            if isinstance(above.operator, cst.Add):
                return above.right if above.left is call else above.left
            if isinstance(above.operator, cst.Subtract) and above.right is call:
                return above.left
        return None

    def _uses(self) -> None:
        made = self._made()
        for name in (n for n in read_names(self.reach.function.body) if self.program.definitions(n) & made):
            if any(id(d.statement) not in self.parents for d in self.program.definitions(name)):
                raise DoesNotApply(f"{name.value} is carried from one iteration to the next")
            if not self._consumed(name):
                raise DoesNotApply(f"{name.value} is used for more than to select")
        for comparison in (n for n in nodes(self.loop.body) if id(n) in self.masks.truth):
            if not self._consumed(comparison):
                raise DoesNotApply(f"'{said(comparison)}' is used for more than to select")

    def _made(self) -> set[Definition]:
        """The names for conditions that a mask's comparison is part of."""
        made, size = set[Definition](), -1
        while len(made) > size:
            size = len(made)
            made |= {d for d in self.reach.definitions if any(self._depends(p, made) for p in _conditions(d))}
        return made

    def _depends(self, part: cst.BaseExpression, made: set[Definition]) -> bool:
        named = isinstance(part, cst.Name) and bool(self.program.definitions(part) & made)
        return named or id(part) in self.masks.truth

    def _consumed(self, node: cst.CSTNode) -> bool:
        """Whether a condition ends in a selection, in a name for it, or in a mask of which something is left."""
        above = self.parents.get(id(node))
        while above is not None and _combines(above):
            node, above = above, self.parents.get(id(above))
        if isinstance(above, cst.AugAssign):
            return isinstance(above.operator, cst.BitAndAssign | cst.BitOrAssign)
        if isinstance(above, cst.Assign | cst.AnnAssign):
            return True
        call = self.parents.get(id(above))
        if not isinstance(above, cst.Arg) or not isinstance(call, cst.Call) or not isinstance(node, cst.BaseExpression):
            return False
        if self._selects(call):
            return call.args[0] is above
        mask = above.keyword is not None and above.keyword.value == "mask"
        return mask and self.program.function(call) in ("load", "store") and self.masks.value(node) is None

    # what they are under ----------------------------------------------------------------------------------------------

    def _above(self, node: cst.CSTNode) -> tuple[Condition, ...]:
        found = list[Condition]()
        while node is not self.loop:
            above = self.parents[id(node)]
            if isinstance(above, cst.IfExp):
                raise DoesNotApply(f"the mask is part of '{said(above)}'")
            if isinstance(above, cst.If) and node is not above.test:
                found.append(Condition(above, node is above.body))
            node = above
        return tuple(reversed(found))

    def _shared(self) -> tuple[Condition, ...]:
        """The conditions of the masks; the first mask's when they have several. One without any needs none."""
        conditions = min(self.conditions, key=len)
        fixed = constexprs(self.reach.function)
        for c in conditions:
            own = [n for n in read_names(c.test) if self.program.definitions(n)]
            if not all(n.value in fixed for n in own):
                raise DoesNotApply(f"whether it masks is decided at run time, by '{said(c.test)}'")
        return conditions


def _conditions(d: Definition) -> list[cst.BaseExpression]:
    """The parts of a condition that a name is given."""
    own = [cst.ensure_type(d.augments.target, cst.Name)] if d.augments else []
    return [*own, *_condition(d.value)] if d.value is not None else []


def _condition(e: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The parts of a condition, down to its comparisons."""
    match e:
        case cst.BinaryOperation(operator=cst.BitAnd() | cst.BitOr()):
            return [*_condition(e.left), *_condition(e.right)]
        case cst.UnaryOperation(operator=cst.BitInvert() | cst.Not()):
            return _condition(e.expression)
    return [e]


def _combines(node: cst.CSTNode) -> bool:
    """Whether a node makes one condition of others."""
    if isinstance(node, cst.BinaryOperation):
        return isinstance(node.operator, cst.BitAnd | cst.BitOr)
    return isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert | cst.Not)


def _both(one: tuple[Condition, ...], other: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return one + tuple(c for c in other if c not in one)
