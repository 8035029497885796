"""What a launcher gives back: tensors that its kernels store to, and what is made of those.

Guesses, by the text of the launcher and of those host functions of its file that it calls. Relies on
`agent/moves/analysis/stored_pointers.py` for what a kernel stores through. A view of a tensor counts as that tensor;
what goes through containers, attributes or methods is not followed.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst
from pgo_agent.agent.commands.init.aliases import assigned, base, copied_to, derived, made_of, numbers, root, views_of
from pgo_agent.agent.commands.init.scan import Found, launches, passed
from pgo_agent.agent.commands.init.shapes import parameters
from pgo_agent.agent.moves.analysis import cst_util
from pgo_agent.agent.moves.analysis.stored_pointers import written
from pgo_agent.sandbox import parsing

MADE = re.compile(r"(?:torch\.|\w+\.new_)(?:empty|zeros|ones|full|empty_like|zeros_like|empty_strided)\b")


@dataclass(frozen=True)
class Output:
    """A tensor that the launch writes."""

    name: str  # as the launcher calls it
    place: int | None  # in what the launcher returns; -1: it is all that is returned; None: it is not returned
    own: bool  # the launcher allocates it; else it is one of its arguments
    like: str = ""  # the argument whose size it has; empty where nobody knows
    dims: tuple[str, ...] = ()  # that its allocation names, where it does

    @property
    def reachable(self) -> bool:
        """Whether who calls the launcher gets at it."""
        return self.place is not None or not self.own


@dataclass(frozen=True)
class Results:
    """Of a host function."""

    outputs: tuple[Output, ...] = ()
    returned: int = 0  # values that it returns; 0: one, or none
    dropped: tuple[str, ...] = ()  # what it returns beside, that comes of nothing that is stored to

    def at(self, place: int) -> str:
        """The name of what is returned there and comes of what is stored to; empty for anything else."""
        return next((o.name for o in self.outputs if o.place == place), "")


class Host:
    """The host functions of a file."""

    def __init__(self, found: Found) -> None:
        module = cst.parse_module(found.text)
        module = module.with_changes(body=[*_unfolded(module)])
        known = cst_util.functions(module)
        self._functions, self._host = found.functions, found.host
        self._through = {name: written(module, known[name]) for name in found.kernels if name in known}
        self._results: dict[str, Results] = {}  # of functions that others call
        self._stores: dict[str, list[str]] = {}

    def results(self, function: ast.FunctionDef, given: Sequence[str]) -> Results:
        """`given`: parameters by which the caller gives tensors."""
        returned, stored = _returned(function), self._stored(function)
        if len(returned) == 1 and (inner := self._inner(returned[0])):
            return self._handed_on(returned[0], inner, stored, given)
        named = self._named(function, returned, stored, given)
        places = {n: [m for m, _ in named].index(n) for n, _ in named}
        made = _made(function)
        outputs = [o for n in stored if (o := _written(n, made.get(n, ""), given, places.get(n)))]
        told = {o.name for o in outputs}
        outputs += [Output(n, places[n], True) for n in places if (n, True) in named and n not in told]
        dropped = tuple(n for n in places if n and (n, False) in named and n not in {*told, *given})
        placed = (replace(o, place=-1) if o.place == 0 and len(named) == 1 else o for o in outputs)
        return Results(tuple(placed), len(returned) if len(returned) > 1 else 0, dropped)

    def _named(
        self, function: ast.FunctionDef, returned: list[ast.expr], stored: list[str], given: Sequence[str]
    ) -> list[tuple[str, bool]]:
        """A name for each value that is returned, and whether it comes of what is stored to."""
        views, seeds, found = views_of(function), {*stored, *self._from_inner(function)}, []
        come = seeds | derived(function, seeds)
        for i, value in enumerate(returned):
            name = base(root(value), views, {*stored, *given})
            if single := self._single(value):
                found.append((single, True))
            elif name:
                found.append((name, name in come and name not in given))
            else:
                comes = bool(made_of(value) & come)
                found.append((f"result{i}" if comes else "", comes))
        return found

    def _handed_on(self, call: ast.expr, inner: ast.FunctionDef, stored: list[str], given: Sequence[str]) -> Results:
        """Of a function that returns what another one returns."""
        found, names = self._of(inner), _names(call, inner)
        outputs = [
            replace(o, name=names[o.name] if not o.own else o.name, own=o.own or names[o.name] not in given)
            for o in found.outputs
            if o.own or names.get(o.name)
        ]
        here = [replace(o, like=names.get(o.like, ""), dims=()) for o in outputs]
        told = {o.name for o in here if not o.own}
        others = (n for n in stored if n in given and n not in told)
        return replace(found, outputs=(*here, *(Output(n, None, False, n) for n in others)))

    def _of(self, function: ast.FunctionDef) -> Results:
        """Of a function that another one calls; nothing while it is being read: it calls itself."""
        if function.name not in self._results:
            self._results[function.name] = Results()
            self._results[function.name] = self.results(function, _own(function))
        return self._results[function.name]

    def _stored(self, function: ast.FunctionDef) -> list[str]:
        """What kernels store to, by its name in this function; read once, as `_of`."""
        if function.name not in self._stores:
            self._stores[function.name] = []
            views, known = views_of(function), {*_made(function), *_own(function)}
            stored = list(self._passed_to_stores(function))
            come = {*stored, *self._from_inner(function)}
            stored += copied_to(function, come | derived(function, come))
            names = dict.fromkeys(base(n, views, known) for n in stored)
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
        """Names that are bound to what a host function returns of what it stores to."""
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
        """What a call of a host function gives as its only result, where it comes of what is stored to."""
        inner = self._inner(node)
        return self._of(inner).at(-1) if inner else ""

    def _inner(self, node: ast.expr) -> ast.FunctionDef | None:
        """The host function of the file that is called."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        return self._host.get(node.func.id)


