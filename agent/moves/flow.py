"""Follows index arithmetic through a function, statement by statement: what every `tl.load` in a loop addresses.

Names hold polynomials (`tiles.py`). A name that is assigned anew makes what was computed from it unknown; a name that
a loop only advances by a constant step is a polynomial of the loop's variable. Relies on libcst for the statements;
helpers must have been inlined before (`inline.py`).
"""

import ast
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m
import sympy
from pgo_agent.agent.moves import tiles
from pgo_agent.agent.moves.syntax import called, code, parameters, writes
from pgo_agent.agent.moves.tiles import Mask, Poly, Tile, Unknown, Value

RANGES = ("range", "tl.range", "tl.static_range")
_HINTS = {"eviction_policy", "cache_modifier", "mask", "other"}


@dataclass(frozen=True)
class Load:
    """A `tl.load`, and where it stands."""

    call: cst.Call
    pointer: Tile
    mask: Mask | None
    loops: tuple[cst.For, ...]  # outermost first
    line: cst.SimpleStatementLine | None  # its statement, if that is a simple one


@dataclass
class Flow:
    """What is known after walking a function."""

    function: cst.FunctionDef
    loads: list[Load] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # why a load cannot be followed
    moved: dict[str, list[Poly]] = field(default_factory=dict)  # parameter -> what was added to it
    wide: set[str] = field(default_factory=set)  # names of 64 bits
    _env: dict[str, Value | Unknown] = field(default_factory=dict)
    _loops: list[cst.For] = field(default_factory=list)
    _line: cst.SimpleStatementLine | None = None

    def __post_init__(self) -> None:
        self.parameters = parameters(self.function)
        self.numbers = used_as_numbers(self.function)
        self._env = {n: Tile(tiles.symbol(n), 0) for n in self.parameters}
        self._walk(self.function.body)

    def _walk(self, body: cst.CSTNode) -> None:
        for statement in getattr(body, "body", ()):
            self._line = statement if isinstance(statement, cst.SimpleStatementLine) else None
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    self._small(small)
            elif isinstance(statement, cst.If):
                self._branches(statement)
            elif isinstance(statement, cst.For):
                self._loop(statement)
            elif isinstance(statement, cst.BaseStatement):
                self._forget(writes(statement), "assigned in a form that is not followed")

    def _small(self, small: cst.BaseSmallStatement) -> None:
        self._note_loads(small)
        match small:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                self._assign(name, value)
            case cst.AnnAssign(target=cst.Name(value=name), value=cst.BaseExpression() as value):
                self._assign(name, value)
            case cst.AugAssign(target=cst.Name(value=name), operator=cst.AddAssign(), value=value):
                self._advance(name, value)
            case _:
                self._forget(writes(small), "assigned in a form that is not followed")

    def _assign(self, name: str, value: cst.BaseExpression) -> None:
        found = self._evaluate(value)
        if "int64" in code(value):
            self.wide.add(name)
        self._forget({name}, "assigned")
        self._env[name] = self._opaque(name, found, value)

    def _advance(self, name: str, value: cst.BaseExpression) -> None:
        found = self._evaluate(value)
        before = self._env.get(name, Unknown(f"nothing is known of {name}"))
        if name in self.parameters and isinstance(found, Tile) and found.rank == 0 and not self._loops:
            self.moved.setdefault(name, []).append(found.value)
            self._forget({name}, "assigned")
            self._env[name] = Tile(tiles.symbol(name), 0)
            return
        whole = self._evaluate(cst.BinaryOperation(cst.Name(name), cst.Add(), cst.parse_expression(f"({code(value)})")))
        self._forget({name}, "assigned")
        self._env[name] = whole if isinstance(before, Tile) else Unknown(f"{name} changes from iteration to iteration")

    def _opaque(self, name: str, found: Value | Unknown, value: cst.BaseExpression) -> Value | Unknown:
        """A scalar whose value has no name of its own goes by the name that it is assigned to."""
        scalar_load = isinstance(value, cst.Call) and called(value) == "load" and self._scalar_pointer(value)
        if scalar_load or (isinstance(found, Tile) and found.rank == 0 and self._unnamed(name, found.value)):
            return Tile(tiles.symbol(name), 0)
        return found

    def _unnamed(self, name: str, value: Poly) -> bool:
        return name in self.parameters or any(not s.name.isidentifier() or s.name == name for s in value.free_symbols)

    def _scalar_pointer(self, call: cst.Call) -> bool:
        found = self._evaluate(call.args[0].value)
        return (
            isinstance(found, Tile)
            and found.rank == 0
            and "mask" not in [a.keyword and a.keyword.value for a in call.args]
        )

    def _evaluate(self, value: cst.BaseExpression) -> Value | Unknown:
        try:
            return tiles.evaluate(code(value), self._env)
        except Unknown as e:
            return e
        except (SyntaxError, RecursionError) as e:
            return Unknown(str(e))

    def _forget(self, assigned: set[str], why: str) -> None:
        """Drops what was known of these names, and all that was computed from them."""
        for other, known in self._env.items():
            if isinstance(known, Tile | Mask) and other not in assigned and mentions(known) & assigned:
                self._env[other] = Unknown(f"{', '.join(sorted(mentions(known) & assigned))} is assigned anew")
        self._env |= {n: Unknown(f"{n} is {why}") for n in assigned}

    def _branches(self, statement: cst.If) -> None:
        self._note_loads(statement.test)
        before = dict(self._env)
        self._walk(statement.body)
        after, self._env = self._env, before
        if isinstance(statement.orelse, cst.If):
            self._branches(statement.orelse)
        elif statement.orelse is not None:
            self._walk(statement.orelse.body)
        other = self._env
        self._env = {
            n: after[n] if after.get(n) == other.get(n) else Unknown(f"{n} differs between branches")
            for n in {*after, *other}
            if n in after and n in other
        }

    def _loop(self, loop: cst.For) -> None:
        assigned = writes(loop.body)
        if not isinstance(loop.target, cst.Name):
            self._forget(writes(loop), "assigned in a form that is not followed")
            return
        variable = loop.target.value
        advanced = {n: self._induction(n, loop, assigned) for n in assigned - {variable}}
        after = assigned | {variable}
        self._forget(after, "assigned in a loop")
        self._env |= advanced | {variable: Tile(tiles.symbol(variable), 0)}
        self._loops.append(loop)
        self._walk(loop.body)
        self._loops.pop()
        self._forget(after, "assigned in a loop")

    def _induction(self, name: str, loop: cst.For, assigned: set[str]) -> Value | Unknown:
        """The value at the head of the loop's body of a name that every iteration advances by the same."""
        by = advance(name, loop)
        start, bounds = self._env.get(name), bounds_of(loop)
        if by is None or bounds is None or not isinstance(start, Tile):
            return Unknown(f"{name} changes from iteration to iteration")
        step, low = self._evaluate(bounds[2]), self._evaluate(bounds[0])
        delta = self._evaluate(by)
        parts = (step, low, delta)
        if not all(isinstance(x, Tile) for x in parts) or any(
            mentions(x) & assigned for x in parts if isinstance(x, Tile)
        ):
            return Unknown(f"{name} advances by what is not known before the loop")
        variable = tiles.symbol(code(loop.target))
        times = sympy.cancel(delta.value / step.value)  # type: ignore[union-attr]
        if not times.is_polynomial():
            return Unknown(f"{name} does not advance by a multiple of the loop's step")
        return Tile(sympy.expand(start.value + times * (variable - low.value)), start.rank)  # type: ignore[union-attr]

    def _note_loads(self, node: cst.CSTNode) -> None:
        for found in m.findall(node, m.Call()):
            call = cst.ensure_type(found, cst.Call)
            if (
                called(call) == "load"
                and isinstance(call.func, cst.Attribute)
                and code(call.func.value) in ("tl", "triton.language")
            ):
                try:
                    self.loads.append(self._load(call))
                except Unknown as e:
                    self.refused.append(str(e))

    def _load(self, call: cst.Call) -> Load:
        given = dict(zip(("pointer", "mask", "other"), (a.value for a in call.args if a.keyword is None), strict=False))
        given |= {a.keyword.value: a.value for a in call.args if a.keyword is not None}
        if set(given) - _HINTS - {"pointer"}:
            raise Unknown(f"a load with {', '.join(sorted(set(given) - _HINTS - {'pointer'}))}")
        pointer = tiles.tile(code(given["pointer"]), self._env)
        if "mask" not in given or code(given["mask"]) == "None":
            return Load(call, pointer, None, tuple(self._loops), self._line)
        mask = tiles.evaluate(code(given["mask"]), self._env)
        if not isinstance(mask, Mask):
            raise Unknown("a mask that is not a comparison of indices")
        if "other" in given and code(given["other"]) not in ("0", "0.0", "None", "0."):
            raise Unknown("a load that puts something other than zero where the mask is false")
        return Load(call, pointer, mask, tuple(self._loops), self._line)


