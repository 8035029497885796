"""Guesses what a launcher returns: tensors that its kernels store to, and values computed from those.

It reads the text of the launcher and of the host functions of its file that it calls. Relies on
`agent/moves/analysis/stored_pointers.py` for what a kernel stores through. A view of a tensor counts as that tensor;
containers, attributes and methods are not followed.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst
from pgo_agent.agent.commands.init.aliases import assigned, base, copied_to, derived, made_of, numbers, root, views_of
from pgo_agent.agent.commands.init.scan import ScannedFile, launches, passed
from pgo_agent.agent.commands.init.shapes import parameters
from pgo_agent.agent.moves.analysis import cst_util
from pgo_agent.agent.moves.analysis.stored_pointers import written
from pgo_agent.sandbox import parsing

MADE = re.compile(r"(?:torch\.|\w+\.new_)(?:empty|zeros|ones|full|empty_like|zeros_like|empty_strided)\b")


@dataclass(frozen=True)
class Output:
    """A tensor that the launch writes."""

    name: str  # as the launcher calls it
    place: int | None  # index in what the launcher returns; -1: it is all that is returned; None: it is not returned
    own: bool  # the launcher allocates it; else it is one of its arguments
    like: str = ""  # the argument whose size it has; empty when unknown
    dims: tuple[str, ...] = ()  # that its allocation names, if it does

    @property
    def reachable(self) -> bool:
        """Return whether the caller of the launcher can read it."""
        return self.place is not None or not self.own


@dataclass(frozen=True)
class Results:
    """The results of a host function."""

    outputs: tuple[Output, ...] = ()
    returned: int = 0  # values that it returns; 0: one, or none
    dropped: tuple[str, ...] = ()  # what it also returns, computed from nothing that is stored to

    def at(self, place: int) -> str:
        """Return the name of the value at that index, if it is computed from a stored tensor; else empty."""
        return next((o.name for o in self.outputs if o.place == place), "")


class Host:
    """The host functions of a file."""

    def __init__(self, scanned: ScannedFile) -> None:
        module = cst.parse_module(scanned.text)
        module = module.with_changes(body=[*_unfolded(module)])
        by_name = cst_util.functions(module)
        self._functions, self._host = scanned.functions, scanned.host
        self._through = {name: written(module, by_name[name]) for name in scanned.kernels if name in by_name}
        self._results: dict[str, Results] = {}  # of functions that others call
        self._stores: dict[str, list[str]] = {}

    def results(self, function: ast.FunctionDef, given: Sequence[str]) -> Results:
        """Return the results of a function. `given`: parameters for which the caller passes tensors."""
        returned, stored = _returned(function), self._stored(function)
        if len(returned) == 1 and (inner := self._inner(returned[0])):
            return self._handed_on(returned[0], inner, stored, given)
        named = self._named(function, returned, stored, given)
        places = {n: [m for m, _ in named].index(n) for n, _ in named}
        allocations = _allocations(function)
        outputs = [o for n in stored if (o := _written(n, allocations.get(n, ""), given, places.get(n)))]
        names = {o.name for o in outputs}
        outputs += [Output(n, places[n], True) for n in places if (n, True) in named and n not in names]
        dropped = tuple(n for n in places if n and (n, False) in named and n not in {*names, *given})
        placed = (replace(o, place=-1) if o.place == 0 and len(named) == 1 else o for o in outputs)
        return Results(tuple(placed), len(returned) if len(returned) > 1 else 0, dropped)

    def _named(
        self, function: ast.FunctionDef, returned: list[ast.expr], stored: list[str], given: Sequence[str]
    ) -> list[tuple[str, bool]]:
        """Return a name for each returned value, and whether it is computed from a stored tensor."""
        views, seeds, result = views_of(function), {*stored, *self._from_inner(function)}, []
        come = seeds | derived(function, seeds)
        for i, value in enumerate(returned):
            name = base(root(value), views, {*stored, *given})
            if single := self._single(value):
                result.append((single, True))
            elif name:
                result.append((name, name in come and name not in given))
            else:
                comes = bool(made_of(value) & come)
                result.append((f"result{i}" if comes else "", comes))
        return result

    def _handed_on(self, call: ast.expr, inner: ast.FunctionDef, stored: list[str], given: Sequence[str]) -> Results:
        """Return the results of a function that returns what another one returns."""
        results, names = self._of(inner), _names(call, inner)
        outputs = [
            replace(o, name=names[o.name] if not o.own else o.name, own=o.own or names[o.name] not in given)
            for o in results.outputs
            if o.own or names.get(o.name)
        ]
        here = [replace(o, like=names.get(o.like, ""), dims=()) for o in outputs]
        written_arguments = {o.name for o in here if not o.own}
        others = (n for n in stored if n in given and n not in written_arguments)
        return replace(results, outputs=(*here, *(Output(n, None, False, n) for n in others)))

    def _of(self, function: ast.FunctionDef) -> Results:
        """Return the results of a called function; none while it is being read, because it calls itself."""
        if function.name not in self._results:
            self._results[function.name] = Results()
            self._results[function.name] = self.results(function, _parameters(function))
        return self._results[function.name]

    def _stored(self, function: ast.FunctionDef) -> list[str]:
        """Return what kernels store to, by its name in this function; read once, as in `_of`."""
        if function.name not in self._stores:
            self._stores[function.name] = []
            views, tensors = views_of(function), {*_allocations(function), *_parameters(function)}
            stored = list(self._passed_to_stores(function))
            come = {*stored, *self._from_inner(function)}
            stored += copied_to(function, come | derived(function, come))
            names = dict.fromkeys(base(n, views, tensors) for n in stored)
            self._stores[function.name] = [n for n in names if n and n not in numbers(function)]
        return self._stores[function.name]

    def _passed_to_stores(self, function: ast.FunctionDef) -> Iterator[str]:
        for launch in launches(function, self._functions):
            through = self._through.get(launch.kernel, ())
            yield from (root(value) for parameter, value in launch.passed.items() if parameter in through)
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            if inner := self._inner(call):
                there = _names(call, inner)
                yield from (there[n] for n in self._stored(inner) if n in there)

    def _from_inner(self, function: ast.FunctionDef) -> Iterator[str]:
        """Yield names that are bound to a stored tensor that a host function returns."""
        for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
            if inner := self._inner(node.value):
                for target in node.targets:
                    listed = target.elts if isinstance(target, ast.Tuple) else [target]
                    places = range(len(listed)) if isinstance(target, ast.Tuple) else (-1,)
                    yield from (
                        t.id
                        for i, t in zip(places, listed, strict=True)
                        if isinstance(t, ast.Name) and self._of(inner).at(i)
                    )

    def _single(self, node: ast.expr) -> str:
        """Return the only result of a call of a host function, if it is computed from a stored tensor; else empty."""
        inner = self._inner(node)
        return self._of(inner).at(-1) if inner else ""

    def _inner(self, node: ast.expr) -> ast.FunctionDef | None:
        """Return the host function of the file that is called."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        return self._host.get(node.func.id)


