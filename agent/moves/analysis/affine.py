"""Where comparisons of indices hold for a whole tile: bounds in the variable of the loop that they stand in.

An index is followed through the reaching definitions (`reach.py`) down to index ranges, the loop's variable and values
that are known before the loop; `index_algebra.py` does the algebra. A vector of indices of which only the name is known
enters with its smallest and largest element, taken at run time. What cannot be followed raises Unknown with the reason.
"""

from dataclasses import dataclass

import libcst as cst
import sympy
from pgo_agent.agent.moves.analysis import index_algebra
from pgo_agent.agent.moves.analysis.cst_util import code, parents
from pgo_agent.agent.moves.analysis.facts import Program
from pgo_agent.agent.moves.analysis.index_algebra import Mask, Poly, Tile, Unknown, Value
from pgo_agent.agent.moves.analysis.loops import Bounds, bounds_of, extents, unrolled
from pgo_agent.agent.moves.analysis.reach import Definition, Definitions, Reach, read_names

_VECTOR = "="  # marks the extent of an axis as the name of a vector: `@0:=rows`


@dataclass(frozen=True)
class Bound:
    """`sign * speed * variable + rest > 0` is when a comparison holds for all elements of a tile."""

    sign: int
    speed: Poly  # positive
    rest: Poly