def mentions(known: Value) -> set[str]:
    """The names that a value's text would read."""
    values = [t.value for t in known.positive] if isinstance(known, Mask) else [known.value]
    return {n for v in values for s in v.free_symbols for n in identifiers(s.name)}


def used_as_numbers(function: cst.FunctionDef) -> set[str]:
    """Names that are multiplied, divided, compared or bound a range: these are no pointers."""
    found = set[str]()
    products = m.Multiply() | m.FloorDivide() | m.Modulo() | m.Divide()
    for node in m.findall(function.body, m.BinaryOperation(operator=products)):
        operation = cst.ensure_type(node, cst.BinaryOperation)
        found |= {e.value for e in (operation.left, operation.right) if isinstance(e, cst.Name)}
    for node in m.findall(function.body, m.Comparison()):
        found |= {n.value for n in m.findall(node, m.Name()) if isinstance(n, cst.Name)}
    for node in m.findall(function.body, m.Call()):
        call = cst.ensure_type(node, cst.Call)
        if code(call.func) in RANGES or called(call) in ("cdiv", "arange"):
            found |= {n.value for n in m.findall(call, m.Name()) if isinstance(n, cst.Name)}
    return found


def identifiers(text: str) -> set[str]:
    plain = text.split(":", 1)[1] if text.startswith("@") else text
    return {n.id for n in ast.walk(ast.parse(plain, mode="eval")) if isinstance(n, ast.Name)}


def bounds_of(loop: cst.For) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression] | None:
    """Start, stop and step of a loop over a range; None for another loop."""
    call = loop.iter
    if not isinstance(call, cst.Call) or code(call.func) not in RANGES or loop.orelse:
        return None
    args = [a.value for a in call.args if a.keyword is None and not a.star]
    zero, one = cst.Integer("0"), cst.Integer("1")
    if len(args) == 1:
        return zero, args[0], one
    return (args[0], args[1], args[2] if len(args) == 3 else one) if len(args) in (2, 3) else None


def advance(name: str, loop: cst.For) -> cst.BaseExpression | None:
    """What a loop's body adds to a name, if `name += x` at its top is all that it does to it."""
    body = [s for s in cst.ensure_type(loop.body, cst.IndentedBlock).body if name in writes(s)]
    if len(body) != 1 or not isinstance(body[0], cst.SimpleStatementLine) or len(body[0].body) != 1:
        return None
    match body[0].body[0]:
        case cst.AugAssign(operator=cst.AddAssign(), value=value):
            return value
        case cst.Assign(value=cst.BinaryOperation(left=cst.Name(value=left), operator=cst.Add(), right=right)) if (
            left == name
        ):
            return right
    return None
