"""Follows index arithmetic through a function, statement by statement: what every `tl.load` in a loop addresses.

Names hold polynomials (`index_algebra.py`) and signs (`nonnegative.py`). A name that is assigned anew makes what was
computed from it unknown; a name that a loop only advances by a constant step is a polynomial of the loop's variable.
Relies on libcst for the statements; helpers must have been inlined before, and every statement must stand on a line of
its own (`inline.py`). Indices are taken to fit in 32 bits, as descriptors count.
"""

from dataclasses import dataclass, field

import libcst as cst
import sympy
from pgo_agent.agent.moves.analysis import index_algebra, nonnegative
from pgo_agent.agent.moves.analysis.cst_util import called, code, constexprs, names, nodes, parameters, parts, writes
from pgo_agent.agent.moves.analysis.index_algebra import Mask, Poly, Tile, Unknown, Value, mentions
from pgo_agent.agent.moves.analysis.load_site import Branch, Load, addressed
from pgo_agent.agent.moves.analysis.loops import advance, bounds_of, extents, used_as_numbers
from pgo_agent.agent.moves.analysis.nonnegative import Sign

_LANGUAGE = ("tl", "triton.language")
_NEVER = (cst.Integer("0"), cst.Integer("0"), cst.Integer("1"))
_NARROW = {"program_id", "num_programs", "cdiv", "minimum", "maximum", "min", "max", "arange", "multiple_of"}


