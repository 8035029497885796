"""What can be shown of the values in a kernel and the helpers that it calls: one number, a float32, a tile of a dot.

Facts follow names through their reaching definitions (`reach.py`), parameters of helpers to the arguments of all their
calls, and results of helpers to what they return. A fact that cannot be shown is false. Relies on libcst alone.
"""

import math
from collections.abc import Callable, Mapping

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import code, functions, keywords, nodes, reachable
from pgo_agent.agent.moves.analysis.reach import Definition, Definitions, Reach

Fact = Callable[[cst.BaseExpression], bool]
Rule = Callable[[cst.BaseExpression, Fact], bool | None]  # None: what holds for the parts decides
RESHAPING = ("trans", "broadcast_to", "reshape", "view", "expand_dims", "ravel", "flip", "permute")
REDUCING = ("max", "min", "sum")
_FLOAT32_ONLY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "fma", "div_rn", "sqrt_rn")
_ELEMENTWISE = (*_FLOAT32_ONLY, "abs", "where", "maximum", "minimum", "clamp")
_SCALARS = (
    "program_id", "num_programs", "cdiv", "minimum", "maximum", "min", "max", "multiple_of", "load", "where", "sqrt",
    "rsqrt", "exp2", "log2", "float", "int", "abs", "constexpr",
)  # fmt: skip
_ARITHMETIC = cst.Add | cst.Subtract | cst.Multiply | cst.Divide


