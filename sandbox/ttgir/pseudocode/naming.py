"""What variables are called: after the source where the text carries it, else after what they are.

Names depend on the program alone, never on the names of SSA values. Those of a warp-specialized role are chosen apart
from those of the others: each has an `acc` of its own.
"""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgo_agent.sandbox.ttgir.pseudocode import kinds, roles
from pgo_agent.sandbox.ttgir.pseudocode.graph import Body, Node, Value
from pgo_agent.sandbox.ttgir.pseudocode.movement import barrier
from pgo_agent.sandbox.ttgir.pseudocode.source import StatementLocation
from pgo_agent.sandbox.ttgir.pseudocode.variables import Span, Variable, Variables, departures

Names = dict[Variable, str]
LONGEST = 100  # characters of a name before its number
TRIED = 100  # names of one base that are looked at for one that is free again


def choose(
    root: Node, variables: Variables, parameters: list[list[str]], origins: list[StatementLocation | None]
) -> Names:
    """Return a name for every variable. `parameters`: of each function; `origins`: where each op is from, by its
    place."""
    namer = _Namer(root, variables, _Origins(root, origins))
    functions = (n for body in root.bodies for n in body.nodes if n.name == "tt.func")
    for node, names in zip(functions, parameters, strict=False):
        namer.function(node, names)
    for variable in sorted(dict.fromkeys(variables.values()), key=_turn):
        namer.name(variable)
    return namer.names


def _turn(variable: Variable) -> int:
    """Buffers before the barriers that are named after them; what all roles see before what is of one."""
    first = variable.values[0]
    if _role(first.body) is not None:
        return 2
    node = first.node
    return 0 if node and node.name == "ttg.local_alloc" and not node.operands and not barrier(first) else 1


def _role(body: Body | None) -> Body | None:
    """Return the warp-specialized region around a body."""
    while body is not None and body.owner.name != "ttg.warp_specialize":
        body = body.owner.body
    return body


@dataclass
class _Origins:
    """Source names of ops, and which of a statement's ops is what the statement assigns."""

    root: Node
    places: list[StatementLocation | None]
    ranks: dict[str, int] = field(default_factory=dict)  # name -> of the highest kind of value that has it

    def __post_init__(self) -> None:
        for node in self.root.walk():
            name = self.name(node)
            if name:
                ranks = [_rank(v) for v in node.results]
                self.ranks[name] = max([*ranks, self.ranks.get(name, 0)])

    def name(self, node: Node) -> str:
        place = self.places[node.place]
        return place.name if place else ""

    def of(self, value: Value) -> str:
        """Return the source's name for a value; empty for what a statement only computes on its way."""
        node = value.node
        name = self.name(node) if node else ""
        if node is None or not name or node.name.startswith("scf.") or _rank(value) < self.ranks[name]:
            return ""
        return "" if any(self.places[u.place] == self.places[node.place] for u in self._users(value)) else name

    def _users(self, value: Value) -> Iterator[Node]:
        for user in value.uses:
            if user.name not in kinds.TERMINATORS and user.name != "ttng.warp_group_dot_wait":
                yield user


def _rank(value: Value) -> int:
    """Buffers and tensors before pointers, these before scalars."""
    shape = value.shape
    if shape is None:
        return 2 if value.type.startswith("f") else 1
    if shape.kind == "tensor" and shape.element.startswith(("i", "!tt.ptr")):
        return 3
    return 4