class Indices:
    """Index arithmetic in one loop, as polynomials of its variable and of what is known before it."""

    def __init__(self, program: Program, reach: Reach, loop: cst.For) -> None:
        self.program, self.reach, self.loop = program, reach, loop
        self.variable = index_algebra.symbol(cst.ensure_type(loop.target, cst.Name).value)
        self.entry = reach.entry[id(loop)]
        self._parents = parents(reach.function)
        self._extents = extents(reach.function)
        self._open = set[Definition]()

    def bound(self, comparison: cst.Comparison, holds: bool) -> Bound | None:
        """When a comparison of rows with columns holds (or fails) for all elements; None when it is of another kind."""
        found = self._evaluate(comparison)
        if not isinstance(found, Mask) or len(found.positive) != 1:
            raise Unknown(f"'{code(comparison)}' is no comparison")
        positive = found.positive[0].value
        if self.variable not in positive.free_symbols or len(index_algebra.axes(positive)) < 2:
            return None
        return self._bound(sympy.expand(positive if holds else 1 - positive))

    def _bound(self, positive: Poly) -> Bound:
        smallest = self._smallest(positive)
        whole = sympy.Poly(smallest, self.variable)
        if whole.degree() != 1:
            raise Unknown(f"the comparison is not linear in {self.variable}")
        speed, rest = whole.all_coeffs()
        for sign in (1, -1):
            if self._positive(sign * speed):
                return Bound(sign, sign * speed, rest)
        raise Unknown(f"the sign of {speed} is not known")

    def _smallest(self, value: Poly) -> Poly:
        """The smallest element of a tile."""
        for axis, extent in index_algebra.axes(value).values():
            factor = value.coeff(axis, 1)
            if not factor.is_Integer or axis in sympy.expand(value - factor * axis).free_symbols:
                raise Unknown("the comparison is not of plain indices")
            at = extent.removeprefix(_VECTOR)
            if extent.startswith(_VECTOR):
                edge = index_algebra.symbol(f"tl.min({at})" if factor > 0 else f"tl.max({at})")
            else:
                edge = sympy.Integer(0) if factor > 0 else self.known(cst.parse_expression(at)) - 1
            value = sympy.expand(value.subs(axis, edge))
        return value

    def known(self, e: cst.BaseExpression, name: str = "") -> Poly:
        """A number that is known before the loop, over the names that it is written with, or by a name for it."""
        env = {n.value: Tile(index_algebra.symbol(n.value), 0) for n in read_names(e)}
        try:
            return index_algebra.tile(_line(e), env).value
        except Unknown:
            if name:
                return index_algebra.symbol(name)
            raise

    def positive(self, e: cst.BaseExpression) -> bool:
        """Whether the source shows that a number is positive."""
        try:
            return self._positive(self.known(e))
        except (Unknown, SyntaxError):
            return False

    def _positive(self, value: Poly) -> bool:
        coefficient, factors = value.as_coeff_mul()
        return coefficient.is_positive and all(f.is_Symbol and self._counts(f.name) for f in factors)

    def _counts(self, name: str) -> bool:
        """The extent of a range is positive."""
        found = [d for d in self.reach.definitions if d.name == name]
        if len(found) > 1:
            return False
        if name in self._extents:
            return True
        if found and found[0].value is not None and found[0].part is None:
            return self.positive(found[0].value)
        given = self.program.arguments(found[0]) if found and found[0].value is None else []
        callers = set[str]().union(*(extents(r.function) for r in self.program.reaches.values()))
        return bool(given) and all(code(e) in callers or _literal(e) > 0 for e in given)

    # following names --------------------------------------------------------------------------------------------------

    def _evaluate(self, e: cst.BaseExpression) -> Value:
        read = list(read_names(e))
        env = {n.value: self._name(n) for n in read}
        try:
            found = index_algebra.evaluate(_line(e), env)
        except SyntaxError:
            raise Unknown(f"'{_line(e)}' is not index arithmetic") from None
        for name in {n for v in _polynomials(found) for s in v.free_symbols for n in _opaque(s.name)}:
            if any(n.value == name and not self._kept(n) for n in read):
                raise Unknown(f"{name} is not known before the loop")
        return found

    def _kept(self, name: cst.Name) -> bool:
        """Whether a name holds before the loop, and throughout it, what is read here."""
        found = self.program.definitions(name)
        return not found or found == self.entry.get(name.value)

    def _name(self, name: cst.Name) -> Value | Unknown:
        found = self.program.definitions(name)
        if not found:
            return Tile(index_algebra.symbol(name.value), 0)  # a constant of the file
        try:
            return self._value(name, found)
        except Unknown as e:
            if not self._kept(name):
                return e
        if self.program.scalar(name):
            return Tile(index_algebra.symbol(name.value), 0)
        if self.program.vector(name):
            return Tile(index_algebra.axis(0, _VECTOR + name.value), 1)
        return Unknown(f"{name.value} is not index arithmetic")

    def _value(self, name: cst.Name, found: Definitions) -> Value:
        if len(found) > 1:
            return self._advancing(name, found)
        (d,) = found
        if d.statement is self.loop:
            return Tile(self.variable, 0)
        if d.value is None or d.augments or d.part is not None or d in self._open:
            raise Unknown(f"{name.value} is not index arithmetic")
        self._open.add(d)
        try:
            value = self._evaluate(d.value)
        finally:
            self._open.discard(d)
        shown = isinstance(value, Tile) and not value.rank and self._kept(name)
        return Tile(index_algebra.symbol(name.value), 0) if shown else value

    def _advancing(self, name: cst.Name, found: Definitions) -> Value:
        """A name that every iteration moves on by a multiple of the loop's step, after it is read."""
        before = self.entry.get(name.value, frozenset())
        moves = found - before
        steps = [d.augments for d in moves if d.augments and isinstance(d.augments.operator, cst.AddAssign)]
        if not before < found or len(before) != 1 or len(moves) != 1 or not steps or not self._each_time(steps[0]):
            raise Unknown(f"{name.value} changes from iteration to iteration")
        (start,) = before
        if start.value is None or start.augments or start.part is not None:
            raise Unknown(f"{name.value} changes from iteration to iteration")
        first, by = self._evaluate(start.value), self._evaluate(steps[0].value)
        low, _, step = bounds(self.loop)
        if not isinstance(first, Tile) or not isinstance(by, Tile) or by.rank:
            raise Unknown(f"{name.value} changes from iteration to iteration")
        times = sympy.cancel(by.value / self.known(step))
        if not times.is_polynomial():
            raise Unknown(f"{name.value} does not move on by a multiple of the loop's step")
        return Tile(sympy.expand(first.value + times * (self.variable - self.known(low))), first.rank)

    def _each_time(self, statement: cst.CSTNode) -> bool:
        """Whether a statement stands in the body of the loop itself."""
        line = self._parents[id(statement)]
        return self._parents[id(self._parents[id(line)])] is self.loop


def bounds(loop: cst.For) -> Bounds:
    """Start, stop and step of a loop that runs. Raises Unknown for another loop."""
    found = bounds_of(loop)
    if found is None or unrolled(loop):
        raise Unknown("a loop that is not over a range")
    return found


def _polynomials(value: Value) -> list[Poly]:
    return [t.value for t in value.positive] if isinstance(value, Mask) else [value.value]


def _opaque(text: str) -> set[str]:
    """The names in a symbol that stands for more than one name."""
    inner = text.partition(":")[2] if text.startswith("@") else text
    if inner.startswith(_VECTOR) or (text == inner and text.isidentifier()):
        return set()
    return {n.value for n in read_names(cst.parse_expression(inner))}


def _literal(e: cst.BaseExpression) -> int:
    return int(e.value, 0) if isinstance(e, cst.Integer) else 0


def _line(e: cst.BaseExpression) -> str:
    return " ".join(code(e).split())