class Program:
    """A kernel and its helpers, with the reaching definitions of all of them."""

    def __init__(self, module: cst.Module, kernel: str) -> None:
        self.module, self.kernel = module, kernel
        known = functions(module)
        self.reaches = {n: Reach(known[n]) for n in reachable(module, kernel)}
        self._language = _language(module)
        self._reads = {n: found for r in self.reaches.values() for n, found in r.reads.items()}
        self.constants = _constants(module)
        self.calls: dict[str, list[cst.Call]] = {n: [] for n in self.reaches}
        for name in self.reaches:
            for call in (n for n in nodes(known[name].body) if isinstance(n, cst.Call)):
                if isinstance(call.func, cst.Name) and call.func.value in self.calls:
                    self.calls[call.func.value].append(call)

    def definitions(self, name: cst.Name) -> Definitions:
        """What a read may see; nothing for a name of the file or of Python."""
        return self._reads.get(id(name), frozenset())

    def function(self, call: cst.Call) -> str:
        """Name of the function of Triton's language that is called, without its module; "" for any other."""
        head, _, name = code(call.func).rpartition(".")
        return name if head in self._language or head.removesuffix(".math") in self._language else ""

    def method(self, call: cst.Call) -> str:
        """Name of the method of a value that is called, as in `x.to(..)`; "" for any other."""
        if not isinstance(call.func, cst.Attribute) or self.function(call):
            return ""
        base = call.func.value
        while isinstance(base, cst.Attribute):
            base = base.value
        module = isinstance(base, cst.Name) and not self.definitions(base)
        return "" if module else call.func.attr.value

    def helper(self, call: cst.Call) -> str:
        """Name of the helper in the file that is called, or ""."""
        name = code(call.func)
        return name if name in self.reaches else ""

    def bound(self, call: cst.Call) -> dict[str, cst.BaseExpression]:
        """Parameter -> argument of a call of a helper; parameters that keep their default are left out."""
        listed = list(self.reaches[self.helper(call)].parameters)
        if any(a.star for a in call.args) or len(call.args) > len(listed):
            raise DoesNotApply(f"'{code(call.func)}' is called with arguments that are not listed one by one")
        return {a.keyword.value if a.keyword else listed[i]: a.value for i, a in enumerate(call.args)}

    def arguments(self, parameter: Definition) -> list[cst.BaseExpression]:
        """What a helper's parameter may be, at all its calls; empty for a parameter of the kernel."""
        if parameter.function == self.kernel:
            return []
        default = parameter.statement.default if isinstance(parameter.statement, cst.Param) else None
        found = [self.bound(c).get(parameter.name, default) for c in self.calls[parameter.function]]
        return [e for e in found if e is not None]

    def results(self, helper: str, part: int | None) -> list[cst.BaseExpression]:
        """What a helper returns, or one element of it; empty when that cannot be told apart."""
        values = [r.value for r in self.reaches[helper].returns if r.value is not None]
        if part is None:
            return values
        parts = [v.elements[part].value for v in values if isinstance(v, cst.Tuple) and part < len(v.elements)]
        return parts if len(parts) == len(values) else []

    def scalar(self, e: cst.BaseExpression) -> bool:
        """One number (or pointer) for the whole program, of any type."""
        return self._holds(e, self._scalar, any_part=False, parameter=True)

    def wide(self, e: cst.BaseExpression) -> bool:
        """Computed in float32 at least: what multiplies it is not rounded to less."""
        return self._holds(e, self._wide, any_part=True, parameter=False)

    def tile(self, e: cst.BaseExpression) -> bool:
        """Of the full shape of a dot's result."""
        return self._holds(e, self._tile, any_part=True, parameter=False)

    def vector(self, e: cst.BaseExpression) -> bool:
        """A tile of one dimension."""
        return self._holds(e, self._vector, any_part=True, parameter=False)

    def _holds(
        self,
        e: cst.BaseExpression,
        rule: Rule,
        *,
        any_part: bool,
        parameter: bool,
    ) -> bool:
        """Whether a fact follows for an expression. Definitions in a circle hold if nothing else denies them."""
        denied, before = set[Definition](), -1
        while len(denied) > before:
            before = len(denied)
            found = self._follow(rule, any_part, parameter, denied)(e)
        return found

    def _follow(self, rule: Rule, any_part: bool, parameter: bool, denied: set[Definition]) -> Fact:
        """A fact that takes every definition for granted that is not denied; it denies those that it finds false."""
        seen = set[Definition]()

        def fact(e: cst.BaseExpression) -> bool:
            told = rule(e, fact)
            if told is not None:
                return told
            match e:
                case cst.Name():
                    found = self.definitions(e)
                    return all(defined(d) for d in found) if found else parameter
                case cst.UnaryOperation():
                    return fact(e.expression)
                case cst.BinaryOperation():
                    sides = [fact(e.left), fact(e.right)]
                    return any(sides) and isinstance(e.operator, _ARITHMETIC) if any_part else all(sides)
                case cst.IfExp():
                    return fact(e.body) and fact(e.orelse)
            return False

        def defined(d: Definition) -> bool:
            if d not in seen and d not in denied:
                seen.add(d)
                if not self._defined(d, fact, any_part, parameter):
                    denied.add(d)
            return d not in denied

        return fact

    def _defined(self, d: Definition, fact: Fact, any_part: bool, parameter: bool) -> bool:
        if isinstance(d.statement, cst.Param):
            given = self.arguments(d)
            return all(fact(e) for e in given) if given else parameter
        if d.value is None:
            return parameter
        if d.part is not None:
            helper = self.helper(d.value) if isinstance(d.value, cst.Call) else ""
            results = self.results(helper, d.part) if helper else []
            return bool(results) and all(fact(e) for e in results)
        if d.augments:
            sides = [fact(d.augments.target), fact(d.value)] if isinstance(d.augments.target, cst.Name) else [False]
            return any(sides) if any_part else all(sides)
        return fact(d.value)

    def _scalar(self, e: cst.BaseExpression, fact: Fact) -> bool | None:
        match e:
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return True
            case cst.Call():
                if self.method(e) in ("to", "cast") and isinstance(e.func, cst.Attribute):
                    return fact(e.func.value)
                plain = isinstance(e.func, cst.Name) and e.func.value in _SCALARS
                known = plain or code(e.func) == "triton.cdiv" or self.function(e) in _SCALARS
                return known and all(fact(a.value) for a in e.args if not a.keyword)
        return None

    def _vector(self, e: cst.BaseExpression, fact: Fact) -> bool | None:
        match e:
            case cst.BinaryOperation():
                parts = [e.left, e.right]
            case cst.Call() if self.function(e) == "arange":
                return True
            case cst.Call() if self.method(e) in ("to", "cast") and isinstance(e.func, cst.Attribute):
                return fact(e.func.value)
            case cst.Call() if self.function(e) in _SCALARS:
                parts = [a.value for a in e.args if not a.keyword]
            case _:
                return None
        vectors = [fact(p) for p in parts]
        return any(vectors) and all(v or self.scalar(p) for v, p in zip(vectors, parts, strict=True))

    def _wide(self, e: cst.BaseExpression, fact: Fact) -> bool | None:
        if isinstance(e, cst.Subscript):
            return fact(e.value)
        if not isinstance(e, cst.Call):
            return None
        name, first = self.function(e), [a.value for a in e.args]
        if name == "dot":
            return _dot_is_wide(e, fact)
        if name in _FLOAT32_ONLY:
            return True
        if name in ("zeros", "full", "cast") or self.method(e) in ("to", "cast"):
            return any(code(a.value).endswith("float32") for a in e.args)
        if name in (*RESHAPING, *REDUCING, "abs"):
            return bool(first) and fact(first[0])
        if name in ("where", "maximum", "minimum"):
            return any(map(fact, first[name == "where" :]))
        if _libdevice(e):
            return bool(first) and all(map(fact, first))
        return self._result(e, fact)

    def _tile(self, e: cst.BaseExpression, fact: Fact) -> bool | None:
        if not isinstance(e, cst.Call):
            return None
        if self.function(e) == "dot":
            return True
        if self.method(e) in ("to", "cast") and isinstance(e.func, cst.Attribute):
            return fact(e.func.value)
        if self.function(e) in _ELEMENTWISE or _libdevice(e):
            return any(fact(a.value) for a in e.args)
        return self._result(e, fact)

    def _result(self, call: cst.Call, fact: Fact) -> bool:
        results = self.results(self.helper(call), None) if self.helper(call) else []
        return bool(results) and all(map(fact, results))


