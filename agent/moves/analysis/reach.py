"""Which assignments a read of a name may see: reaching definitions over the structured code of a jit function.

Every read is mapped to all assignments that can be the latest one there, over branches and loops; an assignment never
hides one before it on another path. Relies on libcst nodes staying the same objects. It knows plain names only: a
statement of another form raises DoesNotApply.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst
from pgo_agent.agent.moves.analysis import DoesNotApply
from pgo_agent.agent.moves.analysis.cst_util import code, listed, parts, said


@dataclass(eq=False)
class Definition:
    """One place that gives a name its value."""

    name: str
    function: str
    statement: cst.CSTNode | None = None  # Assign, AugAssign, AnnAssign, For or Param
    value: cst.BaseExpression | None = None  # None: a parameter or a loop's variable
    part: int | None = None  # which element of the value, where a call's result is unpacked

    @property
    def augments(self) -> cst.AugAssign | None:
        return self.statement if isinstance(self.statement, cst.AugAssign) else None


Definitions = frozenset[Definition]
Env = dict[str, Definitions]


@dataclass
class _Loop:
    breaks: list[Env] = field(default_factory=list)
    continues: list[Env] = field(default_factory=list)


class Reach:
    """The definitions of one function, and which of them every read may see."""

    def __init__(self, function: cst.FunctionDef) -> None:
        self.function, self.name = function, function.name.value
        self.reads: dict[int, Definitions] = {}  # id of a name that is read
        self.entry: dict[int, Env] = {}  # id of a loop: what is current before it
        self.returns: list[cst.Return] = []
        self.evaluated: dict[int, cst.BaseExpression] = {}  # expressions that are not assigned
        self._made: dict[int, Definition] = {}
        self._loops: list[_Loop] = []
        self.parameters = {p.name.value: self._define(p.name, p) for p in listed(function)}
        self._block(function.body, {n: frozenset([d]) for n, d in self.parameters.items()})

    @property
    def definitions(self) -> list[Definition]:
        return list(self._made.values())

    def of(self, name: cst.Name) -> Definitions:
        return self.reads.get(id(name), frozenset())

    def _define(
        self, target: cst.Name, statement: cst.CSTNode, value: cst.BaseExpression | None = None, part: int | None = None
    ) -> Definition:
        made = Definition(target.value, self.name, statement, value, part)
        return self._made.setdefault(id(target), made)

    def _block(self, body: cst.BaseSuite, env: Env | None) -> Env | None:
        statements: Sequence[cst.CSTNode] = body.body
        for statement in statements:
            if env is None:
                return None  # what follows is never reached
            env = self._statement(statement, env)
        return env

    def _statement(self, statement: cst.CSTNode, env: Env) -> Env | None:
        match statement:
            case cst.SimpleStatementLine(body=smalls):
                after: Env | None = env
                for small in smalls:
                    after = self._small(small, after) if after is not None else None
                return after
            case cst.If():
                self._evaluate(statement.test, env)
                return _join([self._block(statement.body, env), self._else(statement.orelse, env)])
            case cst.For(orelse=None) | cst.While(orelse=None):
                return self._loop(statement, env)
        return self._small(statement, env)

    def _else(self, orelse: cst.If | cst.Else | None, env: Env) -> Env | None:
        if orelse is None:
            return env
        return self._statement(orelse, env) if isinstance(orelse, cst.If) else self._block(orelse.body, env)

    def _loop(self, loop: cst.For | cst.While, env: Env) -> Env | None:
        if isinstance(loop, cst.For):
            self._evaluate(loop.iter, env)
        head = env
        self.entry[id(loop)] = _join([self.entry.get(id(loop)), env]) or {}
        while True:
            self._loops.append(_Loop())
            if isinstance(loop, cst.While):
                self._evaluate(loop.test, head)
            end = self._block(loop.body, self._entered(loop, head))
            done = self._loops.pop()
            again = _join([head, end, *done.continues]) or {}
            if again == head:
                return _join([head, *done.breaks])
            head = again

    def _entered(self, loop: cst.For | cst.While, env: Env) -> Env:
        if isinstance(loop, cst.While):
            return env
        if not isinstance(loop.target, cst.Name):
            raise DoesNotApply(f"a loop over {code(loop.target)} is not followed")
        return env | {loop.target.value: frozenset([self._define(loop.target, loop)])}

    def _small(self, small: cst.CSTNode, env: Env) -> Env | None:
        match small:
            case cst.Assign(targets=targets, value=value):
                self._read(value, env)
                return env | {n: frozenset([d]) for t in targets for n, d in self._targets(t.target, small, value)}
            case cst.AnnAssign(target=cst.Name() as name, value=value):
                if value is None:
                    return env
                self._read(value, env)
                return env | {name.value: frozenset([self._define(name, small, value)])}
            case cst.AugAssign(target=cst.Name() as name, value=value):
                self._read(name, env)
                self._read(value, env)
                return env | {name.value: frozenset([self._define(name, small, value)])}
            case cst.Return(value=value):
                if value is not None:
                    self._read(value, env)
                if small not in self.returns:
                    self.returns.append(small)
                return None
            case cst.Expr(value=value):
                self._evaluate(value, env)
            case cst.Assert(test=test):
                self._evaluate(test, env)
            case cst.Break() if self._loops:
                self._loops[-1].breaks.append(env)
                return None
            case cst.Continue() if self._loops:
                self._loops[-1].continues.append(env)
                return None
            case cst.Raise():
                return None
            case cst.Pass() | cst.Import() | cst.ImportFrom():
                pass
            case _:
                raise DoesNotApply(f"a statement of the kind {type(small).__name__} is not followed")
        return env

    def _targets(
        self, target: cst.CSTNode, statement: cst.CSTNode, value: cst.BaseExpression
    ) -> Iterator[tuple[str, Definition]]:
        if isinstance(target, cst.Name):
            yield target.value, self._define(target, statement, value)
            return
        names = [e.value for e in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
        if not names or not all(isinstance(n, cst.Name) for n in names):
            raise DoesNotApply(f"an assignment to {code(target)} is not followed")
        paired = [e.value for e in value.elements] if isinstance(value, cst.Tuple) else []
        for i, name in enumerate(names):
            if isinstance(name, cst.Name):
                whole = len(paired) == len(names)
                yield name.value, self._define(name, statement, paired[i] if whole else value, None if whole else i)

    def _evaluate(self, value: cst.BaseExpression, env: Env) -> None:
        self.evaluated[id(value)] = value
        self._read(value, env)

    def _read(self, value: cst.CSTNode, env: Env) -> None:
        for name in read_names(value):
            self.reads[id(name)] = self.reads.get(id(name), frozenset()) | env.get(name.value, frozenset())


def read_names(node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that evaluating a node reads: no attribute names, no keywords of calls."""
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, cst.Attribute | cst.Arg):
        yield from read_names(node.value)
    elif isinstance(node, cst.Lambda | cst.BaseComp | cst.NamedExpr | cst.Await | cst.Yield):
        raise DoesNotApply(f"'{said(node)}' is an expression that is not followed")
    else:
        for part in parts(node):
            yield from read_names(part)


def _join(envs: Iterable[Env | None]) -> Env | None:
    """What may be current where several paths meet; None when no path gets there."""
    met = [e for e in envs if e is not None]
    if not met:
        return None
    return {n: frozenset[Definition]().union(*(e.get(n, frozenset()) for e in met)) for e in met for n in e}