@dataclass
class IndexFlow:
    """What is known after walking a function."""

    function: cst.FunctionDef
    loads: list[Load] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # why a load cannot be followed
    moved: dict[str, list[Poly]] = field(default_factory=dict)  # pointer parameter -> what was added to it
    reassigned: set[str] = field(default_factory=set)  # parameters that no longer hold what the launch gave
    wide: set[str] = field(default_factory=set)  # names that may be of 64 bits
    _env: dict[str, Value | Unknown] = field(default_factory=dict)
    _signs: dict[str, Sign] = field(default_factory=dict)
    _starts: dict[str, tuple[Poly, Poly]] = field(default_factory=dict)
    _loops: list[cst.For] = field(default_factory=list)
    _path: list[Branch] = field(default_factory=list)
    _line: cst.SimpleStatementLine | None = None

    def __post_init__(self) -> None:
        self.parameters = parameters(self.function)
        written = writes(self.function.body)
        self.constants = constexprs(self.function) - written
        self.sizes = extents(self.function) & self.constants  # a power of two each
        self.numbers = used_as_numbers(self.function)
        self._env = {n: Tile(index_algebra.symbol(n), 0) for n in self.parameters}
        self._signs = {n: nonnegative.NONE if n in self.sizes else frozenset({n}) for n in self.parameters}
        self._walk(self.function.body)

    def given(self, names: set[str]) -> bool:
        """Tell whether names stand for what the launch gave the kernel, everywhere in it."""
        return names <= set(self.parameters) - self.reassigned - set(self.moved)

    def _walk(self, body: cst.CSTNode) -> None:
        for statement in getattr(body, "body", ()):
            self._line = statement if isinstance(statement, cst.SimpleStatementLine) else None
            match statement:
                case cst.SimpleStatementLine(body=smalls):
                    for small in smalls:
                        self._small(small)
                case cst.If():
                    self._branches(statement)
                case cst.For(target=cst.Name(value=variable), orelse=None) if bounds_of(statement) is not None:
                    self._loop(statement, variable)
                case _:
                    self._forget(writes(statement), "assigned in a form that is not followed")

    def _small(self, small: cst.BaseSmallStatement) -> None:
        self._note_loads(small)
        match small:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                self._assign({name: value})
            case cst.AnnAssign(target=cst.Name(value=name), value=cst.BaseExpression() as value):
                self._assign({name: value})
            case cst.AugAssign(target=cst.Name(value=name), operator=cst.AddAssign(), value=value):
                self._assign({name: cst.parse_expression(f"{name} + ({code(value)}\n)")})
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple() as names)], value=cst.Tuple() as values):
                self._assign_all(names, values)
            case _:
                self._forget(writes(small), "assigned in a form that is not followed")

    def _assign_all(self, targets: cst.Tuple, values: cst.Tuple) -> None:
        """`x, y = a, b`: all is computed before anything is assigned."""
        plain = all(isinstance(e, cst.Element) for e in (*targets.elements, *values.elements))
        pairs = {t.value.value: v.value for t, v in zip(targets.elements, values.elements, strict=False)
                 if isinstance(t.value, cst.Name)}  # fmt: skip
        if plain and len(pairs) == len(targets.elements) == len(values.elements):
            self._assign(pairs)
        else:
            self._forget(
                writes(cst.Assign([cst.AssignTarget(targets)], values)), "assigned in a form that is not followed"
            )

    def _assign(self, pairs: dict[str, cst.BaseExpression]) -> None:
        new = {n: (self._evaluate(v), self._number(v), self._sign(v)) for n, v in pairs.items()}
        moves = {n: m for n, (value, _, _) in new.items() if (m := self._move(n, value)) is not None}
        moves = moves if len(pairs) == 1 else {}
        self.wide |= {n for n, v in pairs.items() if self._may_be_wide(v)}
        self._forget(set(pairs), "assigned", moved=bool(moves))
        for name, (value, number, sign) in new.items():
            self._signs[name] = sign
            self._env[name] = (
                Tile(index_algebra.symbol(name), 0) if moves else self._named(name, value, number, set(pairs))
            )
        for name, move in moves.items():
            self.moved.setdefault(name, []).append(move)

    def _move(self, name: str, value: Value | Unknown) -> Poly | None:
        """What is added to a pointer parameter outside of loops; None for any other assignment."""
        if name not in self.parameters or name in self.reassigned or self._loops or not isinstance(value, Tile):
            return None
        rest = sympy.expand(value.value - index_algebra.symbol(name))
        return rest if value.rank == 0 and name not in mentions(Tile(rest, 0)) else None

    def _named(self, name: str, value: Value | Unknown, number: bool, assigned: set[str]) -> Value | Unknown:
        """A number whose value has no name of its own goes by the name that it is assigned to."""
        if isinstance(value, Unknown):
            return Tile(index_algebra.symbol(name), 0) if number else value
        stale = bool(mentions(value) & assigned)
        if not isinstance(value, Tile) or value.rank > 0:
            return Unknown(f"{name} is computed from its own value before") if stale else value
        unnamed = any(not s.name.isidentifier() for s in value.value.free_symbols)
        return Tile(index_algebra.symbol(name), 0) if stale or (unnamed and not self._based(value)) else value

    def _based(self, value: Tile) -> bool:
        """Whether a value may be a pointer."""
        return bool({s.name for s in value.value.free_symbols} & set(self.parameters) - self.numbers)

    def _number(self, value: cst.BaseExpression) -> bool:
        """Whether an expression, maybe with loads, is one number: it has a value, but may not be written twice."""
        match value:
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract() | cst.Multiply() | cst.FloorDivide()):
                return self._number(value.left) and self._number(value.right)
            case cst.Call(func=cst.Attribute(value=of, attr=cst.Name(value="to")), args=[cst.Arg(value=kind)]):
                return code(kind) in ("tl.int32", "tl.int64") and self._number(of)
            case cst.Call(args=[cst.Arg(value=pointer, keyword=None, star="")]) if called(value) == "load":
                place = self._evaluate(pointer)
                return isinstance(place, Tile) and place.rank == 0
        result = self._evaluate(value)
        return isinstance(result, Tile) and result.rank == 0 and not self._based(result)

    def _may_be_wide(self, value: cst.BaseExpression) -> bool:
        calls = {called(n) for n in nodes(value) if isinstance(n, cst.Call)}
        return "int64" in code(value) or bool(names(value) & self.wide or calls - _NARROW)

    def _evaluate(self, value: cst.BaseExpression) -> Value | Unknown:
        try:
            return index_algebra.evaluate(code(value), self._env)
        except Unknown as e:
            return e

    def _sign(self, value: cst.BaseExpression) -> Sign:
        return nonnegative.sign(index_algebra.parse(code(value)), self._signs)

    def _forget(self, assigned: set[str], why: str, *, moved: bool = False) -> None:
        """Drops what was known of these names, and all that was computed from them."""
        for other, held in self._env.items():
            if isinstance(held, Tile | Mask) and other not in assigned and mentions(held) & assigned:
                self._env[other] = Unknown(f"{', '.join(sorted(mentions(held) & assigned))} is assigned anew")
        self._env |= {n: Unknown(f"{n} is {why}") for n in assigned}
        self._signs |= dict.fromkeys(assigned)
        self._starts = {n: s for n, s in self._starts.items() if n not in assigned}
        if not moved:
            self.reassigned |= assigned & set(self.parameters)

    def _branches(self, statement: cst.If) -> None:
        self._note_loads(statement.test)
        test = self._constant(statement.test)
        before = dict(self._env), dict(self._signs)
        self._path.append(Branch(id(statement), test, True))
        self._walk(statement.body)
        after = self._env, self._signs
        self._path[-1] = Branch(id(statement), test, False)
        self._env, self._signs = before
        if isinstance(statement.orelse, cst.If):
            self._branches(statement.orelse)
        elif statement.orelse is not None:
            self._walk(statement.orelse.body)
        self._path.pop()
        self._meet(*after)

    def _constant(self, test: cst.BaseExpression) -> str | None:
        """The text of a test that the compiler decides."""
        return code(test) if names(test) <= self.constants | {"True", "False", "None"} else None

    def _meet(self, env: dict[str, Value | Unknown], signs: dict[str, Sign]) -> None:
        """What holds after either of two branches."""
        both = env.keys() & self._env.keys()
        self._env = {n: _either(n, env[n], self._env[n]) for n in both}
        self._signs = {n: nonnegative.every(signs.get(n), self._signs.get(n)) for n in {*signs, *self._signs}}

    def _loop(self, loop: cst.For, variable: str) -> None:
        low, high, step = bounds_of(loop) or _NEVER
        assigned = writes(loop.body)
        advanced = {n: self._induction(n, loop, assigned | {variable}) for n in assigned - {variable}}
        sign = nonnegative.least(nonnegative.every(self._sign(low), self._upward(step)), self._downward(high, step))
        start = self._evaluate(low), self._evaluate(step)
        if any(map(self._may_be_wide, (low, high, step))):
            self.wide.add(variable)
        self._forget(assigned | {variable}, "assigned in a loop")
        self._env |= advanced | {variable: Tile(index_algebra.symbol(variable), 0)}
        self._signs[variable] = sign
        if isinstance(start[0], Tile) and isinstance(start[1], Tile):
            self._starts[variable] = start[0].value, start[1].value
        self._loops.append(loop)
        self._walk(loop.body)
        self._loops.pop()
        self._forget(assigned | {variable}, "assigned in a loop")

    def _upward(self, step: cst.BaseExpression) -> Sign:
        """Under which condition a loop counts upwards: Triton counts down by a compile-time constant only."""
        if nonnegative.positive(index_algebra.parse(code(step)), self._signs, self.sizes):
            return nonnegative.NONE
        sign = self._sign(step)
        running = set(self.parameters) - constexprs(self.function)
        return nonnegative.NONE if sign is None and names(step) & running else sign

    def _downward(self, high: cst.BaseExpression, step: cst.BaseExpression) -> Sign:
        """Under which condition a loop that counts down by a compile-time constant stays above -1."""
        if not isinstance(step, cst.UnaryOperation) or not isinstance(step.operator, cst.Minus):
            return None
        down = nonnegative.positive(index_algebra.parse(code(step.expression)), self._signs, self.sizes)
        stop = nonnegative.NONE if code(high) == "-1" else self._sign(high)
        return stop if down else None

    def _induction(self, name: str, loop: cst.For, changing: set[str]) -> Value | Unknown:
        """The value at the head of the loop's body of a name that every iteration advances by the same."""
        by, bounds, start = advance(name, loop), bounds_of(loop), self._env.get(name)
        if isinstance(start, Unknown):
            return start
        if by is None or bounds is None or not isinstance(start, Tile):
            return Unknown(f"{name} changes from iteration to iteration")
        values = [self._evaluate(e) for e in (bounds[0], bounds[2], by)]
        tiles = [x for x in values if isinstance(x, Tile)]
        if len(tiles) < 3 or names(by) & changing or any(mentions(x) & changing for x in (start, *tiles)):
            return Unknown(f"{name} advances by what is not known before the loop")
        low, step, delta = (x.value for x in tiles)
        times = sympy.cancel(delta / step)
        if not times.is_polynomial():
            return Unknown(f"{name} does not advance by a multiple of the loop's step")
        variable = index_algebra.symbol(code(loop.target))
        return Tile(sympy.expand(start.value + times * (variable - low)), max(start.rank, tiles[2].rank))

    def _note_loads(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.IfExp):
            self._note_loads(node.test)
            test = self._constant(node.test)
            for taken, part in ((True, node.body), (False, node.orelse)):
                self._path.append(Branch(id(node), test, taken))
                self._note_loads(part)
                self._path.pop()
            return
        for below in parts(node):
            self._note_loads(below)
        if isinstance(node, cst.Call) and called(node) == "load" and code(node.func)[: -len(".load")] in _LANGUAGE:
            try:
                self.loads.append(self._load(node))
            except Unknown as e:
                self.refused.append(str(e))

    def _load(self, call: cst.Call) -> Load:
        pointer, mask = addressed(call, self._env)
        symbols = {s.name for t in (pointer, *(mask.positive if mask else ())) for s in t.value.free_symbols}
        signs = {n: nonnegative.sign(index_algebra.parse(n), self._signs) for n in symbols if not n.startswith("@")}
        path = tuple(self._path)
        return Load(call, pointer, mask, tuple(self._loops), self._line, path, signs, dict(self._starts))


def _either(name: str, one: Value | Unknown, other: Value | Unknown) -> Value | Unknown:
    """What a name holds after either of two branches: a number goes by the name itself."""
    if one == other:
        return one
    numbers = isinstance(one, Tile) and isinstance(other, Tile) and one.rank == other.rank == 0
    return Tile(index_algebra.symbol(name), 0) if numbers else Unknown(f"{name} differs between branches")
