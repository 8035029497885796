"""Rewrites a kernel part so that its results are written into tensors that the caller has.

A launcher allocates its results and returns them by name. Where it does so by `torch.empty` or `torch.zeros`, the
caller's tensor takes the place of the allocation; any other result is copied into it. Relies on `agent/kernel_part.py`
for statements; nothing is run.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgo_agent.agent.commands.init.scan import is_kernel
from pgo_agent.agent.kernel_part import Block, blocks
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.errors import UsageFault

LAUNCHER, INTO, ENTRY = "kernel", "into", "launch"
FILLED = {"torch.empty": "", "torch.zeros": ".zero_()"}
HINT = "export it --as module, and call its kernel() yourself"
_ENTRY = """\
def {entry}({into}, {parameters}):
    for given, result in zip({into}, _flat({launcher}({parameters}{passed})), strict=True):
        if result.data_ptr() != given.data_ptr():
            given.copy_(result)


def _flat(value):
    return [x for v in value for x in _flat(v)] if isinstance(value, tuple | list) else [value]
"""


@dataclass
class _Place:
    """Where a result comes from."""

    kind: str  # "argument", "allocated" or "made"
    statement: ast.Assign | None = None  # that allocates it
    path: tuple[ast.Call, ...] = ()  # calls of the part's own functions on the way to it


@dataclass
class _Part:
    """The functions of a kernel part."""

    functions: dict[str, ast.FunctionDef]
    changed: set[str] = field(default_factory=set)

    def results(self, name: str) -> list[_Place]:
        """Return where each result of a function comes from, lists and tuples in one row."""
        function = self.functions[name]
        returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
        if len(returned) != 1 or returned[0] is None:
            raise UsageFault(f"{name}() does not return its results at one place", HINT)
        return list(self._elements(returned[0], function))

    def _elements(self, value: ast.expr, function: ast.FunctionDef) -> Iterator[_Place]:
        if isinstance(value, ast.Tuple | ast.List):
            for one in value.elts:
                yield from self._elements(one, function)
        elif isinstance(value, ast.Call) and (called := self._called(value)):
            for place in self.results(called):
                yield _Place(place.kind, place.statement, (value, *place.path))
        elif isinstance(value, ast.Name):
            yield from self._named(value.id, function)
        else:
            yield _Place("made")

    def _named(self, name: str, function: ast.FunctionDef) -> Iterator[_Place]:
        if name in {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}:
            yield _Place("argument")
            return
        writes = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and _stored(n)]
        match [s for s in function.body if isinstance(s, ast.Assign) and len(writes) == 1 and writes[0] in s.targets]:
            case [ast.Assign(value=ast.Call(func=f)) as made] if ast.unparse(f) in FILLED:
                yield _Place("allocated", made)
            case [ast.Assign(value=ast.Call() as call)] if self._called(call):
                yield from self._elements(call, function)
            case _:
                yield _Place("made")

    def _called(self, call: ast.Call) -> str:
        """Return the function of this part that a call is the only one of; empty for any other."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        uses = [n for f in self.functions.values() for n in ast.walk(f) if isinstance(n, ast.Name) and n.id == name]
        return name if name in self.functions and len(uses) == 1 else ""

    def give(self, i: int, place: _Place) -> None:
        """Let the caller's i-th tensor take the place of an allocation."""
        assert place.statement is not None and isinstance(place.statement.value, ast.Call)
        filled = FILLED[ast.unparse(place.statement.value.func)]
        place.statement.value = _expression(f"{INTO}[{i}]{filled}")
        for call in place.path:
            if not any(k.arg == INTO for k in call.keywords):
                call.keywords.append(ast.keyword(INTO, _expression(INTO)))
        for name in (LAUNCHER, *(self._called(c) for c in place.path)):
            if name not in self.changed:
                self.functions[name].args.kwonlyargs.append(ast.arg(INTO))
                self.functions[name].args.kw_defaults.append(None)
                self.changed.add(name)


def _expression(text: str) -> ast.expr:
    return copy.deepcopy(parsing.expression(text))


def _text(of: Block, part: _Part) -> str:
    """Return a block of the text, its function as it was changed."""
    changed = [ast.unparse(part.functions[n]) for n in of.names if n in part.changed]
    return "\n\n" + "\n".join(changed) + "\n" if changed else of.text


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def rewritten(text: str) -> tuple[str, int]:
    """Return the kernel part with a function ENTRY that takes the results' tensors and then what kernel() takes, and
    how many results it copies. Raises UsageFault where kernel() does not return its results at one place."""
    parts = blocks(text)
    nodes = copy.deepcopy([n for b in parts for n in b.nodes if isinstance(n, ast.FunctionDef)])  # parsed once for all
    part = _Part({n.name: n for n in nodes if not is_kernel(n)})
    if LAUNCHER not in part.functions:
        raise UsageFault("kernel() is not written as a function of its own", HINT)
    given = part.functions[LAUNCHER].args
    parameters = ", ".join(a.arg for a in (*given.args, *given.kwonlyargs))
    places = part.results(LAUNCHER)
    for i, place in enumerate(places):
        if place.kind == "allocated":
            part.give(i, place)
    whole = "".join(_text(b, part) for b in parts)
    passed = f", {INTO}={INTO}" if LAUNCHER in part.changed else ""
    entry = _ENTRY.format(entry=ENTRY, into=INTO, parameters=parameters, launcher=LAUNCHER, passed=passed)
    return whole.strip() + f"\n\n\n{entry}", sum(p.kind == "made" for p in places)