def _libdevice(call: cst.Call) -> bool:
    """Functions of libdevice work element by element."""
    return code(call.func).split(".")[-2:-1] == ["libdevice"]


def _dot_is_wide(call: cst.Call, fact: Fact) -> bool:
    named = keywords(call)
    if "out_dtype" in named and not code(named["out_dtype"]).endswith("float32"):
        return False
    accumulator = named.get("acc", call.args[2].value if len(call.args) > 2 and not call.args[2].keyword else None)
    return accumulator is None or code(accumulator) == "None" or fact(accumulator)


def _language(module: cst.Module) -> set[str]:
    """The texts that name triton.language in a file."""
    found = {"tl", "triton.language"}
    for alias in (n for n in _outside(module) if isinstance(n, cst.ImportAlias)):
        if alias.asname is not None and code(alias.name) in ("triton.language", "language"):
            found.add(code(alias.asname.name))
    return found


def number(e: cst.BaseExpression, constants: Mapping[str, float]) -> float | None:
    """The number that an expression is, if the source says it."""
    match e:
        case cst.Integer() | cst.Float():
            return float(e.evaluated_value)
        case cst.UnaryOperation(operator=cst.Minus()):
            inner = number(e.expression, constants)
            return None if inner is None else -inner
        case cst.Call(func=cst.Name("float"), args=[cst.Arg(value=cst.SimpleString() as text)]):
            return float(str(text.evaluated_value))
        case cst.Call(args=[cst.Arg(value=value, keyword=None)]) if code(e.func).split(".")[-1] == "constexpr":
            return number(value, constants)
        case cst.Attribute(attr=cst.Name("inf")):
            return math.inf
        case cst.Name():
            return constants.get(e.value)
    return None


def _constants(module: cst.Module) -> dict[str, float]:
    """Numbers that a file names, once each."""
    given: dict[str, list[float | None]] = {}
    for node in _outside(module):
        if isinstance(node, cst.Assign | cst.AnnAssign) and node.value is not None:
            targets = [node.target] if isinstance(node, cst.AnnAssign) else [t.target for t in node.targets]
            for target in targets:
                given.setdefault(code(target), []).append(number(node.value, {}))
    return {name: v[0] for name, v in given.items() if len(v) == 1 and v[0] is not None}


def _outside(module: cst.Module) -> list[cst.CSTNode]:
    """What stands outside of the functions and classes of a file."""
    return [n for s in module.body if not isinstance(s, cst.FunctionDef | cst.ClassDef) for n in nodes(s)]
