"""Turns indices that wrap around, `offs % M`, into masked ones, where nobody sees the rows past the end.

Many kernels, written after Triton's tutorial, load rows past M anew from the beginning, and do not store what comes of
them. A descriptor does not wrap around: it reads zeros past the end. So `offs % M` becomes `offs`, and each load gets
the mask `offs < M`. This needs a proof: such a row goes through `tl.dot` into a row of its own, from there through
nothing but arithmetic element by element, also with a vector that is loaded by the same rows (scales of fp8), and into
stores whose mask leaves it out. What is not proven stays as it is. Relies on libcst and `def_use.py`; helpers must have
been inlined before.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

import libcst as cst
from pgo_agent.agent.moves.analysis import single_names
from pgo_agent.agent.moves.analysis.cst_util import code, expression, keywords, names, nodes, visited
from pgo_agent.agent.moves.analysis.def_use import DefUse, target
from pgo_agent.agent.moves.analysis.modulo_indices import Wrapped, scalars, wrapped_indices, wrapped_names

_OF_LOAD = {"pointer", "mask", "other", "eviction_policy", "cache_modifier"}
_ZEROS = {"0", "0.0", "0."}
_ELEMENTWISE = {
    f"{library}.{name}"
    for library in ("tl", "tl.math")
    for name in ("cast", "where", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "maximum", "minimum", "sigmoid")
}
_PLACES = {"[:, None]": 0, "[None, :]": 1}


class _Seen(Exception):
    """Somebody may see a row past the end."""


def unwrapped(function: cst.FunctionDef) -> cst.FunctionDef:
    """Return the kernel without the wrapped indices of which that can be shown."""
    apart = single_names.split(function, wrapped_names(function))
    changed = apart
    for wrapped in list(wrapped_indices(apart)):
        try:
            changed = _Unwrap(changed, wrapped).result()
        except _Seen:
            continue
    return function if changed is apart else changed


class _Unwrap(DefUse):
    """One wrapped index of a kernel. Raises _Seen where a row past the end may be seen."""

    def __init__(self, function: cst.FunctionDef, wrapped: Wrapped) -> None:
        super().__init__(function)
        self.wrapped, self.stored = wrapped, False
        self.places = set[str]()  # how the index stands in addresses: [:, None] or [None, :]
        self.vectors = list[cst.Call]()  # loads of one dimension, by the index itself

    def result(self) -> cst.FunctionDef:
        pointers, loads = self._of_index()
        for name in pointers:
            loads += self._of_pointer(name)
        if len(self.places) != 1 or not loads:
            raise _Seen
        (self.place,) = self.places
        results = {r for load in loads for r in self._of_load(load)}
        self._follow(results | {r for load in self.vectors for r in self._of_vector(load)})
        if not self.stored:
            raise _Seen
        places = {id(x): self.place for x in loads} | {id(x): "" for x in self.vectors}
        return visited(self.function, _Masks(self.wrapped, places))

    # addresses --------------------------------------------------------------------------------------------------------

    def _of_index(self) -> tuple[set[str], list[cst.Call]]:
        """The pointers that are computed from the index, and the loads that it is used in itself."""
        pointers, loads = set[str](), list[cst.Call]()
        for n in self.reads(self.wrapped.name):
            subscript = self.above[id(n)]
            place = code(subscript).removeprefix(n.value)
            if not isinstance(subscript, cst.Subscript):
                self.vectors += self._by_vector(n)
                continue
            if place not in _PLACES:
                raise _Seen
            self.places.add(place)
            end = self.through(subscript, _sums)
            if (name := target(end)) is not None:
                pointers.add(name)
            else:
                loads.append(self._pointer_of(end))
        return pointers, loads

    def _by_vector(self, n: cst.Name) -> list[cst.Call]:
        """The loads of one dimension whose addresses are computed from the index and numbers alone."""
        end = self.through(n, lambda x: isinstance(x, cst.BinaryOperation))
        name, address = target(end), getattr(end, "value", None)
        if not isinstance(address, cst.BaseExpression) or not self._of_numbers(address, {n.value}):
            raise _Seen
        if name is None:
            return [self._pointer_of(end)]
        steps = [x.value for x in nodes(self.function.body) if isinstance(x, cst.AugAssign) and code(x.target) == name]
        assigned = (x for x in nodes(self.function.body) if isinstance(x, cst.Assign) and target(x) == name)
        again = [x.value for x in assigned if x is not end]
        if not all(self._of_numbers(x, {name}) for x in (*steps, *again)):
            raise _Seen
        return self._of_pointer(name)

    @cached_property
    def _scalars(self) -> set[str]:
        return scalars(self.function)

    def _of_numbers(self, x: cst.BaseExpression, own: set[str]) -> bool:
        """Whether an expression is arithmetic of numbers, and of these names."""
        plain = (cst.BinaryOperation, cst.BaseBinaryOp, cst.Name, cst.Integer)
        return names(x) <= self._scalars | own and all(isinstance(n, plain) for n in nodes(x))

    def _of_pointer(self, name: str) -> list[cst.Call]:
        """The loads through a pointer that is computed from the index once, and else only advanced."""
        loads, steps = list[cst.Call](), 0
        for n in self.reads(name):
            above = self.above[id(n)]
            if _sums(above) and target(self.above[id(above)]) == name:
                steps += 1  # name = name + step
            else:
                loads.append(self._pointer_of(above))
        advanced = (x for x in nodes(self.function.body) if isinstance(x, cst.AugAssign) and code(x.target) == name)
        if self.count[name] != 1 + steps + sum(isinstance(x.operator, cst.AddAssign) for x in advanced):
            raise _Seen
        return loads

    def _pointer_of(self, argument: cst.CSTNode) -> cst.Call:
        """The load whose pointer an argument is."""
        call = self.above.get(id(argument))
        if not isinstance(argument, cst.Arg) or not isinstance(call, cst.Call) or code(call.func) != "tl.load":
            raise _Seen
        if call.args[0] is not argument or argument.keyword is not None or argument.star:
            raise _Seen
        return call

    # values -----------------------------------------------------------------------------------------------------------

    def _of_load(self, load: cst.Call) -> set[str]:
        """The names of the dots' results into whose rows what is loaded goes."""
        value = self._loaded(load)
        return {self._of_dot(n) for n in self.reads(value)} - {value}

    def _loaded(self, load: cst.Call) -> str:
        """The name of what is loaded, where rows past the end may become zeros."""
        value, given = target(self.above[id(load)]), _arguments(load)
        if value is None or set(given) - _OF_LOAD or code(given.get("other", cst.Integer("0"))) not in _ZEROS:
            raise _Seen
        if (mask := given.get("mask")) is not None and code(mask) != "None" and not self._is_condition(mask):
            raise _Seen
        return value

    def _of_vector(self, load: cst.Call) -> set[str]:
        """The names that are given what is computed from a loaded vector, at the place of its rows."""
        value, results = self._loaded(load), set[str]()
        for n in self.reads(value):
            end = self.through(n, self._cast)
            if not isinstance(end, cst.Subscript) or not code(end).endswith(self.place):
                raise _Seen
            results |= self._next(end)
        return results

    def _is_condition(self, mask: cst.BaseExpression) -> bool:
        """Whether a mask is one on every path: `None` would not go together with another one."""
        match self.value(mask):
            case cst.BinaryOperation(operator=cst.BitAnd() | cst.BitOr(), left=left, right=right):
                return self._is_condition(left) and self._is_condition(right)
            case cst.Subscript(value=value):
                return self._is_condition(value)
            case condition:
                return isinstance(condition, cst.Comparison) or code(condition) == "True"

    def _of_dot(self, n: cst.Name) -> str:
        """The name of the result of a dot whose operand this is; or its own, of its cast."""
        end = self.through(n, self._cast)
        if target(end) == n.value:
            return n.value
        dot = self.above.get(id(end))
        if (
            not isinstance(dot, cst.Call)
            or code(dot.func) != "tl.dot"
            or any(a.star or (a is end and a.keyword) for a in dot.args)
        ):
            raise _Seen
        if dot.args[_PLACES[self.place]] is not end:
            raise _Seen
        return self._named(dot)

    def _named(self, dot: cst.Call) -> str:
        """The name that is given a dot, or what is computed from it element by element."""
        above = self.through(dot, self._elementwise)
        if isinstance(above, cst.AugAssign) and isinstance(above.target, cst.Name):
            return code(above.target)
        if (name := target(above)) is None:
            raise _Seen
        return name

    def _follow(self, results: set[str]) -> None:
        """Follows results, and all that is computed from them, to the stores that leave out rows past the end."""
        waiting, followed = list(results), set(results)
        while waiting:
            for n in self.reads(waiting.pop()):
                reached = self._next(n) - followed
                waiting += reached
                followed |= reached

    def _next(self, n: cst.CSTNode) -> set[str]:
        """The name that is given what is computed from this, element by element; none where it is stored."""
        end = self.through(n, self._elementwise)
        if isinstance(end, cst.AugAssign) and isinstance(end.target, cst.Name):
            return {end.target.value}
        if (name := target(end)) is not None:
            return {name}
        call = self.above.get(id(end))
        if not isinstance(end, cst.Arg) or not isinstance(call, cst.Call):
            raise _Seen
        if code(call.func) == "tl.dot" and _arguments(call, ("input", "other", "acc")).get("acc") is end.value:
            return {self._named(call)}
        given = _arguments(call, ("pointer", "value", "mask"))
        if (
            code(call.func) != "tl.store"
            or given.get("value") is not end.value
            or not self._left_out(given.get("mask"))
        ):
            raise _Seen
        self.stored = True
        return set()

    def _elementwise(self, x: cst.CSTNode) -> bool:
        if isinstance(x, cst.BinaryOperation):
            return not isinstance(x.operator, cst.MatrixMultiply)
        if isinstance(x, cst.Arg):
            above = self.above[id(x)]
            return isinstance(above, cst.Call) and code(above.func) in _ELEMENTWISE
        if isinstance(x, cst.Call):
            return self._cast(x) or code(x.func) in _ELEMENTWISE
        return self._cast(x) or isinstance(x, cst.UnaryOperation | cst.Comparison | cst.ComparisonTarget)

    @staticmethod
    def _cast(x: cst.CSTNode) -> bool:
        """Part of `value.to(type)`."""
        method = x.func if isinstance(x, cst.Call) else x
        return isinstance(method, cst.Attribute) and method.attr.value == "to"

    # masks ------------------------------------------------------------------------------------------------------------

    def _left_out(self, mask: cst.BaseExpression | None) -> bool:
        """Whether a store's mask is false in rows past the end."""
        return mask is not None and any(self._bounds(c) for c in self._conjuncts(mask))

    def _conjuncts(self, mask: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        match self.value(mask):
            case cst.BinaryOperation(operator=cst.BitAnd(), left=left, right=right):
                yield from self._conjuncts(left)
                yield from self._conjuncts(right)
            case condition:
                yield condition

    def _bounds(self, condition: cst.BaseExpression) -> bool:
        """Whether it is `index[place] < size`, or `(index < size)[place]`."""
        inner = self._at_place(condition)
        compared = inner if inner is not None else condition
        match compared:
            case cst.Comparison(
                left=left, comparisons=[cst.ComparisonTarget(operator=cst.LessThan(), comparator=cst.Name(value=size))]
            ) if size == self.wrapped.size:
                index = left if inner is not None else self._at_place(left)
                return index is not None and _text(self.value(index)) == _text(self.wrapped.index)
        return False

    def _at_place(self, x: cst.BaseExpression) -> cst.BaseExpression | None:
        """What stands before `[:, None]`, or whichever place the index has."""
        if isinstance(x, cst.Subscript) and code(x.with_changes(lpar=[], rpar=[])).endswith(self.place):
            return self.value(x.value)
        return None


def _sums(x: cst.CSTNode) -> bool:
    return isinstance(x, cst.BinaryOperation) and isinstance(x.operator, cst.Add | cst.Multiply)


def _arguments(call: cst.Call, order: tuple[str, ...] = ("pointer", "mask", "other")) -> dict[str, cst.BaseExpression]:
    """What a call is given, by name. Raises _Seen where that cannot be told."""
    plain = [a.value for a in call.args if a.keyword is None]
    if len(plain) > len(order) or any(a.star for a in call.args):
        raise _Seen
    return dict(zip(order, plain, strict=False)) | keywords(call)


def _text(x: cst.BaseExpression) -> str:
    return "".join(code(x.with_changes(lpar=[], rpar=[])).split())


class _Masks(cst.CSTTransformer):
    """Writes the index without its modulo, and the masks of its loads."""

    def __init__(self, wrapped: Wrapped, places: Mapping[int, str]) -> None:
        """`places`: id of each load -> how the index stands in its mask."""
        self.wrapped, self.places = wrapped, places

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        if target(original_node) != self.wrapped.name:
            return updated_node
        return updated_node.with_changes(value=self.wrapped.index)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        place = self.places.get(id(original_node))
        if place is None:
            return updated_node
        condition = f"({self.wrapped.name}{place} < {self.wrapped.size})"
        given = {n: code(x) for n, x in _arguments(updated_node).items()}
        own = given.get("mask", "None")
        mask = condition if own == "None" else f"({own}) & {condition}"
        arguments = given | {"mask": mask, "other": given.get("other", "0.0")}
        listed = ", ".join(f"{n}={x}" for n, x in arguments.items() if n != "pointer")
        return cst.ensure_type(expression(f"tl.load({given['pointer']}, {listed})"), cst.Call)