@dataclass
class _Namer:
    root: Node
    variables: Variables
    origins: _Origins
    names: Names = field(default_factory=dict)
    taken: dict[tuple[int, str], "_Holders"] = field(default_factory=dict)  # role, name -> who has it
    unused: dict[tuple[int, str], int] = field(default_factory=dict)  # role, base -> the first number nobody has had

    def function(self, node: Node, parameters: list[str]) -> None:
        for body in node.bodies[:1]:
            for i, value in enumerate(body.arguments):
                variable = self.variables.get(value)
                if variable is not None:
                    self._take(variable, (parameters[i] if i < len(parameters) else "") or f"arg{i}", 0, False)

    def name(self, variable: Variable) -> None:
        if variable in self.names:
            return
        role = _role(variable.values[0].body)
        scope = id(role) if role else 0
        structural = roles.structural(variable.values, self._name_of)
        source_name = "" if structural else self._sourced(variable)
        base = structural or source_name or self._renewed(variable) or roles.described(variable.values, self._name_of)
        self._take(variable, base, scope, bool(source_name))

    def _sourced(self, variable: Variable) -> str:
        counts = Counter(name for v in variable.values if (name := self.origins.of(v)))
        return counts.most_common(1)[0][0] if counts else ""

    def _renewed(self, variable: Variable) -> str:
        """m_new for what the m of a loop goes on with."""
        for value in variable.values:
            for user in value.uses:
                takers = [t for t, source in departures(user.body) if source is value] if user.body else []
                name = next((n for t in takers if (n := self._name_of(t))), "")
                if name and user.name == "scf.yield" and user.body and user.body.owner.name == "scf.for":
                    return re.sub(r"(?:_new\d*)?$", "_new", name, count=1)
        return ""

    def _name_of(self, value: Value) -> str:
        """Return what a value is called already; empty for one without a name."""
        variable = self.variables.get(value)
        return self.names.get(variable, "") if variable else ""

    def _take(self, variable: Variable, base: str, scope: int, shared: bool) -> None:
        """The first of base, base2, base3, ... that is free; a source's name may be used again for what is dead."""
        base = base[:LONGEST]
        homes, tile = _loops(variable), shared and _tile(variable)
        unused = self.unused.get((scope, base), 1)
        for number in itertools.chain(range(1, min(unused, TRIED) if homes or tile else 1), itertools.count(unused)):
            name = base if number == 1 else f"{base}{'_' if base[-1].isdigit() else ''}{number}"
            others = [h for s in {scope, 0} if (h := self.taken.get((s, name))) is not None]
            if all(h.admits(variable, homes, tile) for h in others):
                break
        self.names[variable] = name
        self.taken.setdefault((scope, name), _Holders()).add(variable, homes)
        self.unused[scope, base] = max(number + 1, unused)


@dataclass
class _Holders:
    """The variables that have a name: never two of them at a time."""

    spans: list[Span] = field(default_factory=list)  # of all, in order
    homes: set[Node] = field(default_factory=set)  # loops that they are of
    homeless: bool = False  # whether one is of no loop
    tiles: bool = True  # whether all are what a source may assign again

    def add(self, variable: Variable, homes: frozenset[Node]) -> None:
        for span in variable.spans:
            bisect.insort(self.spans, span)
        self.homes |= homes
        self.homeless |= not homes
        self.tiles &= _tile(variable)

    def admits(self, variable: Variable, homes: frozenset[Node], tile: bool) -> bool:
        """Return whether a variable may have the name, too: of other loops, or assigned again, and all others dead."""
        elsewhere = bool(homes) and not self.homeless and self.homes.isdisjoint(homes)
        return (elsewhere or (tile and self.tiles)) and not any(self._meets(*span) for span in variable.spans)

    def _meets(self, begin: int, end: int) -> bool:
        before = bisect.bisect_left(self.spans, (end,)) - 1
        return before >= 0 and self.spans[before][1] > begin


def _tile(variable: Variable) -> bool:
    """A tensor or buffer that an op gives: what a source assigns to again and again."""
    return _rank(variable.values[0]) == 4 and all(v.node is not None for v in variable.values[:1])


def _loops(variable: Variable) -> frozenset[Node]:
    """Return the innermost loops that a variable's values are in, or are carried by."""
    loops = set()
    for value in variable.values:
        body = value.body
        while body is not None and body.owner.name not in kinds.LOOPS:
            body = body.owner.body
        carried = value.node if value.node is not None and value.node.name in kinds.LOOPS else None
        loops |= {n for n in (body.owner if body is not None else None, carried) if n is not None}
    return frozenset(loops)