def _unfolded(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The statements of a file's own level, and those in its conditions and `try`s beside them."""
    for child in node.children:
        if isinstance(child, cst.FunctionDef | cst.ClassDef | cst.SimpleStatementLine):
            yield child
        else:
            yield from _unfolded(child)


def _written(name: str, text: str, given: Sequence[str], place: int | None) -> Output | None:
    """What is stored to, where the function makes it (by that text), is given it or returns it."""
    if not text and name not in given and place is None:
        return None
    if not text and name in given:
        return Output(name, place, False, name)
    like = _like(text, given)
    return Output(name, place, True, like, _allocated(text) if text and not like else ())


def _own(function: ast.FunctionDef) -> list[str]:
    return [a.arg for a in parameters(function)]


def _names(call: ast.expr, function: ast.FunctionDef) -> dict[str, str]:
    """Parameters of a function that is called -> the names that begin what is passed."""
    given = passed(call, function) if isinstance(call, ast.Call) else {}
    return {parameter: name for parameter, value in given.items() if (name := root(value))}


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    """The values of the last `return` of the function itself."""
    found = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    last = max(found, key=lambda v: v.lineno, default=None)
    if last is None:
        return []
    return list(last.elts) if isinstance(last, ast.Tuple) else [last]


# what is allocated ----------------------------------------------------------------------------------------------------


def _made(function: ast.FunctionDef) -> dict[str, str]:
    """Names that are bound to a new tensor, with the text of its allocation."""
    texts = ((name, ast.unparse(one)) for name, value in assigned(function) for one in _choices(value))
    return {name: text for name, text in texts if MADE.match(text)}


def _choices(value: ast.expr) -> list[ast.expr]:
    """What `a if c else b` may be."""
    return [*_choices(value.body), *_choices(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _like(text: str, given: Sequence[str]) -> str:
    """The argument in `torch.empty_like(x)`."""
    found = re.match(r"torch\.(?:empty|zeros)_like\((\w+)", text)
    return found[1] if found and found[1] in given else ""


def _allocated(text: str) -> tuple[str, ...]:
    """The dimensions in `torch.empty((M, N), ...)` or `torch.empty(n, ...)`, where they are names."""
    call = parsing.expression(text)
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    listed = given.elts if isinstance(given, ast.Tuple | ast.List) else [given] if given else []
    names = tuple(e.id for e in listed if isinstance(e, ast.Name))
    return names if len(names) == len(listed) else ()
