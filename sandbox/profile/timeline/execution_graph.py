"""The graph of a kernel for `longest_path.py`: executions of its scopes, in the order of each role, tied by barriers.

The simulator of barriers (`gate/barriers/`) unrolls the kernel for a number of iterations and says which arrivals
complete the phase that a wait sees. A wait that only arrivals of other roles serve takes no time of its own: what it
waits for is on the path to it. A wait for copies keeps its time, for the latency of memory is in no scope. Believes, as
the simulator does, that all warps of a role act as one; of a branch that it cannot follow both ways are taken.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pgo_agent.sandbox.gate.barriers import argument_search
from pgo_agent.sandbox.gate.barriers.barrier import Contribution
from pgo_agent.sandbox.gate.barriers.interpret import Unroller
from pgo_agent.sandbox.gate.barriers.program import Fork, Init, Join, Program, Wait
from pgo_agent.sandbox.gate.barriers.simulator import Broken, Machine
from pgo_agent.sandbox.gate.barriers.terms import Known
from pgo_agent.sandbox.gate.barriers.values import Choose, Frame, Impossible, Role, Undecided
from pgo_agent.sandbox.profile.timeline.find_scopes import LOOPS, Kind
from pgo_agent.sandbox.profile.timeline.longest_path import Edge, Node
from pgo_agent.sandbox.profile.timeline.scope_sets import Scope, scopes_of
from pgo_agent.sandbox.ttgir.tree import Module, Op

MOST_RUNS = 40  # choices of arguments that are tried
HOLDING = frozenset({Kind.ROLE, Kind.EMPTY})  # scopes that are no nodes


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    problem: str = ""  # why there is no graph


@dataclass
class _Line:
    """What a role executed, in order: nodes, and after how many of its steps each began."""

    nodes: list[Node] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


def graph(module: Module, cycles: Mapping[str, float], iterations: int) -> Graph:
    """Return the graph of a kernel whose loops with barriers or asynchronous copies run about `iterations` times.

    `cycles`: of one execution of each scope, by its name (their P50); a scope without is taken to need none.
    """
    result = _run(module, iterations)
    if isinstance(result, str):
        return Graph((), (), result)
    tracer, program = result
    machine = Machine(program)
    try:
        machine.go()
    except Broken as e:
        return Graph((), (), e.finding.sentence)
    if machine.blocked():
        return Graph((), (), "the kernel's barriers never let it end")
    lines = _lines(tracer, program, cycles)
    served, ties = _served(program, machine, lines)
    nodes = [
        Node(n.name, 0.0 if n.name in served else n.cycles, n.scope, n.role) for x in lines.values() for n in x.nodes
    ]
    ordered = [Edge(a.name, b.name) for x in lines.values() for a, b in zip(x.nodes, x.nodes[1:], strict=False)]
    return Graph(tuple(nodes), (*ordered, *_forks(program, lines), *dict.fromkeys(ties)))


class _Tracer(Unroller):
    """Notes every op that it executes, with how many steps its role had taken before."""

    def __init__(self, module: Module, arguments: Known) -> None:
        super().__init__(module, arguments)
        self.events: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)  # line, steps, a loop passed over

    def _operation(self, op: Op, frame: Frame, role: Role) -> None:
        listed = self.events[role.name]
        at = len(listed)
        listed.append((op.line, len(role.steps), False))
        super()._operation(op, frame, role)
        if op.name in LOOPS and len(listed) == at + 1:
            listed[at] = (op.line, listed[at][1], True)


def _run(module: Module, iterations: int) -> tuple[_Tracer, Program] | str:
    """Return a run with arguments that make the loops turn that often, or why there is none."""
    todo: list[Known] = [{}]
    problem = "no arguments were found that make its loops turn"
    for _ in range(MOST_RUNS):
        if not todo:
            break
        arguments = todo.pop()
        tracer = _Tracer(module, arguments)
        try:
            return tracer, tracer.program()
        except Choose as e:
            values = {"trips": argument_search.trips, "flag": argument_search.flags}.get(e.kind, argument_search.values)
            todo += reversed(values(e.term, [iterations], arguments))
        except (Undecided, RecursionError) as e:
            problem = str(e)
        except Impossible:
            pass
    return problem


def _lines(tracer: _Tracer, program: Program, cycles: Mapping[str, float]) -> dict[str, _Line]:
    """Return the nodes of each role. A role without any gets one that takes no time, for others to wait for."""
    by_role: dict[str, dict[int, Scope]] = defaultdict(dict)
    for s in scopes_of(tracer.module):
        if s.kind not in HOLDING:
            by_role[s.role][s.first] = s
    lines = {}
    for role in program.roles:
        line = lines[role] = _Line([Node(f"{role} begins", 0.0, "", role)], [0])
        for at, steps, passed in tracer.events.get(role, []):
            scope = by_role[role].get(at)
            if scope and (scope.kind is not Kind.LOOP or passed):
                name = f"{scope.name} #{len(line.nodes)}"
                line.nodes.append(Node(name, cycles.get(scope.name, 0.0), scope.name, role))
                line.steps.append(steps)
    return lines


def _node(line: _Line, position: int) -> Node:
    """Return the node that a step belongs to: the last one that began before or with it."""
    return line.nodes[max(i for i, before in enumerate(line.steps) if before <= position)]


def _served(program: Program, machine: Machine, lines: Mapping[str, _Line]) -> tuple[set[str], list[Edge]]:
    """Return the waits that only other roles' arrivals serve, and edges from arrivals and copies to the waits they
    serve."""
    inits = [s.barrier for steps in program.roles.values() for s in steps if isinstance(s, Init)]
    served: set[str] = set()
    ties: list[Edge] = []
    for (role, name), history in machine.history.items():
        if inits.count(name) > 1:
            continue  # of its first life nothing is left
        places = [i for i, s in enumerate(program.roles[role]) if isinstance(s, Wait) and s.barrier == name]
        for place, (_, phase) in zip(places, history, strict=True):
            by = machine.barriers[name].phases[phase - 1] if phase else []
            wait = _node(lines[role], place)
            ties += [Edge(b.name, wait.name) for b in _from_others(by, role, lines)]
            if by and not any(c.later or c.mark.role == role for c in by):
                served.add(wait.name)
    return served, ties


def _from_others(by: Iterable[Contribution], role: str, lines: Mapping[str, _Line]) -> list[Node]:
    return [_node(lines[c.mark.role], c.mark.position) for c in by if c.mark.role != role]


def _forks(program: Program, lines: Mapping[str, _Line]) -> list[Edge]:
    """Roles begin when they are forked; what their kernel does after the join waits for all of them."""
    edges: list[Edge] = []
    for role, steps in program.roles.items():
        for i, s in enumerate(steps):
            if isinstance(s, Fork):
                edges += [Edge(_node(lines[role], i).name, lines[c].nodes[0].name) for c in s.roles]
            elif isinstance(s, Join) and (after := _after(lines[role], i)):
                edges += [Edge(lines[c].nodes[-1].name, after.name) for c in s.roles]
    return edges


def _after(line: _Line, position: int) -> Node | None:
    later: Sequence[Node] = [n for n, before in zip(line.nodes, line.steps, strict=True) if before > position]
    return later[0] if later else None