def _unfolded(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the statements at module level, also those inside conditions and `try`s."""
    for child in node.children:
        if isinstance(child, cst.FunctionDef | cst.ClassDef | cst.SimpleStatementLine):
            yield child
        else:
            yield from _unfolded(child)


def _written(name: str, text: str, given: Sequence[str], place: int | None) -> Output | None:
    """Return the output of that name if the function allocates it (by that text), gets it or returns it."""
    if not text and name not in given and place is None:
        return None
    if not text and name in given:
        return Output(name, place, False, name)
    like = _like(text, given)
    return Output(name, place, True, like, _allocated(text) if text and not like else ())


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [a.arg for a in parameters(function)]


def _names(call: ast.expr, function: ast.FunctionDef) -> dict[str, str]:
    """Return parameter of the called function -> the name that the passed expression begins with."""
    values = passed(call, function) if isinstance(call, ast.Call) else {}
    return {parameter: name for parameter, value in values.items() if (name := root(value))}


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    """Return the values of the last `return` of a function."""
    returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    last = max(returns, key=lambda v: v.lineno, default=None)
    if last is None:
        return []
    return list(last.elts) if isinstance(last, ast.Tuple) else [last]


# what is allocated ----------------------------------------------------------------------------------------------------


def _allocations(function: ast.FunctionDef) -> dict[str, str]:
    """Return names that are bound to a new tensor, with the text of its allocation."""
    texts = ((name, ast.unparse(choice)) for name, value in assigned(function) for choice in _choices(value))
    return {name: text for name, text in texts if MADE.match(text)}


def _choices(value: ast.expr) -> list[ast.expr]:
    """Return the values that `a if c else b` may have."""
    return [*_choices(value.body), *_choices(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _like(text: str, given: Sequence[str]) -> str:
    """Return the argument in `torch.empty_like(x)`."""
    match = re.match(r"torch\.(?:empty|zeros)_like\((\w+)", text)
    return match[1] if match and match[1] in given else ""


def _allocated(text: str) -> tuple[str, ...]:
    """Return the dimensions in `torch.empty((M, N), ...)` or `torch.empty(n, ...)`, if they are names."""
    call = parsing.expression(text)
    size = call.args[0] if isinstance(call, ast.Call) and call.args else None
    listed = size.elts if isinstance(size, ast.Tuple | ast.List) else [size] if size else []
    names = tuple(e.id for e in listed if isinstance(e, ast.Name))
    return names if len(names) == len(listed) else ()
